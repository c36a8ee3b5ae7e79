// SPDX-License-Identifier: Apache-2.0
#include "app/train/config_to_options.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <optional>

#include "app/train/rank_hang.h"
#include "app/train/run_prediction.h"
#include "core/base/all_elements.h"
#include "core/base/followed_links.h"
#include "core/base/hash.h"
#include "core/base/units.h"
#include "data/batch_source.h"
#include "data/documents.h"
#include "data/tokenized_text.h"
#include "inner/hf/hf_companions.h"
#include "inner/hf/hf_weights.h"
#include "inner/hf/peft_folder.h"
#include "inner/loop/lora_loop.h"
#include "isthmus/errors.h"
#include "session/run/trainer_facts.h"
#include "text/byte_level_files.h"
#include "text/end_of_text.h"
#include "text/tokenizer.h"
#include "transport/exchange/reduction.h"

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

void check_data_and_exchange(const Config& config, const TrainingPlan& plan,
                             const ModelLayout& layout, const Dataset& data) {
  data.check_vocabulary(vocabulary_of(config));
  for (int m = 0; m < plan.workers; ++m) {
    const BatchSource source(data, batch_plan(config), m);
  }
  if (const std::int64_t tokens = eval_tokens(config, data); tokens >= 0) {
    const ValidationSource windows(data, validation_plan(config, tokens));
  }
  if (config.net.reduction != "groups") return;
  const std::vector<Parameter> parameters = parameters_without_values(layout);
  const PredictionInput exchange =
      prediction_input(config.method, config.outer, parameters, plan.workers, plan.total_steps);
  if (resolve_reduction(exchange.exchange, *exchange.codec, plan.workers) ==
      ReductionKind::kReduce) {
    return;
  }
  throw ConfigError(fmt::format(
      "net.reduction = \"groups\": with outer.codec = {} and {} workers all would be sent to all, "
      "where groups have nothing to sum; remove it, or set outer.exchange = \"reduce\"",
      exchange.codec->name(), plan.workers));
}

namespace {

/// What gives the ids of a source their meaning.
struct SourceReading {
  bool bytes = false;               // ids 0 to 255 are bytes
  std::filesystem::path tokenizer;  // or tokens of this one; empty: not known
  bool known() const { return bytes || !tokenizer.empty(); }
};

/// Token files beside a record of `isthmus data tokenize` are ids of the tokenizer there.
SourceReading reading_of(const Storage& storage, const Config& config, const Dataset& data,
                         const Dataset::Source& source) {
  if (const auto tokenized = tokenized_source(source.text)) {
    return {.tokenizer = config.locate(tokenized->tokenizer)};
  }
  if (source.text.starts_with("text:")) return {.bytes = true};
  for (const Dataset::Segment& segment : data.segments()) {
    const bool of_source =
        segment.begin >= source.begin && segment.begin < source.begin + source.tokens;
    if (!of_source || segment.file.path.empty()) continue;
    const auto tokenizer = tokenizer_beside(storage, segment.file.path);
    return {.tokenizer = tokenizer.value_or(std::filesystem::path())};
  }
  return {};
}

/// Of two files or their folders.
bool same_file(const Storage& storage, const std::filesystem::path& ours,
               const std::filesystem::path& theirs) {
  const auto file = [&](const std::filesystem::path& path) {
    return storage.map(tokenizer_file(storage, path));
  };
  return std::ranges::equal(file(ours).bytes(), file(theirs).bytes());
}

/// As unlike_token, of two files or their folders; equal files are not read as tokenizers.
std::string unlike_token(const Storage& storage, const std::filesystem::path& ours,
                         const std::filesystem::path& theirs, std::int64_t vocab) {
  if (same_file(storage, ours, theirs)) return {};
  return unlike_token(Tokenizer::open(storage, ours), Tokenizer::open(storage, theirs), vocab);
}

std::string key_of(const Dataset::Source& source) {
  return source.name.empty() ? "data.source" : "data.sources." + source.name;
}

/// Bytes are no tokens of a model with a tokenizer. THROWS: ConfigError where it has one.
void check_bytes_of_model(const Storage& storage, const Config& config,
                          const Dataset::Source& source) {
  const std::optional<std::string> own = own_tokenizer(storage, config.locate(config.model.init));
  if (!own) return;
  throw ConfigError(fmt::format(
      "{2} = \"{0}\": feeds bytes as ids 0 to 255, and model.init = \"{1}\" has a tokenizer of "
      "its own ({3}), in which these ids are other pieces of text; name it, {2} = "
      "\"{0}:tokenizer={1}\", or make token files once, isthmus data tokenize FILES --tokenizer "
      "{1} --out DIR (tokens:FILE:u8 feeds the bytes of a file all the same)",
      source.text, config.model.init.string(), key_of(source), *own));
}

/// How the tokenizer of a source fits that of model.init. Both are read once, and not at all where
/// their files are equal.
struct ComparedTokens {
  std::string unlike = {};   // as unlike_token
  std::string further = {};  // what to say of a token that the model's lacks
};
ComparedTokens compare_tokens(const Storage& storage, const Config& config,
                              const Dataset::Source& source, const SourceReading& reading) {
  const std::filesystem::path model = config.locate(config.model.init);
  if (same_file(storage, reading.tokenizer, model)) return {};
  const Tokenizer ours = Tokenizer::open(storage, reading.tokenizer);
  const Tokenizer theirs = Tokenizer::open(storage, model);
  ComparedTokens compared{.unlike = unlike_token(ours, theirs, config.model.vocab)};
  const auto further = further_token(ours, theirs, config.model.vocab);
  if (!further) return compared;
  compared.further = fmt::format(
      "{} = \"{}\": its tokenizer has tokens that the one of model.init = \"{}\" lacks, id {} "
      "(\"{}\") first: the model learns them, and its checkpoints keep the tokenizer of "
      "model.init, which does not; put {} into the exported model",
      key_of(source), source.text, config.model.init.string(), *further,
      ours.token_of(*further).value_or(""), tokenizer_file(storage, reading.tokenizer).string());
  return compared;
}

/// THROWS: ConfigError where an id of the tokenizer of `source` is another token in the model's.
/// RETURNS: ComparedTokens::further.
std::string check_ids_of_model(const Storage& storage, const Config& config,
                               const Dataset::Source& source, const SourceReading& reading,
                               bool goes_on) {
  if (reading.bytes) {
    if (!goes_on) check_bytes_of_model(storage, config, source);
    return {};
  }
  const std::filesystem::path model = config.locate(config.model.init);
  if (followed_kind(storage, model / "tokenizer.json") == FileKind::kAbsent) return {};
  ComparedTokens compared = compare_tokens(storage, config, source, reading);
  if (goes_on || compared.unlike.empty()) return std::move(compared.further);
  const std::string remedy =
      source.text.starts_with("text:")
          ? fmt::format("name the model's tokenizer: :tokenizer={}", model.string())
          : fmt::format(
                "make the ids with the model's, isthmus data tokenize FILES --tokenizer {} "
                "--out DIR (a token file without the tokenizer.json of its folder is fed "
                "as it is)",
                model.string());
  throw ConfigError(fmt::format(
      "{} = \"{}\": its tokenizer does not belong to model.init = "
      "\"{}\": {}; {}",
      key_of(source), source.text, config.model.init.string(), compared.unlike, remedy));
}

/// THROWS: ConfigError where ids of two sources mean unlike texts.
void check_same_ids(const Storage& storage, std::int64_t vocab, const Dataset::Source& one,
                    const SourceReading& first, const Dataset::Source& other,
                    const SourceReading& second) {
  std::string why;
  if (first.bytes != second.bytes) {
    const std::filesystem::path& tokenizer = first.bytes ? second.tokenizer : first.tokenizer;
    if (is_byte_tokenizer(read_text(storage, tokenizer_file(storage, tokenizer)))) return;
    why = fmt::format("the ids of one are bytes, those of the other tokens of {}",
                      tokenizer.string());
  } else if (!first.bytes && first.tokenizer != second.tokenizer) {
    why = unlike_token(storage, first.tokenizer, second.tokenizer, vocab);
  }
  if (why.empty()) return;
  throw ConfigError(fmt::format(
      "{} = \"{}\" and {} = \"{}\": {}, and one model learns both; give them one tokenizer: "
      "text:FILE:tokenizer=DIR, or isthmus data tokenize",
      key_of(one), one.text, key_of(other), other.text, why));
}

}  // namespace

std::string check_tokenizer(const Storage& storage, const Config& config, const Dataset& data,
                            bool goes_on) {
  if (config.train.objective == "sft") return {};
  std::string note;
  const Dataset::Source* first = nullptr;
  SourceReading of_first;
  for (const Dataset::Source& source : data.sources()) {
    const SourceReading reading = reading_of(storage, config, data, source);
    if (!reading.known()) continue;
    if (!config.model.init.empty()) {
      const std::string further = check_ids_of_model(storage, config, source, reading, goes_on);
      if (note.empty()) note = further;
    }
    if (first != nullptr && !goes_on) {
      check_same_ids(storage, config.model.vocab, *first, of_first, source, reading);
    } else if (first == nullptr) {
      first = &source;
      of_first = reading;
    }
  }
  return note;
}

std::optional<std::filesystem::path> tokenizer_of_data(const Storage& storage, const Config& config,
                                                       const Dataset& data) {
  if (config.train.objective == "sft") return {};
  std::optional<std::filesystem::path> tokenizer;
  for (const Dataset::Source& source : data.sources()) {
    const SourceReading reading = reading_of(storage, config, data, source);
    if (reading.tokenizer.empty()) return {};
    if (!tokenizer) tokenizer = reading.tokenizer;
  }
  return tokenizer;
}

namespace {

/// The parameters of the model under the adapters.
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
  std::vector<std::string> ours, all;  // products, as the adapter's folder names them
  const ModelShape shape = model_shape(config.model, config.train.context);
  for (const LoraProduct& product : lora_products(shape)) {
    all.emplace_back(product.module());
    if (shape.lora.targets[static_cast<std::size_t>(product.target)]) ours.push_back(all.back());
  }
  std::vector<std::string> theirs = adapter.lora.targets;
  if (theirs == std::vector<std::string>{"all-linear"}) theirs = all;
  for (std::vector<std::string>* each : {&ours, &all, &theirs}) std::ranges::sort(*each);
  if (theirs != ours) {
    refuse("targets", fmt::format("[{}]", fmt::join(own.targets, ", ")),
           theirs == all ? "all-linear" : fmt::format("[{}]", fmt::join(theirs, ", ")));
  }
}

/// Checks the frozen weights below adapters, and digests them.
InitialWeights read_base(const Storage& storage, const std::filesystem::path& folder,
                         const ModelShape& base) {
  const std::vector<Parameter> parameters = parameters_without_values(ModelLayout(base));
  Xxh3Stream digest;
  InitialWeights found;
  found.not_read = read_hf_weights(storage, folder, parameters,
                                   [&](std::size_t, std::int64_t, std::span<const float> values) {
                                     digest.update(std::as_bytes(values));
                                   });
  found.base_digest = digest.digest().hex();
  return found;
}

/// THROWS: ConfigError where lora.init says that it was trained beside other weights than these.
void check_adapter_base(const Storage& storage, const Config& config, const std::string& base) {
  const std::string theirs = adapter_base_digest(storage, config.locate(config.model.lora.init));
  if (theirs.empty() || theirs == base) return;
  throw ConfigError(fmt::format(
      "lora.init = \"{}\": the adapter was trained beside a model whose weights have the digest "
      "{}, and those of model.init = \"{}\" have {}: name the adapter's own base in model.init, in "
      "the precision that it had, or leave lora.init out; an adapter for the same base in another "
      "precision has no digest once PEFT has saved it again",
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
    check_adapter(storage, config.locate(config.model.lora.init),
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
        [&](std::size_t tensor, std::int64_t first, std::span<const float> values) {
          adapted->store_base(tensor, first, values);
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
