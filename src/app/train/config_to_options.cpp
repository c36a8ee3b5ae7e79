// SPDX-License-Identifier: Apache-2.0
#include "app/train/config_to_options.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "app/train/rank_hang.h"
#include "core/base/all_elements.h"
#include "core/base/hash.h"
#include "core/base/units.h"
#include "data/tokenized_text.h"
#include "inner/hf/hf_companions.h"
#include "inner/hf/hf_weights.h"
#include "inner/hf/peft_folder.h"
#include "inner/loop/lora_loop.h"
#include "isthmus/errors.h"
#include "session/run/trainer_facts.h"
#include "text/tokenizer.h"

namespace isthmus::app {

namespace {
/// Only where it is asked for: a process that is stopped for as long looks as if its ranks hung.
RankPatience patience_of_threads(const Config& config, bool json) {
  if (!config.rank_patience) return {};
  return {.wait = std::chrono::ceil<std::chrono::milliseconds>(*config.rank_patience),
          .on_hang = [json](const std::string& error) { end_hanging_process(error, json); }};
}
}  // namespace

LanguageModelOptions language_model_options(const Config& config, const TrainingPlan& plan,
                                            WorkerId rank) {
  return {
      .model = config.model,
      .inner = config.inner,
      .context = config.train.context,
      .sequences = plan.worker_samples,
      .micro_batches = plan.mesh(rank).micro_batches,
      .total_steps = plan.total_steps,
      .threads = plan.threads_per_worker,
      .cores = cores_of(plan, rank),
      .bf16 = config.train.precision == "bf16",
      .attention = plan.device.attention.value_or(parse_device_attention(config.train.attention)),
      .forward_only = forward_only(config),
      .recompute = config.train.recompute,
      .seed = config.run.seed,
      .mesh = plan.mesh(rank).shape,
      .schedule = plan.mesh(rank).shape.pp > 1 ? parse_pipeline_kind(config.pipeline_schedule)
                                               : PipelineKind::k1F1B,
      .virtual_stages = plan.mesh(rank).shape.pp > 1 ? config.virtual_stages : 1,
      .rank_codecs = config.rank_codecs,
      .processes = plan.processes,
      .zero = config.zero,
      .whole_gradients = takes_gradients(config),
      .patience = patience_of_threads(config, plan.json)};
}

std::vector<Parameter> parameters_without_values(const ModelLayout& layout) {
  return layout_parameters(layout);
}

Digest128 layout_digest(const ModelLayout& layout) {
  return digest_of_layout(parameters_without_values(layout));
}

double surrogate_byte_scale(const Config& config, const ModelLayout& layout) {
  return surrogate_byte_scale(config, layout.elements());
}

namespace {
/// THROWS: ConfigError where the tokenizer of the data and that of the model give an id different
/// tokens.
void check_same_tokenizer(const Storage& storage, const Config& config, const std::string& text,
                          const std::filesystem::path& model) {
  const std::optional<TokenizedSource> source = tokenized_source(text);
  if (!source || storage.kind(model / "tokenizer.json") == FileKind::kAbsent) return;
  const Tokenizer of_data = Tokenizer::open(storage, config.locate(source->tokenizer));
  const Tokenizer of_model = Tokenizer::open(storage, model);
  for (std::uint32_t id = 0; id < of_data.vocabulary(); ++id) {
    const std::optional<std::string> ours = of_data.token_of(id), theirs = of_model.token_of(id);
    if (ours == theirs) continue;
    throw ConfigError(fmt::format(
        "data.source = \"{}\": its tokenizer does not belong to model.init = \"{}\": id {} is "
        "\"{}\" here and \"{}\" there; name the model's tokenizer: :tokenizer={}",
        text, config.model.init.string(), id, ours.value_or("nothing"), theirs.value_or("nothing"),
        model.string()));
  }
}
}  // namespace

void check_tokenizer(const Storage& storage, const Config& config, const Dataset& data) {
  if (config.model.init.empty() || config.train.objective == "sft") return;
  const std::filesystem::path folder = config.locate(config.model.init);
  const auto bytes = std::ranges::find_if(data.sources(), [](const Dataset::Source& source) {
    return source.text.starts_with("text:") && !tokenized_source(source.text);
  });
  for (const Dataset::Source& source : data.sources()) {
    if (source.text.starts_with("text:")) {
      check_same_tokenizer(storage, config, source.text, folder);
    }
  }
  if (bytes == data.sources().end()) return;
  const std::optional<std::string> own = own_tokenizer(storage, folder);
  if (!own) return;
  throw ConfigError(fmt::format(
      "data.source = \"{0}\": feeds bytes as ids 0 to 255, and model.init = \"{1}\" has a "
      "tokenizer of its own ({2}), in which these ids are other pieces of text; name it, "
      "data.source = \"{0}:tokenizer={1}\", or make token files once, isthmus data tokenize FILES "
      "--tokenizer {1} --out DIR (tokens:FILE:u8 feeds the bytes of a file all the same)",
      bytes->text, config.model.init.string(), *own));
}

namespace {

/// Of the model that adapters stand beside.
std::vector<Parameter> base_parameters(const Config& config) {
  return parameters_without_values(
      ModelLayout(without_lora(model_shape(config.model, config.train.context))));
}

/// [lora] of the adapter's folder, which the file must say too. THROWS: ConfigError.
void check_adapter_config(const Storage& storage, const Config& config) {
  const std::filesystem::path folder = config.locate(config.model.lora.init);
  const PeftAdapter adapter = read_adapter_config(storage, folder);
  const LoraConfig& own = config.model.lora;
  const auto refuse = [&](const char* key, const std::string& ours, const std::string& theirs) {
    throw ConfigError(
        fmt::format("lora.{} = {}: the adapter in lora.init = \"{}\" has {}; set it so", key, ours,
                    own.init.string(), theirs));
  };
  if (own.rank != adapter.lora.rank) {
    refuse("r", fmt::format("{}", own.rank), fmt::format("{}", adapter.lora.rank));
  }
  if (own.alpha != adapter.lora.alpha) {
    refuse("alpha", fmt::format("{}", own.alpha), fmt::format("{}", adapter.lora.alpha));
  }
  ModelConfig theirs = config.model;
  theirs.lora.targets = adapter.lora.targets;
  const auto targets = [&](const ModelConfig& model) {
    return model_shape(model, config.train.context).lora.targets;
  };
  if (targets(config.model) != targets(theirs)) {
    refuse("targets", fmt::format("[{}]", fmt::join(own.targets, ", ")),
           fmt::format("[{}]", fmt::join(adapter.lora.targets, ", ")));
  }
}

/// Checks the frozen weights below adapters, and digests them.
InitialWeights read_base(const Storage& storage, const std::filesystem::path& folder,
                         const ModelShape& base) {
  const std::vector<Parameter> parameters = parameters_without_values(ModelLayout(base));
  Xxh3Stream digest;
  InitialWeights found;
  found.not_read = read_hf_weights(
      storage, folder, parameters,
      [&](std::size_t, std::span<const float> values) { digest.update(std::as_bytes(values)); });
  found.base_digest = digest.digest().hex();
  return found;
}

/// THROWS: ConfigError where lora.init says that it was trained beside other weights than these.
void check_adapter_base(const Storage& storage, const Config& config, const std::string& base) {
  const std::string theirs = adapter_base_digest(storage, config.locate(config.model.lora.init));
  if (theirs.empty() || theirs == base) return;
  throw ConfigError(fmt::format(
      "lora.init = \"{}\": the adapter was trained beside a model whose weights have the digest "
      "{}, "
      "and those of model.init = \"{}\" have {}: name the adapter's own base in model.init, or "
      "leave lora.init out",
      config.model.lora.init.string(), theirs, config.model.init.string(), base));
}

}  // namespace

InitialWeights check_initial_weights(const Storage& storage, const Config& config) {
  if (config.model.init.empty()) return {};
  const std::filesystem::path folder = config.locate(config.model.init);
  if (config.model.lora.rank == 0) {
    return {.not_read = check_hf_weights(storage, folder, base_parameters(config))};
  }
  const bool goes_on = !config.model.lora.init.empty();
  if (goes_on) check_adapter_config(storage, config);
  InitialWeights found =
      read_base(storage, folder, without_lora(model_shape(config.model, config.train.context)));
  if (goes_on) {
    const ModelLayout adapters(model_shape(config.model, config.train.context));
    check_hf_weights(storage, config.locate(config.model.lora.init) / kAdapterWeights,
                     parameters_without_values(adapters));
    check_adapter_base(storage, config, found.base_digest);
  }
  return found;
}

std::string base_digest(const Storage& storage, const std::filesystem::path& folder,
                        const ModelShape& base) {
  return read_base(storage, folder, base).base_digest;
}

void load_initial_weights(const Storage& storage, const Config& config, InnerLoop& inner) {
  if (config.model.init.empty()) return;
  const std::filesystem::path folder = config.locate(config.model.init);
  if (auto* const adapted = dynamic_cast<LoraLoop*>(&inner)) {
    read_hf_weights(
        storage, folder, adapted->base(),
        [&](std::size_t tensor, std::span<const float> values) {
          adapted->store_base(tensor, values);
        },
        HfCheck::kNamesAlone);
    if (config.model.lora.init.empty()) {
      adapted->restart();
    } else {
      load_adapter(storage, config.locate(config.model.lora.init), inner.parameters());
    }
    return;
  }
  load_hf_weights(storage, folder, inner.parameters());
  inner.wrote_values(all_elements(inner));
}

}  // namespace isthmus::app
