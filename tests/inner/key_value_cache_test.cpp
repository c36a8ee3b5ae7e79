// SPDX-License-Identifier: Apache-2.0
#include "inner/model/key_value_cache.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "inner/inner_test.h"
#include "inner/loop/generate.h"
#include "inner/model/init.h"
#include "inner/model/model.h"
#include "inner/model_families.h"

namespace isthmus::this_file {
namespace {

// Of the largest logit: sums of a row in another order.
constexpr double kRounding = 1e-5;
constexpr std::int64_t kTokens = 40;  // ten windows of model_families.h
constexpr std::int64_t kVocab = 29;

using Model = LanguageModel<float>;

ModelConfig small(std::string arch) {
  return {.arch = std::move(arch),
          .layers = 3,
          .d_model = 32,
          .heads = 4,
          .kv_heads = 2,
          .d_ff = 48,
          .vocab = kVocab,
          .context = kTokens};
}

ModelConfig scaled(RopeType type) {
  ModelConfig model = small("llama");
  model.family.rope = {.type = type, .factor = 4, .original_positions = 16};
  return model;
}

ModelConfig model_of(const std::string& name) {
  if (name == "gpt2") {
    ModelConfig model = small("gpt2");
    model.kv_heads = 0;
    return model;
  }
  if (name == "llama") return small("llama");
  if (name == "qwen3") {
    ModelConfig model = small("llama");
    model.head_dim = 20;
    model.tied = false;
    model.qk_norm = true;
    return model;
  }
  if (name == "linear") return scaled(RopeType::kLinear);
  if (name == "llama3") return scaled(RopeType::kLlama3);
  if (name == "dynamic") return scaled(RopeType::kDynamic);
  return of_family(small("llama"), name);
}

std::vector<std::string> all_names() {
  std::vector<std::string> names = family_names();
  names.insert(names.end(), {"gpt2", "llama", "qwen3", "linear", "llama3", "dynamic"});
  return names;
}

std::vector<std::int32_t> some_tokens(std::int64_t count) {
  std::vector<std::int32_t> tokens;
  for (std::int64_t i = 0; i < count; ++i) {
    tokens.push_back(static_cast<std::int32_t>((i * i + 3 * i) % kVocab));
  }
  return tokens;
}

double difference(const std::vector<float>& a, const std::vector<float>& b) {
  double most = 0, largest = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    most = std::max(most, std::abs(static_cast<double>(a[i]) - static_cast<double>(b[i])));
    largest = std::max(largest, std::abs(static_cast<double>(b[i])));
  }
  return most / largest;
}

class ModelValues final : public ParameterSource {
 public:
  explicit ModelValues(const ModelLayout& layout)
      : all(static_cast<std::size_t>(layout.elements())), layout_(layout) {
    kernels::ThreadTeam team(1);
    initialize(team, layout, 3, all);
    const Rng rng{5, Stream::kTestData};  // biases and norms of an untrained model hide mistakes
    for (std::size_t i = 0; i < all.size(); ++i) {
      all[i] += 0.2F * static_cast<float>(rng.uniform(i) - 0.5);
    }
  }
  [[nodiscard]] std::span<const float> values(std::size_t parameter) const override {
    const auto& elements = layout_.tensors()[parameter].elements;
    return std::span(all).subspan(static_cast<std::size_t>(elements.begin),
                                  static_cast<std::size_t>(elements.size()));
  }
  std::vector<float> all;

 private:
  const ModelLayout& layout_;
};

class KeyValueCacheTest : public testing::TestWithParam<std::string> {
 protected:
  std::vector<float> from_whole_context(std::size_t count) {
    Model model(layout_, kTokens, Model::Purpose::kInference);
    std::vector<float> logits(kVocab);
    model.next_token_logits(team_, weights_, std::span(tokens_).first(count), logits.data());
    return logits;
  }

  kernels::ThreadTeam team_{2};
  ModelLayout layout_{model_shape(model_of(GetParam()), kTokens)};
  ModelValues values_{layout_};
  FlatWeights<float> weights_{layout_, values_.all.data()};
  std::vector<std::int32_t> tokens_ = some_tokens(kTokens);
};

TEST_P(KeyValueCacheTest, GivesTheLogitsOfTheWholeContextAtEveryPosition) {
  constexpr std::int64_t kRows = 3;  // the prompt takes three passes, of 3, 3 and 1 tokens
  Model model(layout_, kRows, Model::Purpose::kInference);
  KeyValueCache cache(layout_.shape(), kTokens);
  std::vector<float> logits(kVocab);
  model.next_token_logits(team_, weights_, cache, std::span(tokens_).first(7), logits.data());
  EXPECT_LE(difference(logits, from_whole_context(7)), kRounding) << "the prompt";
  for (std::size_t n = 8; n <= tokens_.size(); ++n) {
    model.next_token_logits(team_, weights_, cache, std::span(tokens_).subspan(n - 1, 1),
                            logits.data());
    EXPECT_LE(difference(logits, from_whole_context(n)), kRounding) << "token " << n;
  }
  EXPECT_EQ(cache.seen(), kTokens);
}

TEST_P(KeyValueCacheTest, GeneratesTheIdsOfTheWholeContext) {
  const auto ids = [&](bool cache) {
    std::vector<std::int32_t> found;
    ContinueOptions options;
    options.tokens = kTokens;
    options.sampling.temperature = 0;
    options.cache = cache;
    options.on_token = [&](std::int32_t token) {
      found.push_back(token);
      return true;
    };
    EXPECT_EQ(continue_prompt(layout_.shape(), values_, std::span(tokens_).first(5), options),
              GenerateEnd::kPositions);
    return found;
  };
  const std::vector<std::int32_t> cached = ids(true);
  EXPECT_EQ(cached.size(), static_cast<std::size_t>(kTokens - 5 + 1));
  EXPECT_EQ(cached, ids(false));
}

INSTANTIATE_TEST_SUITE_P(Families, KeyValueCacheTest, testing::ValuesIn(all_names()),
                         [](const auto& each) {
                           std::string name = each.param;
                           std::ranges::replace(name, '-', '_');
                           return name;
                         });

// continue_prompt takes 256 tokens of a prompt at once: here two whole parts and a rest, whose
// window and rotary positions go on across the borders.
TEST(KeyValueCache, TakesALongPromptInParts) {
  constexpr std::int64_t kLong = 600;
  ModelConfig config = model_of("gemma3");
  config.context = kLong + 3;
  const ModelLayout layout(model_shape(config, config.context));
  ModelValues values(layout);
  const std::vector<std::int32_t> prompt = some_tokens(kLong);
  const auto ids = [&](bool cache) {
    std::vector<std::int32_t> found;
    ContinueOptions options;
    options.tokens = 3;
    options.sampling.temperature = 0;
    options.cache = cache;
    options.on_token = [&](std::int32_t token) {
      found.push_back(token);
      return true;
    };
    (void)continue_prompt(layout.shape(), values, prompt, options);
    return found;
  };
  EXPECT_EQ(ids(true), ids(false));
  FlatWeights<float> weights(layout, values.all.data());
  kernels::ThreadTeam team(2);
  std::vector<float> cached(kVocab), whole(kVocab);
  Model in_parts(layout, 256, Model::Purpose::kInference);
  KeyValueCache cache(layout.shape(), kLong);
  in_parts.next_token_logits(team, weights, cache, prompt, cached.data());
  Model at_once(layout, kLong, Model::Purpose::kInference);
  at_once.next_token_logits(team, weights, prompt, whole.data());
  EXPECT_LE(difference(cached, whole), kRounding);
}

TEST(KeyValueCache, ServesModelsInBf16) {
  const ModelLayout layout(model_shape(model_of("gemma3"), kTokens));
  ModelValues values(layout);
  FlatWeights<float> weights(layout, values.all.data());
  kernels::ThreadTeam team(2);
  const std::vector<std::int32_t> tokens = some_tokens(kTokens);
  Model model(layout, kTokens, Model::Purpose::kInference, true);
  KeyValueCache cache(layout.shape(), kTokens);
  std::vector<float> cached(kVocab), whole(kVocab);
  for (const std::int32_t& token : tokens) {
    model.next_token_logits(team, weights, cache, std::span(&token, 1), cached.data());
  }
  model.next_token_logits(team, weights, tokens, whole.data());
  constexpr double kBf16Rounding = 1.0 / 64;  // a few of 2^-8
  EXPECT_LE(difference(cached, whole), kBf16Rounding);
}

}  // namespace
}  // namespace isthmus::this_file
