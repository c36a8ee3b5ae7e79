// SPDX-License-Identifier: Apache-2.0
// The table of keys. Add a key here and it is read, checked, explained, inspected and written.
#include <algorithm>
#include <array>
#include <cmath>

#include "config/schema/config_schema.h"
#include "config/schema/recompute.h"
#include "config/schema/send_cap.h"

namespace isthmus::config {
namespace {

bool is_llama(const Config& config) { return config.model.arch == "llama"; }
bool learns_replies(const Config& config) { return config.train.objective == "sft"; }
bool packs_documents(const Config& config) {
  return config.data.pack == "documents" && !learns_replies(config);
}
bool is_muon(const Config& config) { return config.inner.optimizer == "muon"; }
bool shares_layers(const Config& config) {
  return std::ranges::any_of(config.sites, [](const SiteConfig& site) { return site.tp > 1; });
}
bool has_stages(const Config& config) {
  return std::ranges::any_of(config.sites, [](const SiteConfig& site) { return site.pp > 1; });
}
bool shares_samples(const Config& config) {
  return std::ranges::any_of(config.sites, [](const SiteConfig& site) { return site.dp > 1; });
}
bool has_mesh(const Config& config) {
  return shares_layers(config) || has_stages(config) || shares_samples(config);
}
bool gives_changes(const Config& config) {
  const auto can = [](const SiteConfig& site) { return site.dp > 1 && site.tp == 1; };
  return std::ranges::any_of(config.sites, can) && (config.zero == 1 || config.zero == 2);
}
bool has_adamw(const Config& config) {
  if (config.method == "spsa") {
    return false;
  }
  return config.inner.optimizer == "adamw" || is_muon(config);
}
bool has_momentum(const Config& config) {
  if (config.method == "spsa") {
    return false;
  }
  return config.inner.optimizer == "sgd" || is_muon(config);
}
/// Method spsa takes inner.lr and its schedule; its steps are its own, which is plain SGD.
bool has_inner_optimizer(const Config& config) {
  return config.method != "spsa" || config.inner.optimizer == "sgd";
}
bool has_gradients(const Config& config) { return config.method != "spsa"; }
bool has_floor(const Config& config) {
  const std::string& schedule = config.inner.schedule;
  return schedule == "linear" || schedule == "cosine" || schedule == "wsd" ||
         schedule == "infinite";
}
bool has_decay(const Config& config) {
  return config.inner.schedule == "wsd" || config.inner.schedule == "infinite";
}

bool decays_lr(const Config& config) { return config.outer.lr_ramp.decay > 0; }
bool decays_momentum(const Config& config) { return config.outer.momentum_ramp.decay > 0; }
bool has_constant_penalty(const Config& config) {
  return config.outer.staleness_penalty == StalenessPenalty::kConstant;
}

constexpr Field<Config> kBetas = {
    [](Config& config, const Value& value) {
      const auto& pair = std::get<std::vector<double>>(value);
      config.inner.beta1 = pair[0];
      config.inner.beta2 = pair[1];
    },
    [](const Config& config) {
      return Value(std::vector<double>{config.inner.beta1, config.inner.beta2});
    }};

constexpr std::array<std::string_view, 3> kPatterns = {"strided", "sequential", "balanced"};
constexpr std::array<std::string_view, 3> kExchanges = {"auto", "reduce", "gather"};
constexpr std::array<std::string_view, 3> kCarries = {"carry", "stay", "rollback"};
constexpr std::array<std::string_view, 2> kLates = {"wait", "slip"};
constexpr std::array<std::string_view, 3> kPenalties = {"false", "constant", "gap-aware"};
constexpr std::array<std::string_view, 3> kFinalSyncs = {"none", "drain", "full"};

/// An enumeration whose enumerators stand in the order of `names`.
template <auto Member, const auto& names>
constexpr Field<Config> outer_enum() {
  return {[](Config& config, const Value& value) {
            const auto& text = std::get<std::string>(value);
            for (std::size_t i = 0; i < names.size(); ++i) {
              if (names[i] == text) {
                config.outer.*Member =
                    static_cast<std::remove_cvref_t<decltype(config.outer.*Member)>>(i);
              }
            }
          },
          [](const Config& config) {
            return Value(std::string(names[static_cast<std::size_t>(config.outer.*Member)]));
          }};
}

constexpr Field<Config> kEmbeddings = {
    [](Config& config, const Value& value) {
      config.outer.embeddings_own = std::get<std::string>(value) == "own";
    },
    [](const Config& config) {
      return Value(std::string(config.outer.embeddings_own ? "own" : "shared"));
    }};

constexpr Field<Config> kOffsetsField = {
    [](Config& config, const Value& value) {
      if (const auto* list = std::get_if<std::vector<std::int64_t>>(&value)) {
        config.outer.offsets = *list;
      } else if (std::get<std::string>(value) == "zero") {
        config.outer.offsets = OffsetsZero{};
      } else {
        config.outer.offsets = OffsetsSpread{};
      }
    },
    [](const Config& config) -> Value {
      if (const auto* list = std::get_if<std::vector<std::int64_t>>(&config.outer.offsets)) {
        return *list;
      }
      const bool zero = std::holds_alternative<OffsetsZero>(config.outer.offsets);
      return std::string(zero ? "zero" : "spread");
    }};

bool has_lora(const Config& config) { return config.model.lora.rank > 0; }

template <auto Member>
constexpr Field<Config> lora_field() {
  return {[](Config& config, const Value& value) { from_value(config.model.lora.*Member, value); },
          [](const Config& config) { return to_value(config.model.lora.*Member); }};
}
template <auto Ramp, auto Member>
constexpr Field<Config> ramp_field() {
  return {[](Config& config, const Value& value) { from_value(config.outer.*Ramp.*Member, value); },
          [](const Config& config) { return to_value(config.outer.*Ramp.*Member); }};
}
template <auto Member>
constexpr Field<Config> spsa_field() {
  return {[](Config& config, const Value& value) { from_value(config.outer.spsa.*Member, value); },
          [](const Config& config) { return to_value(config.outer.spsa.*Member); }};
}
template <auto Member>
constexpr Field<Config> one_bit_field() {
  return {[](Config& config, const Value& value) {
            from_value(config.outer.one_bit_adam.*Member, value);
          },
          [](const Config& config) { return to_value(config.outer.one_bit_adam.*Member); }};
}
template <auto Member>
constexpr Field<Config> zero_one_field() {
  return {[](Config& config, const Value& value) {
            from_value(config.outer.zero_one_adam.*Member, value);
          },
          [](const Config& config) { return to_value(config.outer.zero_one_adam.*Member); }};
}
constexpr Field<Config> kDivisor = {
    [](Config& config, const Value& value) {
      config.outer.spsa.divide_by_sqrt = std::get<std::string>(value) == "sqrt";
    },
    [](const Config& config) {
      return Value(std::string(config.outer.spsa.divide_by_sqrt ? "sqrt" : "mean"));
    }};
/// A number that is no power of two becomes a power that the checks refuse.
constexpr Field<Config> kCodeScale = {
    [](Config& config, const Value& value) {
      constexpr int kNone = 1000;
      int exponent = 0;
      const bool power = std::frexp(std::get<double>(value), &exponent) == 0.5;
      config.outer.spsa.scale_log2 = power ? exponent - 1 : kNone;
    },
    [](const Config& config) { return Value(std::ldexp(1.0, config.outer.spsa.scale_log2)); }};

constexpr Field<Config> kSurrogateParams = {
    [](Config& config, const Value& value) {
      config.surrogate = config.surrogate.value_or(SurrogateConfig{});
      config.surrogate->params = std::get<double>(value);
    },
    [](const Config& config) {
      return config.surrogate ? Value(config.surrogate->params) : Value{};
    }};
constexpr Field<Config> kSurrogateStep = {
    [](Config& config, const Value& value) {
      config.surrogate = config.surrogate.value_or(SurrogateConfig{});
      config.surrogate->step_time = std::get<Duration>(value);
    },
    [](const Config& config) {
      return config.surrogate ? Value(config.surrogate->step_time) : Value{};
    }};

constexpr Field<Config> kRecompute = {
    [](Config& config, const Value& value) {
      config.train.recompute = *parse_recompute(std::get<std::string>(value));
    },
    [](const Config& config) {
      return Value(std::string(recompute_name(config.train.recompute)));
    }};

constexpr Field<Config> kQuiet = {
    [](Config& config, const Value& value) { from_value(config.net.quiet, value); },
    [](const Config& config) {
      return config.net.quiet.empty() ? Value{} : Value(config.net.quiet);
    }};

constexpr Field<Config> kEvalTokens = {
    [](Config& config, const Value& value) {
      config.eval.all = std::holds_alternative<std::string>(value);
      if (!config.eval.all) {
        config.eval.tokens = std::get<std::int64_t>(value);
      }
    },
    [](const Config& config) {
      return config.eval.all ? Value(std::string("all")) : Value(config.eval.tokens);
    }};
constexpr Field<Config> kCheckpointEvery = {
    [](Config& config, const Value& value) {
      if (const auto* time = std::get_if<Duration>(&value)) {
        config.ckpt.every = *time;
        config.ckpt.every_steps = 0;
      } else {
        config.ckpt.every = Duration{0};
        config.ckpt.every_steps = std::get<StepCount>(value).steps;
      }
    },
    [](const Config& config) {
      return config.ckpt.every_steps > 0 ? Value(StepCount{config.ckpt.every_steps, {}})
                                         : Value(config.ckpt.every);
    }};
constexpr Field<Config> kSchema = {[](Config&, const Value&) {},
                                   [](const Config&) { return Value(std::int64_t{1}); }};
constexpr Field<Config> kPatience = {
    [](Config& config, const Value& value) { config.outer.patience = std::get<Duration>(value); },
    [](const Config& config) { return Value(config.outer.patience); }};

void set_deadline(Config& config, const Value& value) {
  const auto* word = std::get_if<std::string>(&value);
  config.net.deadline.reset();
  if (word == nullptr) config.net.deadline = std::get<Duration>(value);
  if (word != nullptr && *word == "auto") config.net.deadline = Duration{0};
}
Value deadline_of(const Config& config) {
  if (!config.net.deadline) return Value(std::string("wait"));
  if (config.net.deadline == Duration{0}) return Value(std::string("auto"));
  return Value(*config.net.deadline);
}
constexpr Field<Config> kDeadline = {set_deadline, deadline_of};

constexpr Field<Config> kQuorum = {
    [](Config& config, const Value& value) {
      config.outer.merge.quorum = static_cast<int>(std::get<std::int64_t>(value));
    },
    [](const Config& config) { return Value(std::int64_t{config.outer.merge.quorum}); }};
constexpr Field<Config> kGrace = {[](Config& config, const Value& value) {
                                    const auto* time = std::get_if<Duration>(&value);
                                    config.outer.merge.grace.reset();
                                    if (time != nullptr) config.outer.merge.grace = *time;
                                  },
                                  [](const Config& config) {
                                    return config.outer.merge.grace
                                               ? Value(*config.outer.merge.grace)
                                               : Value(std::string("auto"));
                                  }};

/// How long a rank waits, when nothing is said.
constexpr Duration kDefaultRankPatience = std::chrono::minutes(10);
constexpr Field<Config> kRankPatience = {
    [](Config& config, const Value& value) { config.rank_patience = std::get<Duration>(value); },
    [](const Config& config) {
      return Value(config.rank_patience.value_or(kDefaultRankPatience));
    }};

/// Absent where there is one source.
constexpr Field<Config> kSources = {
    [](Config& config, const Value& value) { config.data.sources = std::get<NamedTexts>(value); },
    [](const Config& config) {
      return config.data.sources.empty() ? Value() : Value(config.data.sources);
    }};
constexpr Field<Config> kMix = {
    [](Config& config, const Value& value) { config.data.mix = std::get<NamedReals>(value); },
    [](const Config& config) {
      return config.data.mix.empty() ? Value() : Value(config.data.mix);
    }};

using R = RunConfig;
using M = ModelConfig;
using D = DataConfig;
using T = TrainConfig;
using I = InnerConfig;
using O = OuterOptions;
constexpr auto kRun = &Config::run;
constexpr auto kModel = &Config::model;
constexpr auto kData = &Config::data;
constexpr auto kTrain = &Config::train;
constexpr auto kInner = &Config::inner;
constexpr auto kOuter = &Config::outer;

// clang-format off
constexpr KeyRow<Config> kRows[] = {
    {"schema", Type::kInteger, between(1, 1), "", kSchema,
     "Version of the file format.", "1", {}, nullptr, false},

    {"run.name", Type::kText, {}, "", field<kRun, &R::name>(),
     "Names the run; part of its default folder.", "\"wan\"", {}, nullptr, false},
    {"run.out", Type::kText, {}, "", field<kRun, &R::out>(),
     "Folder the run writes into, relative to the current folder. Absent: runs/<name>-<stamp>-<id>.",
     "\"runs/wan\"", {}, nullptr, false},
    {"run.workers", Type::kInteger, at_least(1, 4096), "", field<kRun, &R::workers>(),
     "Number of equal one-rank sites in this process. Not together with [[site]].", "2",
     "files without [[site]]", nullptr, false},
    {"run.seed", Type::kInteger, at_least(0, 9.2e18), "", field<kRun, &R::seed>(),
     "Seed of everything random: initial weights, data order, simulated jitter.", "7"},
    {"run.deterministic", Type::kBool, {}, "", field<kRun, &R::deterministic>(),
     "The same file gives the same bits for any number of threads. Always true; false is refused.", "true"},

    {"model.arch", Type::kChoice, {}, "gpt2|llama", field<kModel, &M::arch>(),
     "Architecture: gpt2 (learned positions, LayerNorm, GELU) or llama (RoPE, RMSNorm, SwiGLU).",
     "\"llama\""},
    {"model.preset", Type::kChoice, {}, "nano|tiny|small|small-10m|mid|gpt2-124m|llama-small|llama-mid|llama-134m|llama-1.3b",
     field<kModel, &M::preset>(),
     "Sizes by name. A size that the file gives as well wins.", "\"tiny\"", {}, nullptr, false},
    {"model.init", Type::kText, {}, "", field<kModel, &M::init>(),
     "Folder in Hugging Face layout, a checkpoint, or the name of a downloaded model (ORG/NAME in the hub's cache), to start from; architecture and sizes come from its config.json.",
     "\"models/base\"", {}, nullptr, false},
    {"model.n_layers", Type::kInteger, at_least(1, 10000), "", field<kModel, &M::layers>(),
     "Transformer layers.", "4"},
    {"model.d_model", Type::kInteger, at_least(1, 1 << 20), "", field<kModel, &M::d_model>(),
     "Width of the residual stream.", "128"},
    {"model.n_heads", Type::kInteger, at_least(1, 65536), "", field<kModel, &M::heads>(),
     "Query heads.", "4"},
    {"model.n_kv_heads", Type::kInteger, at_least(0, 65536), "", field<kModel, &M::kv_heads>(),
     "Key and value heads (grouped-query attention); 0: as many as n_heads.", "2",
     "model.arch = llama", is_llama},
    {"model.head_dim", Type::kInteger, at_least(0, 65536), "", field<kModel, &M::head_dim>(),
     "Width of one head; 0: d_model / n_heads.", "64", "model.arch = llama", is_llama},
    {"model.d_ff", Type::kInteger, at_least(0, 1 << 24), "", field<kModel, &M::d_ff>(),
     "Width of the feed-forward part; 0: 4 d_model (gpt2), 8/3 d_model rounded up to 32 (llama).",
     "512"},
    {"model.vocab", Type::kInteger, at_least(2, 1 << 24), "", field<kModel, &M::vocab>(),
     "Token ids; 256 for bytes.", "256"},
    {"model.context", Type::kInteger, at_least(0, 1 << 24), "", field<kModel, &M::context>(),
     "Positions the model has; 0: train.context.", "1024"},
    {"model.tied", Type::kBool, {}, "", field<kModel, &M::tied>(),
     "The output head is the embedding.", "true"},
    {"model.qk_norm", Type::kBool, {}, "", field<kModel, &M::qk_norm>(),
     "RMSNorm of each head's queries and keys before RoPE (exported as Qwen3).", "false",
     "model.arch = llama", is_llama},
    {"model.z_loss", Type::kReal, between(0, 1e6), "", field<kModel, &M::z_loss>(),
     "Weight of log(Z)^2 in the training loss.", "1e-4"},
    {"model.rope_theta", Type::kReal, above(0), "", field<kModel, &M::rope_theta>(),
     "Base of the rotary frequencies.", "10000", "model.arch = llama", is_llama},
    {"model.norm_eps", Type::kReal, above(0), "", field<kModel, &M::norm_eps>(),
     "Added to the variance in the norms.", "1e-5"},

    {"lora.r", Type::kInteger, at_least(0, 1024), "", lora_field<&LoraConfig::rank>(),
     "Rank of the adapters that are trained, exchanged and saved in the place of the model's weights (LoRA, arXiv:2106.09685); 0: all weights are trained.",
     "16", "model.init"},
    {"lora.alpha", Type::kReal, above(0), "", lora_field<&LoraConfig::alpha>(),
     "An adapter's output is scaled by alpha / r.", "32", "lora.r > 0", has_lora},
    {"lora.targets", Type::kChoices, {}, "all-linear|q_proj|k_proj|v_proj|o_proj|gate_proj|up_proj|down_proj|qkv_proj|gate_up_proj|query_key_value|dense|"
     "dense_h_to_4h|dense_4h_to_h",
     lora_field<&LoraConfig::targets>(), "Matrices of a layer that have an adapter, by their names in the folder of model.init; all-linear: all of the layer.",
     "[\"q_proj\", \"v_proj\"]", "lora.r > 0", has_lora},
    {"lora.dropout", Type::kReal, between(0, 1), "", lora_field<&LoraConfig::dropout>(),
     "Dropout before the adapters; 0 alone is supported.", "0", "lora.r > 0", has_lora},
    {"lora.base", Type::kChoice, {}, "fp32|bf16|nf4", lora_field<&LoraConfig::base>(),
     "Format in which the model's frozen weights are held. nf4 (QLoRA, arXiv:2305.14314) takes 4.5 bits a value in the layers' matrices.",
     "\"nf4\"", "lora.r > 0", has_lora},
    {"lora.init", Type::kText, {}, "", lora_field<&LoraConfig::init>(),
     "Folder of an adapter in PEFT's layout, from which training continues. Its rank, alpha and targets must equal those of this section.",
     "\"out/adapter\"", "lora.r > 0", has_lora, false},

    {"data.source", Type::kText, {}, "", field<kData, &D::source>(),
     "Where tokens come from: text:FILE or text:GLOB (bytes; of gzip and zstd files those inside), "
     "text:GLOB:tokenizer=DIR (small texts, tokenized at the start by DIR/tokenizer.json; larger ones: isthmus data tokenize), tokens:GLOB "
     "(llm.c, Megatron, .npy, or u16 without a header as nanoGPT's) or tokens:GLOB:WIDTH (u8, u16, u32, i32 or i64 "
     "without a header), synth:NAME (known entropy). Relative to this file's folder.",
     "\"text:input.txt\"", {}, nullptr, false},
    {"data.sources", Type::kNamedTexts, {}, "", kSources,
     "Several named sources instead of data.source. Each is written as data.source is; a section [data.sources] means the same. data.mix gives the share of each.",
     "{ web = \"tokens:web/*.bin:u32\", code = \"tokens:code/*.bin:u32\" }", {}, nullptr, false},
    {"data.mix", Type::kNamedReals, above(0), "", kMix,
     "Share of each of data.sources in the samples, in any unit. The source of a sample is a pure function of seed, step and sample number; each source is shuffled separately (docs/data.md).",
     "{ web = 0.8, code = 0.2 }"},
    {"data.pack", Type::kChoice, {}, "stream|documents", field<kData, &D::pack>(),
     "stream: a sample is a window of tokens that may cross documents. documents: the same windows, but attention, positions and loss stay inside each document; the source must mark where documents end (docs/data.md).",
     "\"documents\""},
    {"data.eos", Type::kInteger, at_least(0, 2147483647), "", field<kData, &D::eos>(),
     "The token id that ends a document, for a source that does not name it (token files of other programs; GPT-2's id is 50256).",
     "50256", "data.pack = documents, train.objective = text", packs_documents},
    {"data.over_long", Type::kChoice, {}, "cut|drop", field<kData, &D::over_long>(),
     "What becomes of a conversation of more than train.context tokens: its end is cut, or it is left out. The run says before it begins how many.",
     "\"drop\"", "train.objective = sft", learns_replies},
    {"data.skip_bad", Type::kBool, {}, "", field<kData, &D::skip_bad>(),
     "Whether lines that are no conversation, or that the chat template refuses, are counted and left out; otherwise the first one ends the run before it begins.",
     "true", "train.objective = sft", learns_replies},
    {"data.order", Type::kChoice, {}, "shuffle|sequential", field<kData, &D::order>(),
     "Order of the samples: seeded shuffle, or one window after another.", "\"sequential\""},
    {"data.partition", Type::kChoice, {}, "iid|shards", field<kData, &D::partition>(),
     "Whether all workers draw from all data or each worker has a separate part.", "\"shards\""},
    {"data.val_fraction", Type::kFraction, half_open(0, 1), "", field<kData, &D::val_fraction>(),
     "Share of the tokens, from the end, kept for evaluation.", "0.1"},

    {"train.steps", Type::kStepsNow, at_least(1, 1e12), "", field<kTrain, &T::steps>(),
     "Inner steps of the run. Exactly one of steps and tokens.", "2000"},
    {"train.tokens", Type::kTokens, at_least(1), "", field<kTrain, &T::tokens>(),
     "Tokens of the run, of all workers; rounded down to whole steps.", "\"4M\""},
    {"train.global_batch", Type::kTokensUnit, at_least(1), "", field<kTrain, &T::global_batch_tokens>(),
     "Tokens of all workers in one inner step; a multiple of context x workers x dp.", "\"16k tok\""},
    {"train.objective", Type::kChoice, {}, "text|sft", field<kTrain, &T::objective>(),
     "text: every token of the data is learnt. sft: data.source names conversations (text:FILE.jsonl with \"messages\" in each line, also .gz and .zst), which become tokens by tokenizer and chat template of model.init; replies of the assistant alone are learnt (docs/fine-tuning.md).",
     "\"sft\""},
    {"train.trainer", Type::kChoice, {}, "own|external", field<kTrain, &T::trainer>(),
     "own: the built-in trainer of language models. external: a program brings its trainer (isthmus/session.h, Python) and needs neither [data] nor train.global_batch.",
     "\"external\"", {}, nullptr, false},
    {"train.context", Type::kInteger, at_least(1, 1 << 24), "", field<kTrain, &T::context>(),
     "Length T of a sample in tokens.", "128"},
    {"train.precision", Type::kChoice, {}, "fp32|bf16", field<kTrain, &T::precision>(),
     "Arithmetic of the model; fp32 never uses TF32.", "\"fp32\""},
    {"train.recompute", Type::kBoolOrChoice, {}, "none|selective|full", kRecompute,
     "Activations that the backward pass recomputes, which saves memory and keeps the bits. selective: outputs of norms and of the activation function (elementwise work). full, or true: everything except the residual stream, one more forward pass of each layer. none, or false: nothing.",
     "\"selective\"", {}, nullptr, false},
    {"train.offload", Type::kText, {}, "", field<kTrain, &T::offload>(),
     "Folder on a local disk whose files hold the training state (weights, gradients, moments, anchors) instead of memory. The bits are the same; the disk's speed limits the step. Relative to this file's folder; unset: in memory.",
     "\"state\"", {}, nullptr, false},
    {"train.threads", Type::kInteger, at_least(0, 1024), "", field<kTrain, &T::threads>(),
     "Threads of the whole process; 0: all cores. Results do not depend on it.", "2", {}, nullptr, false},
    {"train.kernels", Type::kText, {}, "", field<kTrain, &T::kernels>(),
     "Instruction set of the inner loop: auto (the best here), portable, avx2, avx512, avx512_bf16, avx512_amx, or onednn for its matrix products where the build has it. Rounding differs between them.",
     "\"avx2\"", {}, nullptr, false},
    {"train.attention", Type::kChoice, {}, "auto|own|cudnn", field<kTrain, &T::attention>(),
     "What computes attention on CUDA devices in bf16: own kernels or NVIDIA's cuDNN. \"auto\": cuDNN if the build has it, it can be loaded and it supports the windows. Rounding differs between them.",
     "\"own\"", {}, nullptr, false},
    {"train.device", Type::kText, {}, "", field<kTrain, &T::device>(),
     "What computes the inner loop. cpu. cuda: one device for each worker or rank (parallel.dp). cuda:N: device N alone. auto: cuda if a device can be used and supports these settings, else cpu. Simulated runs compute on the cpu. Rounding differs between them.",
     "\"cuda\"", {}, nullptr, false},
    {"train.pin", Type::kBool, {}, "", field<kTrain, &T::pin>(),
     "Pin each thread to one core, worker after worker. Only for a machine that runs nothing else: two such processes would share the first cores.",
     "true", {}, nullptr, false},

    {"inner.optimizer", Type::kChoice, {}, "adamw|sgd|muon", field<kInner, &I::optimizer>(),
     "The optimizer inside a site; muon updates the layers' matrices and leaves the rest to adamw.", "\"adamw\"",
     "another outer.method than spsa, whose steps are plain sgd", has_inner_optimizer},
    {"inner.lr", Type::kReal, between(0, 1e6), "", field<kInner, &I::lr>(),
     "Learning rate at the top of the schedule.", "3e-4"},
    {"inner.betas", Type::kPairOfReals, half_open(0, 1), "", kBetas,
     "Decay of Adam's two moments.", "[0.9, 0.95]", "inner.optimizer = adamw or muon", has_adamw},
    {"inner.eps", Type::kReal, between(0, 1), "", field<kInner, &I::eps>(),
     "Added to the root of the second moment.", "1e-8", "inner.optimizer = adamw or muon", has_adamw},
    {"inner.weight_decay", Type::kReal, between(0, 1e6), "", field<kInner, &I::weight_decay>(),
     "Decay of tensors of two or more dimensions; decoupled under adamw and muon.", "0.1",
     "another outer.method than spsa, which has outer.weight_decay", has_gradients},
    {"inner.momentum", Type::kReal, half_open(0, 1), "", field<kInner, &I::momentum>(),
     "Momentum of sgd (default 0) and of muon's matrices (default 0.95).", "0.9",
     "inner.optimizer = sgd or muon", has_momentum},
    {"inner.nesterov", Type::kBool, {}, "", field<kInner, &I::nesterov>(),
     "Nesterov's form of the momentum (muon: default true); needs momentum > 0.", "true",
     "inner.optimizer = sgd or muon", has_momentum},
    {"inner.adjust_lr", Type::kChoice, {}, "original|match_rms_adamw|spectral_norm", field<kInner, &I::adjust_lr>(),
     "Factor on lr for a matrix: sqrt(max(1, out / in)); 0.2 sqrt(max(out, in)), whose steps are as large "
     "as AdamW's; or sqrt(out / in), as MuLoCo has it.",
     "\"match_rms_adamw\"", "inner.optimizer = muon", is_muon},
    {"inner.clip", Type::kReal, between(0, 1e12), "", field<kInner, &I::clip>(),
     "Gradient norm above which gradients are scaled down; 0: off.", "1.0",
     "another outer.method than spsa, which has outer.clip", has_gradients},
    {"inner.schedule", Type::kChoice, {}, "constant|linear|cosine|wsd|infinite|inverse-sqrt",
     field<kInner, &I::schedule>(), "Shape of the learning rate after the warm-up.", "\"cosine\""},
    {"inner.warmup", Type::kSteps, at_least(0, 1e12), "", field<kInner, &I::warmup>(),
     "Steps over which the rate rises linearly: lr min(1, t / warmup), t from 1. 0: full rate at once.",
     "\"5%\""},
    {"inner.floor", Type::kFraction, between(0, 1), "", field<kInner, &I::floor>(),
     "Last rate as a share of lr.", "0.1", "inner.schedule = linear, cosine, wsd or infinite", has_floor},
    {"inner.decay", Type::kSteps, at_least(1, 1e12), "", field<kInner, &I::decay>(),
     "Length of the last phase. Absent: 10% of the run.", "\"20%\"", "inner.schedule = wsd or infinite", has_decay},
    {"inner.rewarm", Type::kStepList, at_least(1, 1e12), "", field<kInner, &I::rewarm>(),
     "Steps at which warm-up and schedule start again.", "[1000]"},

    {"outer.method", Type::kText, {}, "", field<&Config::method>(),
     "How workers agree: ddp, localsgd, diloco, ... See `isthmus methods`.", "\"diloco\""},
    {"outer.H", Type::kStepsNow, at_least(1, 1e12), "", field<kOuter, &O::H>(),
     "Inner steps between two syncs of one fragment (arXiv:2311.08105 Alg. 1).", "50"},
    {"outer.lr", Type::kReal, between(0, 1e6), "", field<kOuter, &O::lr>(),
     "Outer learning rate.", "0.7"},
    {"outer.momentum", Type::kReal, half_open(0, 1), "", field<kOuter, &O::momentum>(),
     "Outer momentum.", "0.9"},
    {"outer.lr_warmup", Type::kStepsNow, at_least(0, 1e12), "", ramp_field<&O::lr_ramp, &OuterRamp::warmup>(),
     "Inner steps over which the outer learning rate rises in a line: a round sent at step t has outer.lr times min(1, t / lr_warmup).",
     "\"10%\""},
    {"outer.lr_decay", Type::kStepsNow, at_least(0, 1e12), "", ramp_field<&O::lr_ramp, &OuterRamp::decay>(),
     "Inner steps before the run's end over which the outer learning rate falls in a line, to outer.lr_floor of itself.",
     "\"20%\""},
    {"outer.lr_floor", Type::kFraction, Range{0, 1, true}, "", ramp_field<&O::lr_ramp, &OuterRamp::floor>(),
     "Outer learning rate at the run's last step as a share of outer.lr.", "0.1", "outer.lr_decay", decays_lr},
    {"outer.momentum_warmup", Type::kStepsNow, at_least(0, 1e12), "", ramp_field<&O::momentum_ramp, &OuterRamp::warmup>(),
     "Inner steps over which the outer momentum rises in a line, as outer.lr_warmup.", "\"10%\""},
    {"outer.momentum_decay", Type::kStepsNow, at_least(0, 1e12), "", ramp_field<&O::momentum_ramp, &OuterRamp::decay>(),
     "Inner steps before the run's end over which the outer momentum falls in a line, to outer.momentum_floor of itself.",
     "\"20%\""},
    {"outer.momentum_floor", Type::kFraction, between(0, 1), "", ramp_field<&O::momentum_ramp, &OuterRamp::floor>(),
     "Outer momentum at the run's last step as a share of outer.momentum.", "0.5", "outer.momentum_decay", decays_momentum},
    {"outer.nesterov", Type::kBool, {}, "", field<kOuter, &O::nesterov>(),
     "Nesterov's form, as PyTorch writes it: b = mu b + d; x -= lr (d + mu b).", "true"},
    {"outer.fragments", Type::kInteger, at_least(1, 10000), "", field<kOuter, &O::fragments>(),
     "Number P of layer fragments (arXiv:2501.18512). With P > 1 the parameters outside the layers form one more fragment.",
     "4"},
    {"outer.pattern", Type::kChoice, {}, "strided|sequential|balanced",
     outer_enum<&O::pattern, kPatterns>(),
     "Which layers make a fragment: l mod P, floor(l P / L), or by size.", "\"strided\""},
    {"outer.embeddings", Type::kChoice, {}, "shared|own", kEmbeddings,
     "With P = 1: whether the parameters outside the layers form a separate fragment.", "\"own\""},
    {"outer.offsets", Type::kOffsets, at_least(0, 1e12), "", kOffsetsField,
     "Step within H at which each fragment is sent: \"spread\" (floor(p H / F)), \"zero\", or F step counts; a percentage is of the run, as everywhere.",
     "[0, 10, 20]"},
    {"outer.overlap", Type::kStepsNow, at_least(0, 1e12), "", field<kOuter, &O::overlap>(),
     "Inner steps tau between send and apply, 0 <= tau < H (arXiv:2501.18512 Alg. 2).", "5"},
    {"outer.alpha", Type::kReal, between(0, 1), "", field<kOuter, &O::alpha>(),
     "Share of the local value kept when a result is applied (arXiv:2501.18512 Eq. 3). With 1, workers exchange every byte and keep their local values unchanged.",
     "0.5"},
    {"outer.codec", Type::kText, {}, "", field<kOuter, &O::codec>(),
     "Codec of what is exchanged, with options after colons (':ef': error feedback). `isthmus methods` lists the codecs; `isthmus explain int8` describes one.", "\"int8:256\""},
    {"outer.exchange", Type::kChoice, {}, "auto|reduce|gather",
     outer_enum<&O::exchange, kExchanges>(),
     "reduce: reduce-scatter, then all-gather: each site sums its share and sends the sum to all. gather: all sites send everything to all. auto: gather for two sites, else reduce.",
     "\"reduce\""},
    {"outer.final_sync", Type::kChoice, {}, "none|drain|full",
     outer_enum<&O::final_sync, kFinalSyncs>(),
     "How a run ends. none: rounds in flight are dropped. drain: they are applied, but steps after a fragment's last send are in no round. full, the default: drain, then one closing round for each fragment with such steps. A resumed run ends with the value under which it began.",
     "\"drain\""},
    {"outer.carry", Type::kChoice, {}, "carry|stay|rollback", outer_enum<&O::carry, kCarries>(),
     "What happens to a contribution that a round did not count: rebased and sent with the next one, left in the local values, or discarded.",
     "\"rollback\""},
    {"outer.late", Type::kChoice, {}, "wait|slip", outer_enum<&O::late, kLates>(),
     "When a result has not arrived at the step that should apply it: that step waits, or training continues and a later step applies it.",
     "\"slip\""},
    {"outer.commit", Type::kEvery, between(1, 1e6), "", field<kOuter, &O::commit_every>(),
     "Interval of commits in steps, for ddp, 1bit-adam and 01-adam, which use a round's result as soon as it is complete. At each commit, and at the end, the sites wait until all have agreed on the digests of the rounds since the last commit. No result depends on the interval. By default, if a site may be lost, every step commits. With this key, losing a site makes the others repeat the steps since the last commit (docs/internals/joining.md).",
     "\"every:16\"", {}, nullptr, false},
    {"outer.placement", Type::kChoice, {}, "host|device|ranks", field<&Config::outer_placement>(),
     "Where anchors, momentum and residual are stored, with the same bits. host: memory of one process of the site. device: the CUDA device that holds the weights. ranks: sharded over the processes that are the ranks of the site's mesh; if ranks are threads, as host. device and ranks: methods diloco, streaming-diloco, muloco, localsgd.",
     "\"device\"", {}, nullptr, false},
    {"outer.outlier", Type::kReal, between(0, 1e12), "", field<kOuter, &O::outlier>(),
     "An outer gradient is withheld if its norm exceeds this factor times the median norm of the last sixteen; 0: never. Non-finite outer gradients are always withheld.",
     "1000"},
    {"outer.momentum_every", Type::kInteger, between(1, 1e6), "", field<kOuter, &O::momentum_every>(),
     "Delayed Nesterov: the momentum is updated once in this many rounds, with their mean; 1: every round (arXiv:2401.09135 Alg. 3).",
     "4"},
    {"outer.staleness_penalty", Type::kFalseOrChoice, {}, "constant|gap-aware",
     outer_enum<&O::staleness_penalty, kPenalties>(),
     "Divisor of an outer gradient that is one round old: none, a constant, or how far the anchor has moved since.",
     "\"gap-aware\""},
    {"outer.staleness_constant", Type::kReal, at_least(1, 1e6), "",
     field<kOuter, &O::staleness_constant>(), "The constant of staleness_penalty = \"constant\".",
     "1.5", "outer.staleness_penalty = constant", has_constant_penalty},
    {"outer.momentum_clip", Type::kReal, above(0), "", field<kOuter, &O::momentum_clip>(),
     "Bound of each momentum element when it is applied; the stored momentum stays unclipped. Absent: no bound.",
     "1.0"},

    {"outer.error_decay", Type::kReal, Range{0, 1, true}, "", field<kOuter, &O::error_decay>(),
     "Decay of the error-feedback residual: the share of it that is added to the next encoding.",
     "0.95"},

    {"outer.mu_x", Type::kReal, half_open(0, 1), "", field<kOuter, &O::mu_x>(),
     "What the average of the parameters keeps of itself at a step: about as DiLoCo with momentum 0.9 and H = ln 0.9 / ln mu_x; 0 is plain training.",
     "0.9934"},
    {"outer.mu_y", Type::kReal, Range{0, 1, true}, "", field<kOuter, &O::mu_y>(),
     "Weight of that average in the point where gradients are taken; the rest is the optimizer's own sequence.",
     "0.9"},

    {"outer.quorum", Type::kInteger, between(1, 100000), "", kQuorum,
     "Workers whose offers of a fragment begin the grace window of its merge (arXiv:2604.21428). Of fewer workers that still train, fewer suffice.",
     "2"},
    {"outer.grace", Type::kTimeOrChoice, at_least(0), "auto", kGrace,
     "How long a merge waits for further workers once its quorum is there; it waits for nobody where every worker that trains has made an offer. With a time, a worker also waits that long at most for the merge of its own offer, outer.overlap steps after it; with auto, a quarter of the time since a worker's last offer, no worker ever waits.",
     "\"2s\""},

    {"outer.eps", Type::kReal, between(1e-30, 1), "", spsa_field<&SpsaOptions::eps>(),
     "Size of the perturbation: the loss is read at w + eps z and w - eps z.", "1e-3"},
    {"outer.samples", Type::kInteger, between(1, 65535), "", spsa_field<&SpsaOptions::samples>(),
     "Directions per worker and step, each measured on its equal share of the worker's sequences.", "4"},
    {"outer.divisor", Type::kChoice, {}, "mean|sqrt", kDivisor,
     "Divisor of the sum over all entries of a step: their number, or its square root as in Just One Byte.",
     "\"mean\""},
    {"outer.sign_only", Type::kBool, {}, "", spsa_field<&SpsaOptions::sign_only>(),
     "Entries say only up or down, as slopes of plus or minus code_scale.", "false"},
    {"outer.clip", Type::kReal, between(0, 1e12), "", spsa_field<&SpsaOptions::clip>(),
     "Slopes are clipped to this factor times the median slope of the last 64 steps; 0: off.", "10"},
    {"outer.weight_decay", Type::kReal, between(0, 1e6), "", spsa_field<&SpsaOptions::weight_decay>(),
     "Decoupled decay of tensors of two or more dimensions in spsa's step.", "0"},
    {"outer.code_scale", Type::kReal, above(0), "", kCodeScale,
     "Power of two S: a byte covers slopes from 0.0043 S to 234 S in steps of 9 %.", "1"},

    {"outer.freeze", Type::kStepsNow, at_least(1, 1e12), "", one_bit_field<&OneBitAdamOptions::freeze>(),
     "Last step of the warm-up. Absent: when the variance has settled, |v(t-D)| / |v(t)| >= 0.96 over D = 1 / (1 - beta2) steps.", "200"},
    {"outer.bias_correction", Type::kBool, {}, "", one_bit_field<&OneBitAdamOptions::bias_correction>(),
     "AdamW's bias correction; false is DeepSpeed's form, without it in the warm-up too.", "false"},
    {"outer.warmup_codec", Type::kText, {}, "", one_bit_field<&OneBitAdamOptions::warmup_codec>(),
     "Codec of the gradients during the warm-up.", "\"fp16\""},
    {"outer.variance_floor", Type::kReal, between(0, 1), "", one_bit_field<&OneBitAdamOptions::variance_floor>(),
     "Smallest frozen variance, as a share of its tensor's mean; 0: none.", "1e-6"},

    {"outer.var_freeze_step", Type::kStepsNow, at_least(1, 1e12), "", zero_one_field<&ZeroOneAdamOptions::var_freeze_step>(),
     "Last step at which the variance may change; local steps follow.", "\"20%\""},
    {"outer.var_update_scaler", Type::kInteger, at_least(1, 1e12), "", zero_one_field<&ZeroOneAdamOptions::var_update_scaler>(),
     "Updates of the variance after which their spacing doubles.", "16"},
    {"outer.local_step_scaler", Type::kStepsNow, at_least(1, 1e12), "", zero_one_field<&ZeroOneAdamOptions::local_step_scaler>(),
     "Steps after the freeze after which the spacing of the exchanges doubles.", "32768"},
    {"outer.local_step_clipper", Type::kInteger, at_least(1, 1e12), "", zero_one_field<&ZeroOneAdamOptions::local_step_clipper>(),
     "Largest spacing of the exchanges after the freeze, in steps.", "16"},

    {"parallel.tp", Type::kInteger, at_least(1, 4096), "", field<&Config::tp>(),
     "Tensor-parallel ranks inside a site.", "1"},
    {"parallel.pp", Type::kInteger, at_least(1, 4096), "", field<&Config::pp>(),
     "Pipeline stages inside a site.", "1"},
    {"parallel.dp", Type::kInteger, at_least(1, 4096), "", field<&Config::dp>(),
     "Data-parallel ranks inside a site.", "1"},
    {"parallel.micro_batches", Type::kInteger, at_least(1, 1e9), "", field<&Config::micro_batches>(),
     "Parts a rank's samples are split into, gradients accumulated. Absent: the largest divisor up to 2 pp.",
     "2"},
    {"parallel.schedule", Type::kChoice, {}, "gpipe|1f1b|interleaved-1f1b|zb-h1", field<&Config::pipeline_schedule>(),
     "Order of the micro-batches in a pipeline (isthmus plan pipeline draws it).", "\"1f1b\"", "pp > 1", has_stages, false},
    {"parallel.virtual_stages", Type::kInteger, between(1, 64), "", field<&Config::virtual_stages>(),
     "Parts of the model that each pipeline rank holds, for interleaved-1f1b.", "2", {}, nullptr, false},
    {"parallel.sequence_parallel", Type::kBool, {}, "", field<&Config::sequence_parallel>(),
     "Tensor-parallel ranks also split norms and the residual stream, by tokens: less memory for activations, a quarter more traffic (half with zb-h1).",
     "true", "tp > 1", shares_layers, false},

    {"parallel.zero", Type::kInteger, between(0, 3), "", field<&Config::zero>(),
     "What data-parallel ranks share out (ZeRO): 1 the optimizer's moments, 2 also gradients, 3 also weights (docs/how-to/mesh.md).", "1", "dp > 1", shares_samples, false},
    {"parallel.codecs", Type::kChoice, {}, "none|default|strong", field<&Config::rank_codec_policy>(),
     "Defaults of the codec_ keys of the mesh. none: fp32. default: int8 for averaged values (data, state), bf16 for activations (pipeline, tensor). strong: int4 for all, which raises the loss (docs/how-to/mesh.md).",
     "\"default\"", "tp, pp or dp > 1", has_mesh, false},
    {"parallel.codec_data", Type::kText, {}, "", field<&Config::rank_codecs, &CodecByDimension::data>(),
     "Codec of the gradients summed over data-parallel ranks.", "\"int8\"", "dp > 1", shares_samples},
    {"parallel.codec_state", Type::kText, {}, "", field<&Config::rank_codecs, &CodecByDimension::state>(),
     "Codec of the weight updates that each rank sends to the other data-parallel ranks (ZeRO); all ranks add the decoded values.",
     "\"int8\"", "zero = 1 or 2, dp > 1 and tp = 1", gives_changes},
    {"parallel.codec_pipeline", Type::kText, {}, "", field<&Config::rank_codecs, &CodecByDimension::pipeline>(),
     "Codec of activations and their gradients between pipeline stages.", "\"bf16\"", "pp > 1", has_stages},
    {"parallel.codec_tensor", Type::kText, {}, "", field<&Config::rank_codecs, &CodecByDimension::tensor>(),
     "Codec of a layer's partial sums over tensor-parallel ranks.", "\"bf16\"", "tp > 1", shares_layers},

    {"parallel.communicators", Type::kText, {}, "", field<&Config::rank_communicators>(),
     "Table of measured back ends, as `isthmus bench collectives --inner --out FILE` writes it under mpirun: each call between ranks that are processes uses the back end that was fastest for its kind and size. The path is relative to the file; no result depends on it. Absent: mpi for all. Ranks that are threads have one back end and need no table (docs/how-to/mesh.md). On CUDA devices the value is a name: nccl, or threads (through host memory); absent: nccl if it is installed and each rank has its device (docs/how-to/gpus.md).",
     "\"collectives.json\"", "tp, pp or dp > 1", has_mesh, false},
    {"parallel.patience", Type::kTime, above(0), "", kRankPatience,
     "Timeout of one collective call inside a pass. Then a roll call names the ranks that do not answer, and the run ends with exit code 5. Ranks that are threads have a timeout only if this key is set.",
     "\"10min\"", {}, nullptr, false},

    {"net.transport", Type::kChoice, {}, "auto|inproc|zmq|mpi", field<&Config::net, &NetConfig::transport>(),
     "How sites reach one another. auto: in memory, over MPI under mpirun, over ZeroMQ with --site. zmq without --site: over sockets within this process. Simulated links are the command `simulate`, not a key.", "\"auto\"",
     {}, nullptr, false},
    {"net.streams", Type::kIntegerOrAuto, between(1, 64), "", field<&Config::net, &NetConfig::streams>(),
     "Parallel TCP connections of each directed link. auto: 4, and up to 24 on a link that loses packets, as long as more connections raise its throughput; between sites on one machine one of the 4 carries the frames.",
     "8", {}, nullptr, false},
    {"net.dead_after", Type::kTime, above(0), "", field<&Config::net, &NetConfig::dead_after>(),
     "Timeout after which a silent site counts as lost; detected at the next heartbeat (every second), so within 10 s by default. A site whose heartbeats arrive but to which no values get through counts as lost after 1.5 times this.", "\"10s\"", {}, nullptr, false},
    {"net.gather", Type::kTime, above(0), "", field<&Config::net, &NetConfig::gather>(),
     "How long a starting site waits for the others, and how long a run with fewer than net.min_sites waits for sites to return.", "\"10min\"", {}, nullptr, false},
    {"net.reduction", Type::kChoice, {}, "direct|groups", field<&Config::net, &NetConfig::reduction>(),
     "How contributions become a mean, with outer.exchange = \"reduce\". groups: first within each site.group, whose mean is encoded again, so that one vector a group and direction crosses between groups instead of one a site (docs/how-to/unequal-links.md, Groups).",
     "\"groups\""},
    {"net.shares", Type::kChoice, {}, "auto|links", field<&Config::net, &NetConfig::shares>(),
     "Which share of a round each site reduces, with outer.exchange = \"reduce\"; no result depends on it. auto: equal shares. links: by the rates of the file's [[link]]s, so that a slow site reduces little or nothing; `isthmus bench collectives` says whether that pays (docs/how-to/unequal-links.md, Shares).",
     "\"links\"", {}, nullptr, false},
    {"net.chunk", Type::kBytes, between(1, 1 << 20), "", field<&Config::net, &NetConfig::chunk>(),
     "Most bytes of encoded values in a frame; no result depends on it. Frames are cut at tiles of 4,096 values, so at least one tile must fit. Without this key frames hold 32 to 512 KiB. Smaller frames delay other traffic less and cost 68 bytes each (docs/internals/exchange.md, Frames).",
     "\"128KiB\"", {}, nullptr, false},
    {"net.min_sites", Type::kInteger, between(1, 4096), "", field<&Config::net, &NetConfig::min_sites>(),
     "With --site: a run that has lost sites continues while at least this many are left, the first site among them. With fewer, they wait up to net.gather for others to return. Absent: 1; runs of ddp, 1bit-adam and 01-adam then end.",
     "1", {}, nullptr, false},
    {"net.max_solo_rounds", Type::kInteger, between(0, 1e6), "", field<&Config::net, &NetConfig::max_solo_rounds>(),
     "With --site: a site that is cut off trains alone for at most this many windows of outer.H steps, then waits. Once reconnected, it contributes that work. 0: it waits at once, which is the default for methods that cannot contribute such work (docs/how-to/faults.md, Cut off).",
     "1", {}, nullptr, false},
    {"net.cap", Type::kRate, at_least(kSmallestCap), "", field<&Config::net, &NetConfig::cap_bits_per_s>(),
     "Highest rate at which each site's process sends, over all its links; site.cap overrides it. Simulated links have declared rates instead.",
     "\"50Mbit/s\"", {}, nullptr, false},
    {"net.quiet", Type::kTexts, {}, "", kQuiet,
     "Hours of the day, in each site's local time, in which a site sends at most at this rate; they may cross midnight. If several limits apply, the lowest counts.",
     "[\"08:00-18:00 10Mbit/s\"]", {}, nullptr, false},
    {"net.detour", Type::kBool, {}, "", field<&Config::net, &NetConfig::detour>(),
     "Two sites that can no longer reach each other, but both reach a site with a relay, use that relay. false: one of the two is evicted.",
     "false", {}, nullptr, false},
    {"net.serve", Type::kRate, at_least(kSmallestServe), "", field<&Config::net, &NetConfig::serve_bits_per_s>(),
     "With --site: highest rate at which a site sends its state to a joining site, also while a round is open. Absent: all that the line carries between rounds, and a tenth of the time during one.",
     "\"20Mbit/s\"", {}, nullptr, false},
    {"net.heal", Type::kBytes, between(0, 1e15), "", field<&Config::net, &NetConfig::heal_bytes>(),
     "With --site: disk space for the results of rounds since the last checkpoint. With them a site whose memory was damaged is detected and healed at the next checkpoint (docs/guarantees/healing.md). 0B, or absent: none. The checkpoints' space comes on top.",
     "\"20GiB\"", {}, nullptr, false},
    {"net.start", Type::kChoice, {}, "same|first", field<&Config::net, &NetConfig::start>(),
     "Initial values of a new run. first: those of the first site, which sends them to the others before step 1; the default with train.trainer = \"external\". same: each site's own, which must be equal at all sites; the built-in trainer's are, since model and run.seed determine them.",
     "\"first\"", {}, nullptr, false},
    {"net.plaintext", Type::kBool, {}, "", field<&Config::net, &NetConfig::plaintext>(),
     "Allows links without keys to other machines, which anyone on the path can read and change.", "true",
     {}, nullptr, false},
    {"net.patience", Type::kTime, above(0), "", kPatience,
     "Timeout of a round: if it is not committed by then, the run ends. A site that has not begun the round after 7/8 of it is evicted, if the run can continue without that site.", "\"10min\"", {}, nullptr, false},
    {"net.deadline", Type::kTimeOrChoice, at_least(1e-3), "wait|auto", kDeadline,
     "With --site: limit for a slow site, counted from when two thirds of the sites have begun a round. Past it the slow site takes part without its work, contributes that work in a later round, and skips steps until it has caught up. auto: estimated from its earlier rounds, from 1 s up to a quarter of net.patience, which takes precedence. wait: all wait for the slow site (docs/how-to/unequal-links.md, Slow sites).",
     "\"20s\"", {}, nullptr, false},
    {"hub.address", Type::kText, {}, "", field<&Config::hub, &HubConfig::address>(),
     "HOST:PORT of the hub: a separate process (`isthmus hub`) or that of hub.site. The hub coordinates membership and decides which rounds are final, so that any site may die. Absent: the first site coordinates.",
     "\"hub.example.org:48199\"", {}, nullptr, false},
    {"hub.site", Type::kText, {}, "", field<&Config::hub, &HubConfig::site>(),
     "The site whose process is also the hub, at hub.address; the hub's log is beside that site's run folder. Absent: the hub is a separate process.",
     "\"paris\"", {}, nullptr, false},
    {"hub.key", Type::kText, {}, "", field<&Config::hub, &HubConfig::key>(),
     "Public key of the hub, as `isthmus keygen hub` prints it. Needed if sites have keys.",
     "\"…40 characters…\"", {}, nullptr, false},
    {"hub.relay", Type::kText, {}, "", field<&Config::hub, &HubConfig::relay>(),
     "HOST:PORT at which the hub's process relays for sites without an address, so that no site has to be reachable.",
     "\"hub.example.org:48198\"", {}, nullptr, false},

    {"surrogate.params", Type::kParameters, at_least(1, 1e15), "", kSurrogateParams,
     "Under simulate: parameters of the declared large model, whose bytes determine the clock. Reports always label such runs.",
     "\"1B\"", {}, nullptr, false},
    {"surrogate.step_time", Type::kTime, above(0), "", kSurrogateStep,
     "Under simulate: inner step time of the declared large model.", "\"0.9s\"", {}, nullptr, false},

    {"sim.step_time", Type::kTime, between(0, 1e9), "", field<&Config::sim, &SimConfig::step_time>(),
     "Under simulate: inner step time of every site. 0: from site.compute, else measured once.",
     "\"250ms\"", {}, nullptr, false},
    {"sim.link_model", Type::kChoice, {}, "goodput|ideal", field<&Config::sim, &SimConfig::link_model>(),
     "goodput: slow start after idling, loss and queueing. ideal: only rate and round trip.", "\"ideal\"",
     {}, nullptr, false},

    {"eval.every", Type::kSteps, at_least(0, 1e12), "", field<&Config::eval, &EvalConfig::every>(),
     "Steps between evaluations, at least 1 when given as a share of the run; 0: only after the last step.", "\"100 steps\"", {}, nullptr, false},
    {"eval.tokens", Type::kTokensOrAll, at_least(1), "", kEvalTokens,
     "How much of the validation part an evaluation reads, from its start; \"all\": everything.", "\"64k\"",
     {}, nullptr, false},
    {"eval.part", Type::kChoice, {}, "whole|first|second", field<&Config::eval, &EvalConfig::part>(),
     "Which windows of the validation part an evaluation uses: all, or those of its first or second half. `compare` tunes on the second and reports on the first.",
     "\"first\"", {}, nullptr, false},

    {"ckpt.every", Type::kStepsOrTime, {}, "", kCheckpointEvery,
     "Time, steps or share of the run (\"5%\", at least one step) between checkpoints; \"0s\": only at the end.", "\"10min\"", {}, nullptr, false},
    {"ckpt.keep", Type::kInteger, at_least(1, 1e6), "", field<&Config::ckpt, &CheckpointConfig::keep>(),
     "Newest checkpoints kept.", "3", {}, nullptr, false},

    {"log.sinks", Type::kChoices, {}, "jsonl|tensorboard", field<&Config::log, &LogConfig::sinks>(),
     "Where a run writes its metrics. jsonl: metrics.jsonl, which is always written. tensorboard: also event files in the run's tb/ (for finished runs: `isthmus export RUN --to tb DIR`).",
     "[\"jsonl\", \"tensorboard\"]", {}, nullptr, false},
    {"log.http", Type::kText, {}, "", field<&Config::log, &LogConfig::http>(),
     "ADDRESS:PORT of a live page about the run, with /metrics, /healthz and /status.json (docs/how-to/observing.md). Port 0: any free port. Absent: no page. On an address other than this machine's loopback the page is open to everybody, without a password.",
     "\"127.0.0.1:9090\"", {}, nullptr, false},
    {"log.stalled_after", Type::kTime, above(0), "",
     field<&Config::log, &LogConfig::stalled_after>(),
     "With log.http: /healthz answers 503 if no step, evaluation or checkpoint was completed for this long.",
     "\"5min\"", {}, nullptr, false},
};

constexpr KeyRow<SiteConfig> kSiteRows[] = {
    {"site.name", Type::kText, {}, "", field<&SiteConfig::name>(),
     "Names the site: letters, digits, '-', '_', '.'.", "\"east\""},
    {"site.tp", Type::kInteger, at_least(1, 4096), "", field<&SiteConfig::tp>(),
     "Tensor-parallel ranks of this site.", "1"},
    {"site.pp", Type::kInteger, at_least(1, 4096), "", field<&SiteConfig::pp>(),
     "Pipeline stages of this site.", "1"},
    {"site.dp", Type::kInteger, at_least(1, 4096), "", field<&SiteConfig::dp>(),
     "Data-parallel ranks of this site.", "1"},
    {"site.compute", Type::kFlops, between(0, 1e21), "", field<&SiteConfig::compute_flops>(),
     "Under simulate: speed of the site; 0: measured, or the surrogate's.", "\"40TFLOPS\""},
    {"site.jitter", Type::kFraction, half_open(0, 1), "", field<&SiteConfig::jitter>(),
     "Under simulate: step time varies uniformly by this share up and down.", "\"5%\""},
    {"site.pace", Type::kFraction, Range{0, 1, true}, "", field<&SiteConfig::pace>(),
     "Share of the run's inner steps that this site takes, evenly spread, so that a slow site reaches each sync together with the others (arXiv:2401.09135, dynamic local updates). Contributions are weighted by tokens, except under eager and sparseloco. The run's token count assumes that every site takes every step.",
     "0.5"},
    {"site.address", Type::kText, {}, "", field<&SiteConfig::address>(),
     "HOST:PORT at which the other sites reach this one; used by train --site.", "\"east.example.org:48200\"",
     {}, nullptr, false},
    {"site.relay", Type::kText, {}, "", field<&SiteConfig::relay>(),
     "HOST:PORT, besides the site's address, at which this site relays for sites that have no address because nobody can connect to them (docs/how-to/nat.md).", "\"east.example.org:48201\"",
     {}, nullptr, false},
    {"site.key", Type::kText, {}, "", field<&SiteConfig::key>(),
     "The site's public key, as `isthmus keygen` prints it. Links are then encrypted and accept only the run's sites. All sites have a key, or none has. If the [hub] has a key, a site without one needs an invitation (`isthmus hub invite`).", "\"rq:rM>}U?@Lns47E1%kR.o@n%FcmmsL/@{H8]yf7\"",
     {}, nullptr, false},
    {"site.group", Type::kText, {}, "", field<&SiteConfig::group>(),
     "Name that sites near one another share, for net.reduction = \"groups\". A site without a name forms a group alone.",
     "\"eu\"", {}, nullptr, false},
    {"site.cap", Type::kRate, at_least(kSmallestCap), "", field<&SiteConfig::cap_bits_per_s>(),
     "Highest rate at which this site's process sends, over all its links, instead of net.cap.", "\"20Mbit/s\"",
     {}, nullptr, false},
};

constexpr Field<LinkConfig> kLinkBetween = {
    [](LinkConfig& link, const Value& value) {
      const auto& pair = std::get<std::vector<std::string>>(value);
      link.a = pair[0];
      link.b = pair[1];
    },
    [](const LinkConfig& link) { return Value(std::vector<std::string>{link.a, link.b}); }};
constexpr Field<LinkConfig> kLinkRate = {
    [](LinkConfig& link, const Value& value) {
      link.bits_per_s_up = link.bits_per_s_down = std::get<double>(value);
    },
    [](const LinkConfig& link) {
      const bool one = link.trace.empty() && link.bits_per_s_up == link.bits_per_s_down;
      return one ? Value(link.bits_per_s_up) : Value{};
    }};
template <double LinkConfig::*Mine>
constexpr Field<LinkConfig> one_way() {
  return {[](LinkConfig& link, const Value& value) { link.*Mine = std::get<double>(value); },
          [](const LinkConfig& link) {
            const bool two = link.trace.empty() && link.bits_per_s_up != link.bits_per_s_down;
            return two ? Value(link.*Mine) : Value{};
          }};
}
constexpr Field<LinkConfig> kTrace = {
    [](LinkConfig& link, const Value& value) { from_value(link.trace, value); },
    [](const LinkConfig& link) { return link.trace.empty() ? Value{} : to_value(link.trace); }};

constexpr KeyRow<LinkConfig> kLinkRows[] = {
    {"link.between", Type::kPairOfTexts, {}, "", kLinkBetween,
     "The two sites that the link joins; [\"*\", \"*\"]: every pair that no other link joins.",
     "[\"east\", \"west\"]"},
    {"link.rate", Type::kRate, between(1, 1e15), "", kLinkRate,
     "Rate in both directions.", "\"100Mbit/s\""},
    {"link.rate_up", Type::kRate, between(1, 1e15), "", one_way<&LinkConfig::bits_per_s_up>(),
     "Rate from the first site to the second.", "\"50Mbit/s\""},
    {"link.rate_down", Type::kRate, between(1, 1e15), "", one_way<&LinkConfig::bits_per_s_down>(),
     "Rate from the second site to the first.", "\"500Mbit/s\""},
    {"link.trace", Type::kText, {}, "", kTrace,
     "Under simulate, instead of a rate: a CSV file, relative to this one, of rates over the run's simulated time (docs/how-to/simulate-faults.md, Rates over time). Predictions use their mean.",
     "\"links/day.csv\""},
    {"link.rtt", Type::kTime, between(0, 3600), "", field<&LinkConfig::rtt>(),
     "Round-trip time.", "\"80ms\""},
    {"link.jitter", Type::kTime, between(0, 3600), "", field<&LinkConfig::jitter>(),
     "Variation of the delay.", "\"5ms\""},
    {"link.loss", Type::kFraction, half_open(0, 1), "", field<&LinkConfig::loss>(),
     "Packet loss rate. On a TCP link loss lowers throughput; no frame is lost.", "\"0.1%\""},
    {"link.streams", Type::kInteger, between(1, 1024), "", field<&LinkConfig::streams>(),
     "Parallel TCP connections.", "8"},
    {"link.congestion", Type::kChoice, {}, "bbr|cubic", field<&LinkConfig::congestion>(),
     "Congestion control of the connections.", "\"cubic\""},
};

constexpr SectionRow kSections[] = {
    {"run", "The run itself: name, folder, workers, seed."},
    {"model", "Architecture and sizes, or where to start from."},
    {"lora", "Fine-tuning by low-rank adapters: the model's own weights stay as they are."},
    {"data", "Where tokens come from and in which order."},
    {"train", "How long, how much at a time."},
    {"inner", "The optimizer inside a site and its learning rate."},
    {"outer", "What sites exchange, when, and what they make of it."},
    {"parallel", "The mesh inside a site."},
    {"net", "Links between sites that are processes of their own."},
    {"hub", "A process that numbers memberships and holds the verdicts, in the place of the first site."},
    {"surrogate", "Under simulate: the clock and the bytes of a declared larger model."},
    {"sim", "Under simulate: what stands for machines and links that are not there."},
    {"eval", "Evaluation of the outer parameters on the validation part."},
    {"ckpt", "Checkpoints."},
    {"log", "Where a run writes what it measures."},
    {"site", "[[site]]: one cluster, one worker."},
    {"link", "[[link]]: a link between two sites."},
    {"fault", "[[fault]]: what goes wrong for a time, under simulate."},
};

constexpr GoneRow kGone[] = {
    {"net.shares", "measured", "auto",
     "shares that follow measured rates are no more; \"links\" follows the file's [[link]]s"},
    {"net.shares", "table", "auto",
     "tables of shares by size are no more; \"links\" follows the file's [[link]]s"},
    {"net.table", "", "", "tables of shares by size are no more"},
};

constexpr LaterRow kLater[] = {
    {"net.late", "results that come late: outer.late"},
};
// clang-format on

struct Alias {
  std::string_view name, canonical;
};
constexpr Alias kAliases[] = {
    {"model.layers", "model.n_layers"},
    {"model.heads", "model.n_heads"},
    {"model.kv_heads", "model.n_kv_heads"},
};

}  // namespace

std::span<const KeyRow<Config>> config_rows() { return kRows; }
std::span<const KeyRow<SiteConfig>> site_rows() { return kSiteRows; }
std::span<const KeyRow<LinkConfig>> link_rows() { return kLinkRows; }
std::span<const SectionRow> sections() { return kSections; }
std::span<const LaterRow> later_names() { return kLater; }
std::span<const GoneRow> gone_rows() { return kGone; }

std::string_view canonical_name(std::string_view name) {
  for (const Alias& alias : kAliases) {
    if (alias.name == name) {
      return alias.canonical;
    }
  }
  return name;
}

}  // namespace isthmus::config
