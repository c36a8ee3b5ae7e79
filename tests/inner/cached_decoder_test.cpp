// SPDX-License-Identifier: Apache-2.0
#include "inner/model/cached_decoder.h"

#include <gtest/gtest.h>

#include "inner/inner_test.h"
#include "inner/model/init.h"
#include "inner/model/model.h"

namespace isthmus::this_file {
namespace {

// Sums of a row in another order: a few units in the last place of logits of size one.
constexpr double kRounding = 2e-5;

class CachedDecoderTest : public testing::TestWithParam<ModelConfig> {
 protected:
  CachedDecoderTest()
      : layout_(model_shape(GetParam(), 40)),
        values_(static_cast<std::size_t>(layout_.elements())),
        weights_(layout_, values_.data()) {
    initialize(team_, layout_, 3, values_);
    const Rng rng{5, Stream::kTestData};  // biases and norms of an untrained model hide mistakes
    for (std::size_t i = 0; i < values_.size(); ++i) {
      values_[i] += 0.2F * static_cast<float>(rng.uniform(i) - 0.5);
    }
    for (std::int32_t i = 0; i < 40; ++i) tokens_.push_back((i * i + 3 * i) % 29);
  }

  std::vector<float> from_whole_context(std::size_t count) {
    LanguageModel<float> model(layout_, 40, LanguageModel<float>::Purpose::kInference);
    std::vector<float> logits(29);
    model.next_token_logits(team_, weights_, std::span(tokens_).first(count), logits.data());
    return logits;
  }

  kernels::ThreadTeam team_{2};
  ModelLayout layout_;
  std::vector<float> values_;
  FlatWeights<float> weights_;
  std::vector<std::int32_t> tokens_;
};

void expect_near(const std::vector<float>& a, const std::vector<float>& b, std::size_t place) {
  for (std::size_t i = 0; i < a.size(); ++i) {
    EXPECT_NEAR(static_cast<double>(a[i]), static_cast<double>(b[i]), kRounding)
        << "token " << place << ", logit " << i;
  }
}

TEST_P(CachedDecoderTest, GivesTheLogitsOfTheWholeContext) {
  CachedDecoder decoder(layout_, weights_, 40);
  std::vector<float> logits(29);
  decoder.logits(team_, std::span(tokens_).first(7), logits.data());  // a prompt, at once
  expect_near(logits, from_whole_context(7), 7);
  for (std::size_t n = 8; n <= tokens_.size(); ++n) {
    decoder.logits(team_, std::span(tokens_).subspan(n - 1, 1), logits.data());
    expect_near(logits, from_whole_context(n), n);
  }
  EXPECT_EQ(decoder.seen(), 40);
}

INSTANTIATE_TEST_SUITE_P(Families, CachedDecoderTest,
                         testing::Values(ModelConfig{.arch = "gpt2",
                                                     .layers = 2,
                                                     .d_model = 24,
                                                     .heads = 3,
                                                     .vocab = 29,
                                                     .context = 40},
                                         ModelConfig{.arch = "llama",
                                                     .layers = 2,
                                                     .d_model = 32,
                                                     .heads = 4,
                                                     .kv_heads = 2,
                                                     .vocab = 29,
                                                     .context = 40},
                                         ModelConfig{.arch = "llama",
                                                     .layers = 2,
                                                     .d_model = 32,
                                                     .heads = 3,
                                                     .kv_heads = 1,
                                                     .head_dim = 20,
                                                     .vocab = 29,
                                                     .context = 40,
                                                     .tied = false,
                                                     .qk_norm = true}));

TEST(CachedDecoder, TakesALongPromptInParts) {
  const ModelConfig config{
      .arch = "llama", .layers = 1, .d_model = 16, .heads = 2, .vocab = 29, .context = 600};
  const ModelLayout layout(model_shape(config, 600));
  std::vector<float> values(static_cast<std::size_t>(layout.elements()));
  kernels::ThreadTeam team(2);
  initialize(team, layout, 3, values);
  FlatWeights<float> weights(layout, values.data());
  std::vector<std::int32_t> tokens;
  for (std::int32_t i = 0; i < 600; ++i) tokens.push_back((i * i + 3 * i) % 29);
  CachedDecoder decoder(layout, weights, 600);
  std::vector<float> cached(29), whole(29);
  decoder.logits(team, tokens, cached.data());
  LanguageModel<float>(layout, 600, LanguageModel<float>::Purpose::kInference)
      .next_token_logits(team, weights, tokens, whole.data());
  expect_near(cached, whole, 600);
}

}  // namespace
}  // namespace isthmus::this_file
