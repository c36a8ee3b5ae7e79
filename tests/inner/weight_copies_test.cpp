// SPDX-License-Identifier: Apache-2.0
// Weights that live at ranks which are processes: what travels to and from the canonical copy.
#include "inner/model/weight_copies.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <string>
#include <tuple>
#include <vector>

#include "inner/zero_test.h"

namespace isthmus::this_file {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

ModelLayout small_layout() {
  const LanguageModelOptions o = model_of("llama-tied");
  return ModelLayout(model_shape(o.model, o.context));
}

TEST(WeightCopies, RanksHaveNothingAtFirstAndAllThatIsNewAfterAnUpdate) {
  WeightCopies copies(small_layout());
  EXPECT_THAT(copies.newer_in_canonical(), ElementsAre(copies.all()));
  EXPECT_THAT(copies.newer_at_ranks(copies.all()), IsEmpty());
  copies.are_alike(copies.all());
  EXPECT_THAT(copies.newer_in_canonical(), IsEmpty());
  copies.ranks_updated();
  EXPECT_THAT(copies.newer_at_ranks(copies.all()), ElementsAre(copies.all()));
}

TEST(WeightCopies, JoinNeighboursAndLeaveOutWhatIsNotAskedFor) {
  WeightCopies copies(small_layout());
  copies.ranks_updated();
  copies.are_alike({2, 4});
  copies.canonical_is_newer({3, 6});
  const std::size_t all = copies.all().end;
  EXPECT_THAT(copies.newer_at_ranks(copies.all()),
              ElementsAre(TensorRange{0, 2}, TensorRange{6, all}));
  EXPECT_THAT(copies.newer_at_ranks({1, 7}), ElementsAre(TensorRange{1, 2}, TensorRange{6, 7}));
  EXPECT_THAT(copies.newer_in_canonical(), ElementsAre(TensorRange{3, 6}));
}

TEST(WeightCopies, ElementsAreThoseOfTensorsTheyCut) {
  const ModelLayout layout = small_layout();
  const WeightCopies copies(layout);
  const CanonicalRange second = layout.tensors()[1].elements;
  EXPECT_EQ(copies.tensors_of(second), (TensorRange{1, 2}));
  EXPECT_EQ(copies.tensors_of({second.begin - 1, second.begin + 1}), (TensorRange{0, 2}));
  EXPECT_EQ(copies.tensors_of({second.end - 1, second.end}), (TensorRange{1, 2}));
  EXPECT_EQ(copies.tensors_of({0, layout.elements()}), copies.all());
  EXPECT_EQ(copies.tensors_of({second.begin, second.begin}), (TensorRange{}));
}

class RanksWeightsTest : public testing::TestWithParam<std::tuple<const char*, Case, int>> {
 protected:
  RanksWeightsTest() { options_.total_steps = 100; }

  LanguageModelOptions options_ = with_zero(
      on_mesh(clipped(std::get<0>(GetParam())), std::get<1>(GetParam())), std::get<2>(GetParam()));
};

// What stands in the canonical copy is neither read nor written by steps.
TEST_P(RanksWeightsTest, OrdinaryStepsLeaveTheCanonicalCopyAlone) {
  const Trajectory threads = trained(options_);
  with_processes(options_, [&](const LanguageModelOptions& options) {
    constexpr float kNobodys = std::numeric_limits<float>::quiet_NaN();
    RandomBatches batches(kVocab, options.sequences, options.context);
    LanguageModelLoop loop(options, batches.provider());
    Trajectory found;
    const auto step = [&](int t) {
      const InnerStep taken = loop.train_step(StepIndex(t));
      found.losses.push_back(taken.loss);
      found.norms.push_back(taken.grad_norm);
    };
    step(1);
    for (const Parameter& p : loop.parameters()) std::ranges::fill(p.values, kNobodys);
    for (int t = 2; t <= kSteps; ++t) step(t);
    const auto is_nobodys = [](float value) { return value != value; };
    const std::size_t middle = loop.parameters().size() / 2;
    loop.read_values(loop.parameters()[middle].elements);
    for (std::size_t i = 0; i < loop.parameters().size(); ++i) {
      const std::span<float> values = loop.parameters()[i].values;
      EXPECT_EQ(std::ranges::count_if(values, is_nobodys),
                i == middle ? 0 : static_cast<std::ptrdiff_t>(values.size()))
          << loop.parameters()[i].name;
    }
    found.values = all_values(loop);
    expect_same(threads, found);
  });
}

// Single tensors and parts of tensors, read before or not, between steps and before an update.
TEST_P(RanksWeightsTest, WhatIsWrittenReachesEveryRank) {
  const auto run = [](const LanguageModelOptions& options) {
    RandomBatches batches(kVocab, options.sequences, options.context);
    LanguageModelLoop loop(options, batches.provider());
    Trajectory all;
    train(loop, 1, 1, all);
    const std::span<const Parameter> parameters = loop.parameters();
    const auto write = [&](CanonicalRange elements, float value) {
      for (const Parameter& p : parameters) {
        const CanonicalRange part = common(p.elements, elements);
        std::fill_n(p.values.data() + (part.begin - p.elements.begin), part.size(), value);
      }
      loop.wrote_values(elements);
    };
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      (void)loop.train_step(StepIndex(static_cast<std::int64_t>(2 + i)));
      const CanonicalRange elements = parameters[i].elements;
      // Its second half and the next one's first.
      write({elements.begin + elements.size() / 2, elements.end + 1}, 0.01f);
      write({elements.begin, elements.begin + 1}, 0.02f);
    }
    const CopiedParameters others(loop);
    train(loop, 60, 60, all);
    all.losses.push_back(loop.loss(RandomBatches(kVocab, 3, 7).at(StepIndex(9)), others));
    write(parameters.back().elements, 0.5f);  // the ranks have the others' weights
    train(loop, 61, 61, all);
    return all;
  };
  const Trajectory threads = run(options_);
  with_processes(options_, [&](const LanguageModelOptions& options) {
    const Trajectory found = run(options);
    EXPECT_EQ(found.losses, threads.losses);
    EXPECT_EQ(found.values, threads.values);
  });
}

// The ranks have one set of weights: those of an evaluation are not there any more after a step,
// nor the own ones after an evaluation, and some that are alike are both.
TEST_P(RanksWeightsTest, EvaluationsAndStepsTakeTurns) {
  const auto run = [](const LanguageModelOptions& options) {
    RandomBatches batches(kVocab, options.sequences, options.context);
    LanguageModelLoop loop(options, batches.provider());
    RandomBatches others(kVocab, 3, 7);
    const TokenBatch batch = others.at(StepIndex(9));
    Trajectory all;
    const auto step = [&](int t) { all.losses.push_back(loop.train_step(StepIndex(t)).loss); };
    const auto evaluate = [&](const CopiedParameters& source) {
      all.losses.push_back(loop.loss(batch, source));
    };
    step(1);
    const CopiedParameters first(loop);
    step(2);
    evaluate(first);
    evaluate(first);
    step(3);
    evaluate(first);  // the same as before the step
    const CopiedParameters own(loop);
    evaluate(own);  // while the ranks have the others
    evaluate(own);
    step(4);
    evaluate(CopiedParameters(loop));  // which the ranks have
    evaluate(first);
    step(5);
    all.values = all_values(loop);
    return all;
  };
  const Trajectory threads = run(options_);
  with_processes(options_, [&](const LanguageModelOptions& options) {
    const Trajectory found = run(options);
    EXPECT_EQ(found.losses, threads.losses);
    EXPECT_EQ(found.values, threads.values);
  });
}

std::string test_name(const testing::TestParamInfo<RanksWeightsTest::ParamType>& at) {
  std::string name = std::string(std::get<0>(at.param)) + std::get<1>(at.param).name + "zero" +
                     std::to_string(std::get<2>(at.param));
  std::erase_if(name, [](char c) { return std::isalnum(c) == 0; });
  return name;
}

const Case kCases[] = {
    {"dp2", {.dp = 2}},
    {"tp2 pp2 dp2", {.tp = 2, .pp = 2, .dp = 2}, 2},
    {"interleaved", {.pp = 2, .dp = 2}, 2, PipelineKind::kInterleaved, 2},
    {"split", {.tp = 2, .dp = 2, .sequence_parallel = true}},
};
INSTANTIATE_TEST_SUITE_P(Meshes, RanksWeightsTest,
                         testing::Combine(testing::Values("gpt2", "llama-tied", "llama-grouped"),
                                          testing::ValuesIn(kCases), testing::Values(1, 2, 3)),
                         test_name);
const Case kCopies[] = {{"tp4 dp2", {.tp = 4, .dp = 2}}};
INSTANTIATE_TEST_SUITE_P(CopiedKeyHeads, RanksWeightsTest,
                         testing::Combine(testing::Values("llama-two-keys"),
                                          testing::ValuesIn(kCopies), testing::Values(1, 3)),
                         test_name);

}  // namespace
}  // namespace isthmus::this_file
