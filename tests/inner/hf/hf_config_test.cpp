// SPDX-License-Identifier: Apache-2.0
#include "inner/hf/hf_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "core/temporary_directory.h"
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
  EXPECT_THAT(error_of(with(llama(), "attention_bias", true)), HasSubstr("attention_bias = true"));
  EXPECT_THAT(error_of(with(llama(), "mlp_bias", true)), HasSubstr("mlp_bias = true"));
  EXPECT_THAT(
      error_of(with(llama(), "rope_scaling", {{"type", "linear"}, {"factor", 2.0}})),
      AllOf(HasSubstr("rope_scaling.type = \"linear\""), HasSubstr("rope_scaling.factor = 2.0")));
  EXPECT_THAT(error_of(with(llama(), "rope_parameters", {{"rope_type", "llama3"}})),
              HasSubstr("rope_parameters.rope_type = \"llama3\""));
  EXPECT_THAT(error_of(with(llama(), "partial_rotary_factor", 0.5)),
              HasSubstr("partial_rotary_factor = 0.5"));
  EXPECT_THAT(error_of(with(llama(), "layer_types", {"full_attention", "sliding_attention"})),
              HasSubstr("layer_types"));
  EXPECT_THAT(error_of(with(llama(), "quantization_config", {{"bits", 4}})),
              HasSubstr("quantization_config = {\"bits\":4}"));
  EXPECT_THAT(error_of(with(llama(), "model_type", "mistral")),
              HasSubstr("model_type = \"mistral\""));
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
    const std::string text = hf_config_text(model_shape(model, 77), {1, {}});
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
    EXPECT_EQ(back.tokens.bos, 1);
    EXPECT_EQ(back.tokens.eos, std::nullopt);
  }
}

TEST(HfConfig, WritesGpt2sFeedForwardAsNullOnlyWhenItIsFourTimesTheWidth) {
  ModelConfig model;
  model.context = 16;
  EXPECT_TRUE(json::parse(hf_config_text(model_shape(model, 16), {})).at("n_inner").is_null());
  model.d_ff = 40;
  EXPECT_EQ(json::parse(hf_config_text(model_shape(model, 16), {})).at("n_inner"), 40);
}

}  // namespace
}  // namespace isthmus::this_file
