// SPDX-License-Identifier: Apache-2.0
// ZeRO in pipelines, where micro-batches' passes are mixed.
#include <gtest/gtest.h>

#include <string>
#include <tuple>
#include <vector>

#include "inner/zero_test.h"

namespace isthmus::this_file {
namespace {

/// The oracle is one stage with as many micro-batches, which sums as often.
class ZeroPipelinesTest : public testing::TestWithParam<std::tuple<const char*, Case, int>> {
 protected:
  [[nodiscard]] LanguageModelOptions deep(const Case& c) const {
    LanguageModelOptions o = clipped(std::get<0>(GetParam()));
    o.model.layers = 7;  // of which no stage has as many as another
    o.sequences = 16;
    return with_zero(on_mesh(o, c), std::get<2>(GetParam()));
  }
  [[nodiscard]] LanguageModelOptions one_stage() const {
    Case c = std::get<1>(GetParam());
    c.mesh.pp = c.virtual_stages = 1;
    c.schedule = PipelineKind::k1F1B;
    return deep(c);
  }
  LanguageModelOptions stages_ = deep(std::get<1>(GetParam()));
};

TEST_P(ZeroPipelinesTest, HaveTheBitsOfOneStage) {
  const Trajectory expected = trained(one_stage());
  const Trajectory found = trained(stages_);
  expect_same(expected, found);
  with_processes(stages_, [&](const LanguageModelOptions& o) { expect_same(found, trained(o)); });
}

// An evaluation of samples that do not divide: ranks without any go on gathering.
TEST_P(ZeroPipelinesTest, EvaluateAsOneStageDoes) {
  const auto evaluated = [](const LanguageModelOptions& options) {
    RandomBatches batches(kVocab, options.sequences, options.context);
    LanguageModelLoop loop(options, batches.provider());
    std::vector<double> losses;
    for (int t = 1; t <= 2; ++t) {
      (void)loop.train_step(StepIndex(t));
      const CopiedParameters now(loop);
      for (const int sequences : {1, 5, 16}) {
        losses.push_back(loop.loss(RandomBatches(kVocab, sequences, 12).at(StepIndex(9)), now));
      }
    }
    return losses;
  };
  constexpr double kRounding = 1e-6;  // of losses
  const std::vector<double> expected = evaluated(one_stage());
  const auto expect = [&](const LanguageModelOptions& options) {
    const std::vector<double> found = evaluated(options);
    for (std::size_t i = 0; i < expected.size(); ++i) {
      EXPECT_NEAR(found[i], expected[i], kRounding * expected[i]) << i;
    }
  };
  expect(stages_);
  with_processes(stages_, expect);
}

std::string test_name(const testing::TestParamInfo<ZeroPipelinesTest::ParamType>& at) {
  std::string name = std::string(std::get<0>(at.param)) + std::get<1>(at.param).name + "zero" +
                     std::to_string(std::get<2>(at.param));
  std::erase_if(name, [](char c) { return std::isalnum(c) == 0; });
  return name;
}

const Case kDeepPipelines[] = {
    {"pp2 dp2 of 4", {.pp = 2, .dp = 2}, 4},
    {"pp3 dp2 of 2", {.pp = 3, .dp = 2}, 2},
    {"tp2 pp2 dp2 of 2", {.tp = 2, .pp = 2, .dp = 2}, 2},
    {"interleaved", {.pp = 2, .dp = 2}, 4, PipelineKind::kInterleaved, 2},
    {"interleaved of 3", {.pp = 2, .dp = 4}, 2, PipelineKind::kInterleaved, 3},
};
INSTANTIATE_TEST_SUITE_P(Deep, ZeroPipelinesTest,
                         testing::Combine(testing::Values("gpt2", "llama", "llama-tied"),
                                          testing::ValuesIn(kDeepPipelines),
                                          testing::Values(1, 2, 3)),
                         test_name);

}  // namespace
}  // namespace isthmus::this_file
