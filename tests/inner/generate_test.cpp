// SPDX-License-Identifier: Apache-2.0
#include "inner/loop/generate.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "inner/inner_test.h"

namespace isthmus::this_file {
namespace {

TEST(DrawToken, TakesTheMostLikelyAtTemperatureZero) {
  const std::vector<float> logits = {0.5f, 2.0f, 2.0f, -1.0f};
  for (const double u : {0.0, 0.5, 0.999})
    EXPECT_EQ(draw_token(logits, {.temperature = 0, .top_k = 0}, u), 1);
  EXPECT_EQ(draw_token(logits, {.temperature = 1, .top_k = 1}, 0.999), 1);
}

TEST(DrawToken, FollowsTheSoftmax) {
  const std::vector<float> logits = {std::log(1.0f), std::log(2.0f), std::log(5.0f)};
  const std::vector<double> expected = {1.0 / 8, 2.0 / 8, 5.0 / 8};
  constexpr int kDraws = 8000;  // at equal steps, so each count is exact to one
  std::vector<int> count(3);
  for (int i = 0; i < kDraws; ++i) {
    ++count[static_cast<std::size_t>(
        draw_token(logits, {.temperature = 1, .top_k = 0}, (i + 0.5) / kDraws))];
  }
  for (std::size_t k = 0; k < 3; ++k) EXPECT_NEAR(count[k], kDraws * expected[k], 1.5) << k;
}

TEST(DrawToken, KeepsToTheTopK) {
  const std::vector<float> logits = {1.0f, 3.0f, 2.0f, 0.0f};
  for (int i = 0; i < 100; ++i) {
    const std::int32_t token = draw_token(logits, {.temperature = 1, .top_k = 2}, i / 100.0);
    EXPECT_TRUE(token == 1 || token == 2) << token;
  }
}

TEST(DrawToken, KeepsToTheSmallestSetThatReachesTopP) {
  // Probabilities 5/8, 2/8 and 1/8, of tokens 2, 1 and 0.
  const std::vector<float> logits = {std::log(1.0f), std::log(2.0f), std::log(5.0f)};
  const auto drawn = [&](double top_p) {
    std::set<std::int32_t> tokens;
    for (int i = 0; i < 100; ++i) {
      tokens.insert(draw_token(logits, {.temperature = 1, .top_k = 0, .top_p = top_p}, i / 100.0));
    }
    return tokens;
  };
  EXPECT_EQ(drawn(0.01), std::set<std::int32_t>({2}));
  EXPECT_EQ(drawn(0.62), std::set<std::int32_t>({2}));
  EXPECT_EQ(drawn(0.63), std::set<std::int32_t>({1, 2}));
  EXPECT_EQ(drawn(0.87), std::set<std::int32_t>({1, 2}));
  EXPECT_EQ(drawn(0.88), std::set<std::int32_t>({0, 1, 2}));
  // Within the set the weights keep their ratio, here 5 : 2.
  const Sampling sampling{.temperature = 1, .top_k = 0, .top_p = 0.7};
  EXPECT_EQ(draw_token(logits, sampling, 5.0 / 7 - 0.01), 2);
  EXPECT_EQ(draw_token(logits, sampling, 5.0 / 7 + 0.01), 1);
}

class GenerateTest : public testing::Test {
 protected:
  GenerateTest() {
    options_.model = {
        .arch = "llama", .layers = 2, .d_model = 32, .heads = 2, .vocab = 7, .context = 12};
    options_.inner.lr = 5e-3;
    options_.context = 12;
    options_.sequences = 7;
    options_.total_steps = 200;
  }
  LanguageModelOptions options_;
};

TEST_F(GenerateTest, IsAFunctionOfTheSeed) {
  RandomBatches batches(7, 7, 12);
  LanguageModelLoop loop(options_, batches.provider());
  const LoopParameters parameters(loop.parameters());
  const std::vector<std::int32_t> prompt = {3, 1};
  const auto text = [&](std::uint64_t seed) {
    return generate(loop.layout().shape(), parameters, prompt, {.tokens = 40, .seed = seed});
  };
  EXPECT_EQ(text(1).size(), 40u);
  EXPECT_EQ(text(1), text(1));
  EXPECT_NE(text(1), text(2));
}

TEST_F(GenerateTest, ContinuesASequenceItWasTaught) {
  // Sequence b counts from b: each token is the one before plus one, modulo 7.
  std::vector<std::int32_t> inputs;
  std::vector<std::int32_t> targets;
  for (std::int32_t b = 0; b < 7; ++b) {
    for (std::int32_t i = 0; i < 12; ++i) {
      inputs.push_back((b + i) % 7);
      targets.push_back((b + i + 1) % 7);
    }
  }
  LanguageModelLoop loop(options_, [&](StepIndex) { return TokenBatch{inputs, targets, 7, 12}; });
  for (int t = 1; t <= 120; ++t) static_cast<void>(loop.train_step(StepIndex(t)));
  const std::vector<std::int32_t> prompt = {4};
  const std::vector<std::int32_t> text =
      generate(loop.layout().shape(), LoopParameters(loop.parameters()), prompt,
               {.tokens = 30, .sampling = {.temperature = 0}});  // longer than the context
  for (std::size_t i = 0; i < text.size(); ++i) {
    EXPECT_EQ(text[i], static_cast<std::int32_t>((5 + i) % 7)) << i;
  }
}

TEST_F(GenerateTest, RefusesATokenOutsideTheVocabulary) {
  RandomBatches batches(7, 7, 12);
  LanguageModelLoop loop(options_, batches.provider());
  const std::vector<std::int32_t> prompt = {7};
  EXPECT_THROW(static_cast<void>(
                   generate(loop.layout().shape(), LoopParameters(loop.parameters()), prompt, {})),
               ConfigError);
}

TEST_F(GenerateTest, StopsAtAnEndTokenTheLastPositionAndWhenTold) {
  RandomBatches batches(7, 7, 12);
  LanguageModelLoop loop(options_, batches.provider());
  const LoopParameters parameters(loop.parameters());
  const std::vector<std::int32_t> prompt = {3, 1};
  std::vector<std::int32_t> tokens;
  ContinueOptions options;
  options.sampling = {.temperature = 0};
  options.on_token = [&](std::int32_t token) {
    tokens.push_back(token);
    return tokens.size() < 100;
  };
  const auto end = [&] {
    tokens.clear();
    return continue_prompt(loop.layout().shape(), parameters, prompt, options);
  };
  // Twelve positions hold a prompt of two and ten more; one more token follows the last position.
  EXPECT_EQ(end(), GenerateEnd::kPositions);
  EXPECT_EQ(tokens.size(), 11u);
  const std::vector<std::int32_t> all = tokens;
  options.tokens = 4;
  EXPECT_EQ(end(), GenerateEnd::kTokens);
  EXPECT_EQ(tokens, std::vector<std::int32_t>(all.begin(), all.begin() + 4));
  const std::vector<std::int32_t> ends = {all[3]};
  options.end_tokens = ends;
  EXPECT_EQ(end(), GenerateEnd::kEndToken);
  EXPECT_EQ(std::ranges::count(tokens, all[3]), 0);
  options.end_tokens = {};
  options.on_token = [&](std::int32_t token) {
    tokens.push_back(token);
    return tokens.size() < 2;
  };
  EXPECT_EQ(end(), GenerateEnd::kStopped);
  EXPECT_EQ(tokens.size(), 2u);
}

TEST_F(GenerateTest, RefusesAPromptThatDoesNotFit) {
  RandomBatches batches(7, 7, 12);
  LanguageModelLoop loop(options_, batches.provider());
  const LoopParameters parameters(loop.parameters());
  const auto with = [&](std::vector<std::int32_t> prompt) {
    return continue_prompt(loop.layout().shape(), parameters, prompt, {});
  };
  EXPECT_THROW(with({}), ConfigError);
  EXPECT_THROW(with({7}), ConfigError);
  EXPECT_THROW(with(std::vector<std::int32_t>(13, 1)), ConfigError);
}

}  // namespace
}  // namespace isthmus::this_file
