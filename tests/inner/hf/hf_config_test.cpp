// SPDX-License-Identifier: Apache-2.0
#include "inner/hf/hf_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "core/temporary_directory.h"
#include "inner/golden/family_losses.h"
#include "inner/model/model_shape.h"
#include "isthmus/errors.h"

namespace isthmus::this_file {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

json gpt2() {
  return {{"model_type", "gpt2"}, {"vocab_size", 50257}, {"n_positions", 1024}, {"n_embd", 768},
          {"n_layer", 12},        {"n_head", 12},        {"n_ctx", 1024}};
}

json llama() {
  return {{"model_type", "llama"},   {"vocab_size", 32000},      {"max_position_embeddings", 2048},
          {"hidden_size", 64},       {"intermediate_size", 176}, {"num_hidden_layers", 3},
          {"num_attention_heads", 4}};
}

HfConfig parse(const json& document) { return parse_hf_config(document.dump(), "config.json"); }

std::string error_of(const json& document) {
  return message_of<ConfigError>([&] { (void)parse(document); });
}

json with(json document, const char* key, const json& value) {
  document[key] = value;
  return document;
}

TEST(HfConfig, ReadsGpt2WithItsDefaults) {
  const ModelConfig model = parse(gpt2()).model;
  EXPECT_EQ(model.arch, "gpt2");
  EXPECT_EQ(model.layers, 12);
  EXPECT_EQ(model.d_model, 768);
  EXPECT_EQ(model.heads, 12);
  EXPECT_EQ(model.d_ff, 3072);
  EXPECT_EQ(model.vocab, 50257);
  EXPECT_EQ(model.context, 1024);
  EXPECT_TRUE(model.tied);
  EXPECT_EQ(model.norm_eps, 1e-5);
  EXPECT_EQ(parse(with(gpt2(), "n_inner", 100)).model.d_ff, 100);
  EXPECT_EQ(parse(with(gpt2(), "n_inner", nullptr)).model.d_ff, 3072);
}

TEST(HfConfig, ReadsBothSpellingsOfRope) {
  json v4 = with(llama(), "rope_theta", 500000.0);
  v4["rope_scaling"] = nullptr;
  v4["torch_dtype"] = "bfloat16";
  EXPECT_EQ(parse(v4).model.rope_theta, 500000);
  const json v5 =
      with(llama(), "rope_parameters", {{"rope_theta", 500000.0}, {"rope_type", "default"}});
  EXPECT_EQ(parse(v5).model.rope_theta, 500000);
  EXPECT_EQ(parse(llama()).model.rope_theta, 10000);
}

TEST(HfConfig, ReadsLlamaWithItsDefaults) {
  const ModelConfig model = parse(llama()).model;
  EXPECT_EQ(model.arch, "llama");
  EXPECT_EQ(model.kv_heads, 4);
  EXPECT_EQ(model.head_dim, 16);
  EXPECT_FALSE(model.tied);
  EXPECT_FALSE(model.qk_norm);
  EXPECT_EQ(model.norm_eps, 1e-6);
  EXPECT_EQ(parse(with(llama(), "head_dim", 20)).model.head_dim, 20);
  EXPECT_EQ(parse(with(llama(), "num_key_value_heads", 2)).model.kv_heads, 2);
}

TEST(HfConfig, ReadsQwen3AsLlamaWithNorms) {
  const ModelConfig model = parse(with(llama(), "model_type", "qwen3")).model;
  EXPECT_EQ(model.arch, "llama");
  EXPECT_TRUE(model.qk_norm);
  EXPECT_EQ(model.head_dim, 128) << "the library's default";
}

TEST(HfConfig, RefusesByNameAndValueWhatOurModelsDoNotHave) {
  EXPECT_THAT(error_of(with(gpt2(), "activation_function", "relu")),
              AllOf(HasSubstr("activation_function = \"relu\""), HasSubstr("\"gelu_new\"")));
  EXPECT_THAT(error_of(with(gpt2(), "scale_attn_by_inverse_layer_idx", true)),
              HasSubstr("scale_attn_by_inverse_layer_idx = true"));
  EXPECT_THAT(error_of(with(gpt2(), "add_cross_attention", true)),
              HasSubstr("add_cross_attention = true"));
  EXPECT_THAT(error_of(with(llama(), "hidden_act", "gelu")), HasSubstr("hidden_act = \"gelu\""));
  EXPECT_THAT(error_of(with(llama(), "attention_bias", "yes")),
              HasSubstr("attention_bias = \"yes\""));
  EXPECT_THAT(error_of(with(with(llama(), "model_type", "mistral"), "attention_bias", true)),
              HasSubstr("attention_bias = true"));
  EXPECT_THAT(error_of(with(llama(), "rope_scaling", {{"type", "longrope"}, {"factor", 2.0}})),
              AllOf(HasSubstr("rope_scaling.type = \"longrope\""), HasSubstr("\"yarn\"")));
  EXPECT_THAT(
      error_of(with(llama(), "rope_scaling", {{"type", "linear"}, {"short_factor", {1}}})),
      AllOf(HasSubstr("rope_scaling.short_factor = [1]"), HasSubstr("rope_scaling.factor = null")));
  EXPECT_THAT(error_of(with(llama(), "rope_parameters",
                            {{"rope_type", "llama3"}, {"factor", 8}, {"low_freq_factor", 4}})),
              HasSubstr("high_freq_factor = 4.0 must be above low_freq_factor = 4"));
  EXPECT_THAT(error_of(with(llama(), "partial_rotary_factor", 0.5)),
              HasSubstr("partial_rotary_factor = 0.5"));
  EXPECT_THAT(error_of(with(llama(), "layer_types", {"full_attention", "sliding_attention"})),
              HasSubstr("layer_types"));
  EXPECT_THAT(error_of(with(llama(), "quantization_config", {{"bits", 4}})),
              HasSubstr("quantization_config = {\"bits\":4}"));
  EXPECT_THAT(error_of(with(llama(), "model_type", "mixtral")),
              AllOf(HasSubstr("model_type = \"mixtral\""), HasSubstr("mixtures of experts"),
                    HasSubstr("\"gemma3_text\" are")));
  EXPECT_THAT(error_of(with(with(llama(), "model_type", "gemma2"), "layer_types", {"chunked"})),
              HasSubstr("layer_types"));
}

// Sizes that are numbers, and that no model here has: no key of a configuration is to blame.
TEST(HfConfig, NamesSizesAsTheFileHasThem) {
  constexpr std::int64_t kWide = std::int64_t{1} << 21, kDeep = 10001, kLong = (1 << 24) + 1;
  const auto said = [](const json& document, const char* text) {
    EXPECT_EQ(error_of(document), std::string("config.json: ") + text);
  };
  said(with(gpt2(), "n_layer", kDeep), "n_layer = 10001: must be between 1 and 10000");
  said(with(gpt2(), "n_embd", kWide), "n_embd = 2097152: must be between 1 and 1048576");
  said(with(gpt2(), "n_head", 7), "n_head = 7: must divide n_embd = 768");
  said(with(gpt2(), "n_inner", kLong), "n_inner = 16777217: must be between 1 and 16777216");
  said(with(gpt2(), "n_positions", kLong),
       "n_positions = 16777217: must be between 1 and 16777216");
  said(with(llama(), "hidden_size", kWide), "hidden_size = 2097152: must be between 1 and 1048576");
  said(with(llama(), "num_attention_heads", kWide),
       "num_attention_heads = 2097152: must be between 1 and 1048576");
  said(with(llama(), "num_key_value_heads", 3),
       "num_key_value_heads = 3: must divide num_attention_heads = 4");
  said(with(llama(), "head_dim", 15), "head_dim = 15: must be even (rotary embedding turns pairs)");
  said(with(llama(), "hidden_size", 60),
       "hidden_size / num_attention_heads = 15: must be even (rotary embedding turns pairs)");
  said(with(llama(), "intermediate_size", kLong),
       "intermediate_size = 16777217: must be between 1 and 16777216");
  said(with(llama(), "max_position_embeddings", kLong),
       "max_position_embeddings = 16777217: must be between 1 and 16777216");
  said(with(with(llama(), "model_type", "qwen3"), "num_attention_heads", 1 << 19),
       "num_attention_heads * head_dim = 67108864: must be between 1 and 1048576");
  for (const char* type : {"llama", "mistral", "qwen2", "qwen3", "smollm3", "phi3", "olmo2",
                           "gpt_neox", "gemma", "gemma2", "gemma3_text"}) {
    json document = with(with(llama(), "model_type", type), "num_hidden_layers", kDeep);
    const char* const act = std::string_view(type).starts_with("gem") ? "gelu_pytorch_tanh"
                            : type == std::string_view("gpt_neox")    ? "gelu"
                                                                      : "silu";
    for (const char* key : {"hidden_act", "hidden_activation"}) document[key] = act;
    EXPECT_THAT(error_of(document),
                AllOf(HasSubstr("num_hidden_layers = 10001: must be between 1 and 10000"),
                      Not(HasSubstr("model."))))
        << type;
  }
}

TEST(HfConfig, ListsEveryDefectAtOnce) {
  json broken = gpt2();
  broken.erase("n_layer");
  broken["n_embd"] = "768";
  broken["n_head"] = -1;
  broken["vocab_size"] = 2147483648U;
  broken["layer_norm_epsilon"] = 0;
  broken["tie_word_embeddings"] = 1;
  EXPECT_THAT(error_of(broken),
              AllOf(HasSubstr("n_layer is missing"), HasSubstr("n_embd = \"768\""),
                    HasSubstr("n_head = -1"), HasSubstr("vocab_size = 2147483648"),
                    HasSubstr("layer_norm_epsilon = 0"), HasSubstr("tie_word_embeddings = 1")));
  EXPECT_THAT(error_of(json::array()), HasSubstr("not a JSON object"));
  EXPECT_THAT(error_of(json::object()), HasSubstr("model_type is missing"));
  EXPECT_THAT(message_of<SystemError>([] { (void)parse_hf_config("{", "c"); }),
              HasSubstr("c: not valid JSON"));
}

TEST(HfConfig, WritesWhatItReads) {
  ModelConfig model;
  model.arch = "llama";
  model.layers = 3;
  model.d_model = 64;
  model.heads = 4;
  model.kv_heads = 2;
  model.head_dim = 10;
  model.d_ff = 100;
  model.vocab = 300;
  model.context = 77;
  model.tied = false;
  model.rope_theta = 12345.5;
  model.norm_eps = 3e-6;
  for (const bool qk_norm : {false, true}) {
    model.qk_norm = qk_norm;
    const std::string text = hf_config_text(model_shape(model, 77), R"({"bos_token_id":1})");
    const json document = json::parse(text);
    EXPECT_EQ(document.at("model_type"), qk_norm ? "qwen3" : "llama");
    EXPECT_EQ(document.at("torch_dtype"), document.at("dtype"));
    EXPECT_EQ(document.at("rope_theta"), 12345.5);
    const HfConfig back = parse_hf_config(text, "c");
    EXPECT_EQ(back.model.head_dim, 10);
    EXPECT_EQ(back.model.kv_heads, 2);
    EXPECT_EQ(back.model.d_ff, 100);
    EXPECT_EQ(back.model.context, 77);
    EXPECT_EQ(back.model.rope_theta, 12345.5);
    EXPECT_EQ(back.model.norm_eps, 3e-6);
    EXPECT_EQ(back.model.qk_norm, qk_norm);
    EXPECT_FALSE(back.model.tied);
    EXPECT_EQ(json::parse(back.settings), json({{"bos_token_id", 1}}));
  }
}

TEST(HfConfig, CarriesEveryKeyThatSaysNothingAboutTheShape) {
  json theirs = llama();
  theirs["eos_token_id"] = {2, 8, 9};
  theirs["pad_token_id"] = 0;
  theirs["attention_dropout"] = 0.1;
  theirs["initializer_range"] = 0.01;
  theirs["task_specific_params"] = {{"text-generation", {{"max_length", 50}}}};
  theirs["torch_dtype"] = "bfloat16";
  theirs["auto_map"] = {{"AutoModel", "modeling.Model"}};
  const HfConfig config = parse(theirs);
  EXPECT_THAT(config.left_out, testing::ElementsAre("auto_map"));
  const json ours = json::parse(hf_config_text(model_shape(config.model, 2048), config.settings));
  for (const char* key : {"eos_token_id", "pad_token_id", "attention_dropout", "initializer_range",
                          "task_specific_params"}) {
    EXPECT_EQ(ours.value(key, json()), theirs[key]) << key;
  }
  EXPECT_FALSE(ours.contains("bos_token_id")) << "left to the library, as theirs does";
  EXPECT_FALSE(ours.contains("auto_map"));
  EXPECT_EQ(ours["torch_dtype"], "float32") << "as the weights are written";
  const json generation = json::parse(hf_generation_config_text(config.settings));
  EXPECT_EQ(generation["eos_token_id"], json({2, 8, 9}));
  EXPECT_EQ(generation["pad_token_id"], 0);
}

TEST(HfConfig, OfOurOwnModelsHasNoSpecialTokens) {
  ModelConfig model;
  model.context = 16;
  for (const std::string& text :
       {hf_config_text(model_shape(model, 16), ""), hf_generation_config_text("")}) {
    EXPECT_TRUE(json::parse(text).at("bos_token_id").is_null());
    EXPECT_TRUE(json::parse(text).at("eos_token_id").is_null());
  }
  EXPECT_EQ(json::parse(hf_config_text(model_shape(model, 16), "")).at("resid_pdrop"), 0.0);
}

TEST(HfConfig, RefusesTokensThatAreNoIds) {
  EXPECT_THAT(error_of(with(llama(), "eos_token_id", {2, "x"})),
              HasSubstr("eos_token_id = [2,\"x"));
  EXPECT_THAT(error_of(with(llama(), "pad_token_id", 1.5)), HasSubstr("pad_token_id = 1.5"));
}

TEST(HfConfig, WritesGpt2sFeedForwardAsNullOnlyWhenItIsFourTimesTheWidth) {
  ModelConfig model;
  model.context = 16;
  EXPECT_TRUE(json::parse(hf_config_text(model_shape(model, 16), {})).at("n_inner").is_null());
  model.d_ff = 40;
  EXPECT_EQ(json::parse(hf_config_text(model_shape(model, 16), {})).at("n_inner"), 40);
}

json of_type(const char* type) { return with(llama(), "model_type", type); }

TEST(HfConfig, ReadsRotaryScalingInBothSpellings) {
  const json scaling = {{"rope_type", "llama3"},
                        {"factor", 8.0},
                        {"low_freq_factor", 1.0},
                        {"high_freq_factor", 4.0},
                        {"original_max_position_embeddings", 8192}};
  json v4 = with(llama(), "rope_theta", 500000.0);
  v4["rope_scaling"] = scaling;
  json v5 = with(llama(), "rope_parameters", scaling);
  v5["rope_parameters"]["rope_theta"] = 500000.0;
  const ModelConfig model = parse(v4).model;
  EXPECT_EQ(model.family, parse(v5).model.family);
  EXPECT_EQ(model.rope_theta, 500000);
  EXPECT_EQ(model.family.name, "llama");
  const RopeScaling expected{.type = RopeType::kLlama3, .factor = 8, .original_positions = 8192};
  EXPECT_EQ(model.family.rope, expected);
  for (const json& theirs : {v4, v5}) {  // an export speaks to both versions
    const HfConfig config = parse(theirs);
    const json ours = json::parse(hf_config_text(model_shape(config.model, 2048), config.settings));
    EXPECT_EQ(ours["rope_theta"], 500000.0);
    EXPECT_EQ(ours["rope_scaling"]["rope_type"], "llama3");
    EXPECT_EQ(ours["rope_parameters"]["factor"], 8.0);
    EXPECT_EQ(ours["rope_parameters"]["rope_theta"], 500000.0);
  }
}

TEST(HfConfig, ReadsYarnWithTheAmplitudeOfItsKeys) {
  json scaling = {{"type", "yarn"}, {"factor", 4.0}, {"original_max_position_embeddings", 512}};
  const auto amplitude = [&] {
    return parse(with(llama(), "rope_scaling", scaling)).model.family.rope.attention_factor;
  };
  EXPECT_DOUBLE_EQ(amplitude(), 0.1 * std::log(4.0) + 1);
  scaling["mscale"] = 0.5;
  scaling["mscale_all_dim"] = 2.0;
  EXPECT_DOUBLE_EQ(amplitude(), (0.05 * std::log(4.0) + 1) / (0.2 * std::log(4.0) + 1));
  scaling["attention_factor"] = 1.25;
  EXPECT_EQ(amplitude(), 1.25);
}

TEST(HfConfig, ReadsWhichLayersHaveWindows) {
  EXPECT_EQ(parse(of_type("mistral")).model.family.window, 4096) << "the library's default";
  EXPECT_EQ(parse(with(of_type("mistral"), "sliding_window", nullptr)).model.family.window, 0);
  const auto local_layers = [](const json& document) {
    std::string layers;
    for (const LayerRule& rule : parse(document).model.family.layers) {
      layers += rule.local ? 'w' : '.';
    }
    return layers;
  };
  EXPECT_EQ(local_layers(with(of_type("mistral"), "sliding_window", 16)), "www");
  EXPECT_EQ(local_layers(of_type("qwen2")), "");
  json qwen = with(of_type("qwen2"), "use_sliding_window", true);
  qwen["sliding_window"] = 16;
  qwen["max_window_layers"] = 1;
  EXPECT_EQ(local_layers(qwen), ".ww");
  qwen["layer_types"] = {"sliding_attention", "full_attention", "full_attention"};
  EXPECT_EQ(local_layers(qwen), "w..");
  EXPECT_EQ(local_layers(of_type("gemma2")), "w.w");
  EXPECT_EQ(local_layers(with(of_type("gemma3_text"), "sliding_window_pattern", 2)), "w.w");
}

TEST(HfConfig, WindowsActOnlyWithinTheContext) {
  const ModelConfig model = parse(with(of_type("mistral"), "sliding_window", 16)).model;
  EXPECT_EQ(model_shape(model, 16).window(0), 0);
  EXPECT_EQ(model_shape(model, 17).window(0), 16);
}

TEST(HfConfig, ReadsLayersWithoutPositions) {
  const auto rotating = [](const json& document) {
    std::string layers;
    for (const LayerRule& rule : parse(document).model.family.layers) {
      layers += rule.rotates ? 'r' : '.';
    }
    return layers;
  };
  EXPECT_EQ(rotating(with(of_type("smollm3"), "no_rope_layer_interval", 2)), "r.r");
  EXPECT_EQ(rotating(with(of_type("smollm3"), "no_rope_layers", {0, 1, 1})), ".rr");
  EXPECT_THAT(error_of(with(of_type("smollm3"), "no_rope_layers", {0, 1})),
              HasSubstr("no_rope_layers = [0,1] must say 0 or 1 for 3 layers"));
}

TEST(HfConfig, ReadsGptNeoXInTheSpellingOfTransformers4) {
  json neox = of_type("gpt_neox");
  neox["rotary_pct"] = 0.5;
  neox["rotary_emb_base"] = 20000;
  const ModelConfig model = parse(neox).model;
  EXPECT_EQ(model.family.rotary_dim, 8);
  EXPECT_EQ(model.rope_theta, 20000);
  EXPECT_TRUE(model.family.parallel_residual);
  EXPECT_TRUE(model.family.qkv_bias);
  EXPECT_THAT(error_of(with(of_type("gpt_neox"), "rotary_pct", 0.05)),
              HasSubstr("must rotate an even number"));
}

TEST(HfConfig, ReadsBothBasesOfGemma3) {
  json v4 = of_type("gemma3_text");
  v4["rope_scaling"] = {{"rope_type", "linear"}, {"factor", 8.0}};
  const ModelConfig model = parse(v4).model;
  EXPECT_EQ(model.rope_theta, 1000000);
  EXPECT_EQ(model.family.local_rope_theta, 10000);
  EXPECT_EQ(model.family.rope.factor, 8);
  EXPECT_EQ(model.head_dim, 256) << "the library's default";
  EXPECT_DOUBLE_EQ(model.family.embedding_scale, 8);
  EXPECT_EQ(parse(of_type("gemma2")).model.family.attention_cap, 50) << "the library's default";
  EXPECT_EQ(
      parse(with(of_type("gemma2"), "attn_logit_softcapping", nullptr)).model.family.attention_cap,
      0);
}

class FamilyConfig : public testing::TestWithParam<const char*> {};

TEST_P(FamilyConfig, WritesEveryKeyThatItReads) {
  const HfConfig config = parse_hf_config(GetParam(), "config.json");
  const ModelShape shape = model_shape(config.model, config.model.context);
  const std::string text = hf_config_text(shape, config.settings);
  const json theirs = json::parse(GetParam());
  const json ours = json::parse(text);
  for (const auto& [key, value] : theirs.items()) {
    if (key == "dtype") continue;
    EXPECT_EQ(ours.value(key, json()), value) << key;
  }
  const HfConfig back = parse_hf_config(text, "c");
  EXPECT_EQ(back.model.family, config.model.family);
  EXPECT_EQ(back.settings, config.settings);
}

INSTANTIATE_TEST_SUITE_P(OfTransformers, FamilyConfig,
                         testing::Values(golden::kLlama3RopeConfig, golden::kLinearRopeConfig,
                                         golden::kDynamicRopeConfig, golden::kYarnRopeConfig,
                                         golden::kYarnMscaleConfig, golden::kLlamaBiasesConfig,
                                         golden::kMistralConfig, golden::kMistralWindowConfig,
                                         golden::kQwen2Config, golden::kQwen2WindowConfig,
                                         golden::kQwen3BiasesConfig, golden::kSmolLm3Config,
                                         golden::kPhi3Config, golden::kPhi3PartialConfig,
                                         golden::kOlmo2Config, golden::kGptNeoXConfig,
                                         golden::kGptNeoXSerialConfig, golden::kGemmaConfig,
                                         golden::kGemma2Config, golden::kGemma3Config));

}  // namespace
}  // namespace isthmus::this_file
