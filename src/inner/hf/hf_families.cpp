// SPDX-License-Identifier: Apache-2.0
#include "inner/hf/hf_families.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>

#include "inner/hf/hf_config_reader.h"

namespace isthmus {
namespace {

using nlohmann::json;
using Reader = HfConfigReader;

constexpr std::int64_t kMostHfLayers = 10'000;  // as model_shape.cpp has it

void read_gpt2(Reader& reader, ModelConfig& model) {
  model.arch = "gpt2";
  model.layers = reader.size("n_layer");
  model.d_model = reader.size("n_embd");
  model.heads = reader.size("n_head");
  model.kv_heads = model.heads;
  model.d_ff = reader.size("n_inner", 4 * model.d_model);
  model.vocab = reader.size("vocab_size");
  model.context = reader.size("n_positions");
  model.tied = reader.flag("tie_word_embeddings", true);
  model.norm_eps = reader.positive(reader.find("layer_norm_epsilon"), "layer_norm_epsilon", 1e-5);
  reader.supported("activation_function", {"gelu_new", "gelu_pytorch_tanh"});
  reader.supported("scale_attn_weights", {true});
  reader.supported("scale_attn_by_inverse_layer_idx", {false});
  reader.supported("add_cross_attention", {false});
}

/// The keys that all families except GPT-2 spell alike.
struct SizeDefaults {
  std::int64_t head_dim = 0;  // 0: hidden_size / num_attention_heads
  bool tied = false;
  double norm_eps = 1e-6;
  const char* norm_eps_key = "rms_norm_eps";
};

void read_sizes(Reader& reader, ModelConfig& model, const SizeDefaults& defaults) {
  model.arch = "llama";
  model.layers = reader.size("num_hidden_layers");
  model.d_model = reader.size("hidden_size");
  model.heads = reader.size("num_attention_heads");
  model.kv_heads = reader.size("num_key_value_heads", model.heads);
  const std::int64_t share = std::max<std::int64_t>(model.d_model / model.heads, 1);
  model.head_dim = reader.size("head_dim", defaults.head_dim > 0 ? defaults.head_dim : share);
  model.d_ff = reader.size("intermediate_size");
  model.vocab = reader.size("vocab_size");
  model.context = reader.size("max_position_embeddings");
  model.tied = reader.flag("tie_word_embeddings", defaults.tied);
  const char* const eps = defaults.norm_eps_key;
  model.norm_eps = reader.positive(reader.find(eps), eps, defaults.norm_eps);
}

// ---- Rotary embedding

struct RopeName {
  std::string_view name;
  RopeType type;
  std::vector<std::string_view> keys;  // that it has beside rope_type and rope_theta
};

const std::vector<RopeName>& rope_names() {
  static const std::vector<RopeName> names = {
      {"default", RopeType::kDefault, {}},
      {"linear", RopeType::kLinear, {"factor"}},
      {"dynamic", RopeType::kDynamic, {"factor", "original_max_position_embeddings"}},
      {"llama3",
       RopeType::kLlama3,
       {"factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"}},
      {"yarn",
       RopeType::kYarn,
       {"factor", "attention_factor", "beta_fast", "beta_slow", "mscale", "mscale_all_dim",
        "original_max_position_embeddings", "truncate"}}};
  return names;
}

/// One object of rotary parameters; `name` is its key.
class RopeReader {
 public:
  RopeReader(Reader& reader, std::string name, const json& rope)
      : reader_(reader), name_(std::move(name)), rope_(rope) {}

  /// theta: of the file elsewhere. partial: whether heads may be rotated in part.
  RopeScaling read(const ModelConfig& model, double& theta, double& share, bool partial) {
    const RopeName* const kind = find_kind();
    for (const auto& item : rope_.items()) check(item.key(), item.value(), kind, partial);
    theta = number("rope_theta", theta);
    share = number("partial_rotary_factor", share);
    RopeScaling scaling;
    if (kind == nullptr || kind->type == RopeType::kDefault) return scaling;
    scaling.type = kind->type;
    scaling.factor = number("factor", 0);
    if (scaling.factor == 0)
      reader_.refuse(name_ + ".factor", nullptr, "must be a positive number");
    scaling.original_positions =
        number("original_max_position_embeddings", static_cast<double>(model.context));
    if (scaling.type == RopeType::kLlama3) read_llama3(scaling);
    if (scaling.type == RopeType::kYarn) read_yarn(scaling);
    return scaling;
  }

 private:
  [[nodiscard]] const json* find(const char* key) const {
    const auto found = rope_.find(key);
    return found == rope_.end() || found->is_null() ? nullptr : &*found;
  }
  double number(const char* key, double fallback) {
    return reader_.positive(find(key), fmt::format("{}.{}", name_, key), fallback);
  }

  const RopeName* find_kind() {
    const char* key = find("rope_type") != nullptr ? "rope_type" : "type";
    const json* type = find(key);
    if (type == nullptr) return &rope_names().front();
    for (const RopeName& kind : rope_names()) {
      if (*type == kind.name) return &kind;
    }
    reader_.refuse(fmt::format("{}.{}", name_, key), *type,
                   "is not supported; only \"default\", \"linear\", \"dynamic\", \"llama3\" and "
                   "\"yarn\" are");
    return nullptr;
  }

  void check(const std::string& key, const json& value, const RopeName* kind, bool partial) {
    const std::string name = fmt::format("{}.{}", name_, key);
    if (value.is_null() || key == "rope_theta" || key == "rope_type" || key == "type") return;
    if (key == "partial_rotary_factor") {
      if (!partial && value != 1.0) reader_.refuse(name, value, "is not supported; only 1 is");
      return;
    }
    if (kind == nullptr) return;  // its name is refused
    if (std::ranges::find(kind->keys, key) == kind->keys.end()) {
      reader_.refuse(name, value, fmt::format("is not supported with \"{}\"", kind->name));
    }
  }

  void read_llama3(RopeScaling& scaling) {
    scaling.low_freq_factor = number("low_freq_factor", 1);
    scaling.high_freq_factor = number("high_freq_factor", 4);
    if (scaling.high_freq_factor <= scaling.low_freq_factor) {
      reader_.refuse(name_ + ".high_freq_factor", scaling.high_freq_factor,
                     fmt::format("must be above low_freq_factor = {}", scaling.low_freq_factor));
    }
  }

  void read_yarn(RopeScaling& scaling) {
    scaling.beta_fast = number("beta_fast", 32);
    scaling.beta_slow = number("beta_slow", 1);
    if (const json* truncate = find("truncate")) scaling.truncate = *truncate != false;
    const double mscale = number("mscale", 0);
    const double all_dim = number("mscale_all_dim", 0);
    const auto amplitude = [&](double times) {
      return scaling.factor <= 1 ? 1 : 0.1 * times * std::log(scaling.factor) + 1;
    };
    const bool both = mscale > 0 && all_dim > 0;
    scaling.attention_factor =
        number("attention_factor", both ? amplitude(mscale) / amplitude(all_dim) : amplitude(1));
  }

  Reader& reader_;
  std::string name_;
  const json& rope_;
};

struct RopeDefaults {
  double theta = 10000;
  bool partial = false;
  double share = 1;  // of a head that is rotated
  const char* theta_key = "rope_theta";
  const char* share_key = "partial_rotary_factor";
};

void set_rotary_share(Reader& reader, ModelConfig& model, double share) {
  if (share == 1) return;
  const auto dim = static_cast<std::int64_t>(static_cast<double>(model.head_dim) * share);
  if (share > 1 || dim < 2 || dim % 2 != 0) {
    reader.refuse("partial_rotary_factor", share,
                  fmt::format("must rotate an even number of the {} values of a head, at least 2",
                              model.head_dim));
    return;
  }
  model.family.rotary_dim = dim;
}

// transformers 4 writes rope_theta beside rope_scaling, transformers 5 one rope_parameters.
void read_rope(Reader& reader, ModelConfig& model, const RopeDefaults& defaults = {}) {
  model.rope_theta =
      reader.positive(reader.find(defaults.theta_key), defaults.theta_key, defaults.theta);
  double share =
      reader.positive(reader.find(defaults.share_key), defaults.share_key, defaults.share);
  if (!defaults.partial) reader.supported(defaults.share_key, {1.0});
  for (const char* key : {"rope_parameters", "rope_scaling"}) {
    const json* rope = reader.find(key);
    if (rope == nullptr) continue;
    if (!rope->is_object()) {
      reader.refuse(key, *rope, "must be an object or null");
      continue;
    }
    model.family.rope =
        RopeReader(reader, key, *rope).read(model, model.rope_theta, share, defaults.partial);
  }
  if (defaults.partial) set_rotary_share(reader, model, share);
}

// ---- Windows

/// Layers with a sliding window: layer_types where it is given, else by `is_local`.
template <typename IsLocal>
void read_windows(Reader& reader, ModelConfig& model, std::int64_t window,
                  const IsLocal& is_local) {
  ModelFamily& family = model.family;
  if (model.layers > kMostHfLayers) return;  // refused as a shape
  std::vector<bool> local(static_cast<std::size_t>(model.layers));
  const json* kinds = reader.find("layer_types");
  if (kinds != nullptr && (!kinds->is_array() || kinds->size() != local.size())) {
    reader.refuse("layer_types", *kinds, fmt::format("must name {} layers", model.layers));
    return;
  }
  for (std::size_t i = 0; i < local.size(); ++i) {
    local[i] = kinds == nullptr && is_local(static_cast<std::int64_t>(i));
    if (kinds == nullptr || (*kinds)[i] == "full_attention") continue;
    if ((*kinds)[i] != "sliding_attention") {
      reader.refuse("layer_types", (*kinds)[i],
                    "is not supported; only \"full_attention\" and \"sliding_attention\" are");
      return;
    }
    local[i] = true;
  }
  if (window == 0 || std::ranges::find(local, true) == local.end()) return;
  family.window = window;
  family.layers.resize(local.size());
  for (std::size_t i = 0; i < local.size(); ++i) family.layers[i].local = local[i];
}

std::int64_t window_of(Reader& reader, std::int64_t fallback) {
  if (!reader.has("sliding_window")) return fallback;
  return reader.find("sliding_window") == nullptr ? 0 : reader.size("sliding_window");
}

void refuse_local_layers(Reader& reader) {
  reader.supported("use_sliding_window", {false});
  const json* kinds = reader.find("layer_types");
  for (const json& kind : kinds != nullptr && kinds->is_array() ? *kinds : json::array()) {
    if (kind == "full_attention") continue;
    reader.refuse("layer_types", *kinds, "is not supported; only \"full_attention\" is");
    return;
  }
}

// ---- Families

/// A family that `arch` and `qk_norm` alone do not describe has its name.
void name_if_special(ModelConfig& model, const char* name) {
  if (model.family != ModelFamily{}) model.family.name = name;
}

void read_biases(Reader& reader, ModelConfig& model) {
  const bool attention = reader.flag("attention_bias", false);
  model.family.qkv_bias = model.family.out_bias = attention;
}

void read_llama(Reader& reader, ModelConfig& model) {
  read_sizes(reader, model, {});
  read_rope(reader, model);
  read_biases(reader, model);
  model.family.mlp_bias = reader.flag("mlp_bias", false);
  reader.supported("hidden_act", {"silu", "swish"});
  refuse_local_layers(reader);
  name_if_special(model, "llama");
}

void read_mistral(Reader& reader, ModelConfig& model) {
  read_sizes(reader, model, {});
  read_rope(reader, model);
  reader.supported("hidden_act", {"silu", "swish"});
  reader.supported("attention_bias", {false});
  read_windows(reader, model, window_of(reader, 4096), [](std::int64_t) { return true; });
  model.family.name = "mistral";
}

/// Windows of Qwen: of the layers from max_window_layers on, where they are switched on.
void read_qwen_windows(Reader& reader, ModelConfig& model) {
  const bool used = reader.flag("use_sliding_window", false);
  const std::int64_t window = used ? window_of(reader, 4096) : 0;
  const std::int64_t from = used ? reader.size("max_window_layers", 28) : model.layers;
  read_windows(reader, model, window, [from](std::int64_t layer) { return layer >= from; });
}

void read_qwen2(Reader& reader, ModelConfig& model) {
  read_sizes(reader, model, {});
  read_rope(reader, model);
  reader.supported("hidden_act", {"silu", "swish"});
  model.family.qkv_bias = true;
  read_qwen_windows(reader, model);
  model.family.name = "qwen2";
}

void read_qwen3(Reader& reader, ModelConfig& model) {
  // Where head_dim is absent, Qwen3's library takes 128 and Llama's divides.
  read_sizes(reader, model, {.head_dim = 128});
  model.qk_norm = true;
  read_rope(reader, model);
  read_biases(reader, model);
  reader.supported("hidden_act", {"silu", "swish"});
  read_qwen_windows(reader, model);
  name_if_special(model, "qwen3");
}

/// Layers whose queries and keys carry no position: a list of 0 and 1, or every nth.
void read_no_rope_layers(Reader& reader, ModelConfig& model) {
  if (model.layers > kMostHfLayers) return;  // refused as a shape
  const auto layers = static_cast<std::size_t>(model.layers);
  const json* list = reader.find("no_rope_layers");
  const std::int64_t interval = reader.size("no_rope_layer_interval", 4);
  model.family.layers.resize(layers);
  if (list != nullptr && (!list->is_array() || list->size() < layers)) {
    reader.refuse("no_rope_layers", *list, fmt::format("must say 0 or 1 for {} layers", layers));
    return;
  }
  for (std::size_t i = 0; i < layers; ++i) {
    const auto number = static_cast<std::int64_t>(i) + 1;
    model.family.layers[i].rotates =
        list == nullptr ? number % interval != 0 : (*list)[i] != 0 && (*list)[i] != false;
  }
}

void read_smollm3(Reader& reader, ModelConfig& model) {
  read_sizes(reader, model, {.tied = true});
  read_rope(reader, model, {.theta = 2000000});
  read_biases(reader, model);
  model.family.mlp_bias = reader.flag("mlp_bias", false);
  reader.supported("hidden_act", {"silu", "swish"});
  read_no_rope_layers(reader, model);
  const std::vector<LayerRule> rules = model.family.layers;
  const std::int64_t window = reader.flag("use_sliding_window", false) ? window_of(reader, 0) : 0;
  read_windows(reader, model, window, [&](std::int64_t layer) {
    return !rules.empty() && !rules[static_cast<std::size_t>(layer)].rotates;
  });
  model.family.name = "smollm3";
}

void read_phi3(Reader& reader, ModelConfig& model) {
  read_sizes(reader, model, {.norm_eps = 1e-5});
  read_rope(reader, model, {.partial = true});
  if (model.family.rope.type != RopeType::kDefault) {
    const char* const key =
        reader.find("rope_scaling") != nullptr ? "rope_scaling" : "rope_parameters";
    reader.refuse(key, *reader.find(key), "is not supported; Phi-3's is \"default\"");
  }
  reader.supported("hidden_act", {"silu", "swish"});
  reader.supported("attention_bias", {false});
  reader.supported("mlp_bias", {false});
  model.family.fused_products = true;
  read_windows(reader, model, window_of(reader, 0), [](std::int64_t) { return true; });
  model.family.name = "phi3";
}

void read_olmo2(Reader& reader, ModelConfig& model) {
  read_sizes(reader, model, {.norm_eps = 1e-5});
  read_rope(reader, model);
  read_biases(reader, model);
  reader.supported("hidden_act", {"silu", "swish"});
  refuse_local_layers(reader);
  model.qk_norm = true;
  model.family.wide_qk_norm = true;
  model.family.norms = LayerNorms::kAfter;
  model.family.name = "olmo2";
}

void read_neox(Reader& reader, ModelConfig& model) {
  read_sizes(reader, model, {.norm_eps = 1e-5, .norm_eps_key = "layer_norm_eps"});
  read_rope(
      reader, model,
      {.partial = true, .share = 0.25, .theta_key = "rotary_emb_base", .share_key = "rotary_pct"});
  reader.supported("hidden_act", {"gelu", "gelu_new", "gelu_pytorch_tanh", "gelu_fast"});
  const json* act = reader.find("hidden_act");
  ModelFamily& family = model.family;
  family.feed_forward =
      act == nullptr || *act == "gelu" ? FeedForward::kGelu : FeedForward::kGeluTanh;
  family.qkv_bias = family.out_bias = reader.flag("attention_bias", true);
  family.mlp_bias = true;
  family.interleaved_heads = true;
  family.layer_norm = true;
  family.parallel_residual = reader.flag("use_parallel_residual", true);
  if (model.kv_heads != model.heads) {
    reader.refuse("num_key_value_heads", model.kv_heads, "GPT-NeoX has as many as query heads");
  }
  family.name = "gpt_neox";
}

void read_gemma_common(Reader& reader, ModelConfig& model, const char* activation_key) {
  read_sizes(reader, model, {.head_dim = 256, .tied = true});
  read_biases(reader, model);
  reader.supported(activation_key, {"gelu_pytorch_tanh"});
  reader.supported("use_bidirectional_attention", {false});
  ModelFamily& family = model.family;
  family.norm_weight_offset = 1;
  family.feed_forward = FeedForward::kGeGluTanh;
  family.embedding_scale = std::sqrt(static_cast<double>(model.d_model));
}

void read_gemma(Reader& reader, ModelConfig& model) {
  // "gelu" in old files means the tanh formula, which "hidden_activation" says in some of them.
  const json* act = reader.find("hidden_act");
  read_gemma_common(reader, model,
                    act != nullptr && *act == "gelu" ? "hidden_activation" : "hidden_act");
  read_rope(reader, model);
  model.family.name = "gemma";
}

/// What Gemma 2 and 3 have alike: norms around a layer's parts, the scale of queries, caps (the
/// values where a file says nothing), windows of the layers that are `local`.
void read_gemma_layers(Reader& reader, ModelConfig& model, double attention_cap, double logit_cap,
                       const std::function<bool(std::int64_t)>& local) {
  ModelFamily& family = model.family;
  family.norms = LayerNorms::kAround;
  family.query_scalar =
      reader.positive(reader.find("query_pre_attn_scalar"), "query_pre_attn_scalar", 256);
  family.attention_cap = reader.positive_or_none("attn_logit_softcapping", attention_cap);
  family.logit_cap = reader.positive_or_none("final_logit_softcapping", logit_cap);
  read_windows(reader, model, window_of(reader, 4096), local);
}

void read_gemma2(Reader& reader, ModelConfig& model) {
  read_gemma_common(reader, model, "hidden_activation");
  read_rope(reader, model);
  read_gemma_layers(reader, model, 50, 30, [](std::int64_t layer) { return layer % 2 == 0; });
  model.family.name = "gemma2";
}

/// Rotary embedding of Gemma 3: a base for local layers and another, scaled, for the others.
void read_gemma3_rope(Reader& reader, ModelConfig& model) {
  ModelFamily& family = model.family;
  model.rope_theta = reader.positive(reader.find("rope_theta"), "rope_theta", 1000000);
  family.local_rope_theta =
      reader.positive(reader.find("rope_local_base_freq"), "rope_local_base_freq", 10000);
  double share = 1;
  if (const json* rope = reader.find("rope_parameters")) {
    for (const char* kind : {"full_attention", "sliding_attention"}) {
      const auto found = rope->is_object() ? rope->find(kind) : rope->end();
      if (found == rope->end() || !found->is_object()) continue;
      const bool local = kind == std::string_view("sliding_attention");
      const RopeScaling scaling =
          RopeReader(reader, fmt::format("rope_parameters.{}", kind), *found)
              .read(model, local ? family.local_rope_theta : model.rope_theta, share, false);
      if (!local) family.rope = scaling;
      if (local && scaling != RopeScaling{}) {
        reader.refuse("rope_parameters.sliding_attention", *found, "must not be scaled");
      }
    }
  }
  if (const json* rope = reader.find("rope_scaling"); rope != nullptr && rope->is_object()) {
    family.rope =
        RopeReader(reader, "rope_scaling", *rope).read(model, model.rope_theta, share, false);
  }
}

void read_gemma3(Reader& reader, ModelConfig& model) {
  read_gemma_common(reader, model, "hidden_activation");
  read_gemma3_rope(reader, model);
  model.qk_norm = true;
  const std::int64_t pattern = reader.size("sliding_window_pattern", 6);
  read_gemma_layers(reader, model, 0, 0,
                    [pattern](std::int64_t layer) { return (layer + 1) % pattern != 0; });
  model.family.name = "gemma3_text";
}

struct Family {
  std::string_view type, model_class;
  void (*read)(Reader&, ModelConfig&);
};
constexpr std::array<Family, 12> kFamilies = {{
    {"gpt2", "GPT2LMHeadModel", read_gpt2},
    {"llama", "LlamaForCausalLM", read_llama},
    {"mistral", "MistralForCausalLM", read_mistral},
    {"qwen2", "Qwen2ForCausalLM", read_qwen2},
    {"qwen3", "Qwen3ForCausalLM", read_qwen3},
    {"smollm3", "SmolLM3ForCausalLM", read_smollm3},
    {"phi3", "Phi3ForCausalLM", read_phi3},
    {"olmo2", "Olmo2ForCausalLM", read_olmo2},
    {"gpt_neox", "GPTNeoXForCausalLM", read_neox},
    {"gemma", "GemmaForCausalLM", read_gemma},
    {"gemma2", "Gemma2ForCausalLM", read_gemma2},
    {"gemma3_text", "Gemma3ForCausalLM", read_gemma3},
}};

/// Why a family that many folders hold is not one of ours.
struct Refusal {
  std::string_view type, reason;
};
constexpr std::array<Refusal, 14> kRefusals = {{
    {"mixtral", "mixtures of experts are not trained here"},
    {"qwen2_moe", "mixtures of experts are not trained here"},
    {"qwen3_moe", "mixtures of experts are not trained here"},
    {"gpt_oss", "mixtures of experts are not trained here"},
    {"deepseek_v2", "latent attention and mixtures of experts are not trained here"},
    {"deepseek_v3", "latent attention and mixtures of experts are not trained here"},
    {"llama4", "mixtures of experts are not trained here"},
    {"gemma3", "it reads images too; a folder of its text model alone says \"gemma3_text\""},
    {"gemma3n", "its layers have side embeddings"},
    {"qwen2_vl", "it reads images"},
    {"phi", "its layers have one norm for both halves"},
    {"mamba", "it has no attention"},
    {"t5", "it has an encoder"},
    {"bert", "it is no causal model"},
}};

std::string known_types() {
  std::string text;
  for (std::size_t i = 0; i < kFamilies.size(); ++i) {
    const char* const before = i == 0 ? "" : i + 1 == kFamilies.size() ? " and " : ", ";
    text += fmt::format("{}\"{}\"", before, kFamilies[i].type);
  }
  return text;
}

}  // namespace

void read_family(Reader& reader, ModelConfig& model) {
  const json* type = reader.find("model_type");
  if (type == nullptr) {
    reader.missing("model_type", known_types() + " are known");
    return;
  }
  for (const Family& family : kFamilies) {
    if (*type == family.type) {
      family.read(reader, model);
      return;
    }
  }
  std::string reason;
  for (const Refusal& refusal : kRefusals) {
    if (*type == refusal.type) reason = fmt::format(": {}", refusal.reason);
  }
  reader.refuse("model_type", *type,
                fmt::format("is not supported{}; {} are", reason, known_types()));
}

std::string_view hf_model_class(std::string_view model_type) {
  const auto found = std::ranges::find(kFamilies, model_type, &Family::type);
  return found == kFamilies.end() ? std::string_view{} : found->model_class;
}

void add_both_rope_spellings(const ModelConfig& model, json& settings) {
  const auto is_object = [&](const char* key) {
    return settings.contains(key) && settings[key].is_object();
  };
  const bool neox = model.family.interleaved_heads;
  const char* const theta = neox ? "rotary_emb_base" : "rope_theta";
  if (!settings.contains(theta)) settings[theta] = model.rope_theta;
  if (model.family.local_rope_theta > 0) {  // Gemma 3: version 5 reads the older spelling
    if (!settings.contains("rope_local_base_freq")) {
      settings["rope_local_base_freq"] = model.family.local_rope_theta;
    }
    const bool scaled = model.family.rope.type != RopeType::kDefault;
    if (scaled && !is_object("rope_scaling")) {
      settings["rope_scaling"] = settings["rope_parameters"]["full_attention"];
      settings["rope_scaling"].erase("rope_theta");
    }
    return;
  }
  const double share = model.family.rotary_dim == 0 ? 1
                                                    : static_cast<double>(model.family.rotary_dim) /
                                                          static_cast<double>(model.head_dim);
  const char* const share_key = neox ? "rotary_pct" : "partial_rotary_factor";
  if ((neox || share != 1) && !settings.contains(share_key)) settings[share_key] = share;
  if (!is_object("rope_parameters")) {
    json rope = is_object("rope_scaling") ? settings["rope_scaling"] : json::object();
    if (!rope.contains("rope_type")) rope["rope_type"] = rope.value("type", json("default"));
    rope.erase("type");
    rope["rope_theta"] = model.rope_theta;
    if (share != 1) rope["partial_rotary_factor"] = share;
    settings["rope_parameters"] = rope;
  }
  if (model.family.rope.type != RopeType::kDefault && !is_object("rope_scaling")) {
    json rope = settings["rope_parameters"];
    rope.erase("rope_theta");
    settings["rope_scaling"] = rope;
  }
}

}  // namespace isthmus
