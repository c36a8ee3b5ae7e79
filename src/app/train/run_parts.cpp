// SPDX-License-Identifier: Apache-2.0
#include "app/train/run_parts.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "app/train/rank_hang.h"
#include "core/base/all_elements.h"
#include "core/base/units.h"
#include "data/tokenized_text.h"
#include "inner/hf/hf_companions.h"
#include "inner/hf/hf_weights.h"
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
  std::vector<Parameter> parameters;
  for (const TensorInfo& tensor : layout.tensors()) {
    parameters.push_back({.name = tensor.name,
                          .layer = tensor.layer,
                          .shape = tensor.shape,
                          .elements = tensor.elements,
                          .decay = tensor.decay()});
  }
  return parameters;
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
void check_same_tokenizer(const Storage& storage, const Config& config,
                          const std::filesystem::path& model) {
  const std::optional<TokenizedSource> source = tokenized_source(config.data.source);
  if (!source || storage.kind(model / "tokenizer.json") == FileKind::kAbsent) return;
  const Tokenizer of_data = Tokenizer::open(storage, config.locate(source->tokenizer));
  const Tokenizer of_model = Tokenizer::open(storage, model);
  for (std::uint32_t id = 0; id < of_data.vocabulary(); ++id) {
    const std::optional<std::string> ours = of_data.token_of(id), theirs = of_model.token_of(id);
    if (ours == theirs) continue;
    throw ConfigError(fmt::format(
        "data.source = \"{}\": its tokenizer does not belong to model.init = \"{}\": id {} is "
        "\"{}\" here and \"{}\" there; name the model's tokenizer: :tokenizer={}",
        config.data.source, config.model.init.string(), id, ours.value_or("nothing"),
        theirs.value_or("nothing"), model.string()));
  }
}
}  // namespace

void check_tokenizer(const Storage& storage, const Config& config, const Dataset& data) {
  if (config.model.init.empty()) return;
  const std::filesystem::path folder = config.locate(config.model.init);
  if (is_tokenized(data.format())) check_same_tokenizer(storage, config, folder);
  if (data.format() != "text") return;
  const std::optional<std::string> own = own_tokenizer(storage, folder);
  if (!own) return;
  throw ConfigError(fmt::format(
      "data.source = \"{0}\": feeds bytes as ids 0 to 255, and model.init = \"{1}\" has a "
      "tokenizer of its own ({2}), in which these ids are other pieces of text; name it, "
      "data.source = \"{0}:tokenizer={1}\", or make token files once, isthmus data tokenize FILES "
      "--tokenizer {1} --out DIR (tokens:FILE:u8 feeds the bytes of a file all the same)",
      config.data.source, config.model.init.string(), *own));
}

void load_initial_weights(const Storage& storage, const Config& config, InnerLoop& inner) {
  if (!config.model.init.empty()) {
    load_hf_weights(storage, config.locate(config.model.init), inner.parameters());
    inner.wrote_values(all_elements(inner));
  }
}

}  // namespace isthmus::app
