// SPDX-License-Identifier: Apache-2.0
// When a step's work is recorded as a graph and launched as one, on the emulated device, which
// counts graphs and can refuse them.
#include "core/base/log.h"
#include "cuda/emulated/runtime.h"
#include "cuda/training_case.h"

namespace isthmus::this_file {
namespace {
using cuda::emulated::GraphCounts;
using testing::AllOf;
using testing::HasSubstr;

class StepGraphs : public CudaLoopTest {
 protected:
  void SetUp() override { static_cast<void>(cuda::emulated::take_graph_counts()); }
  void TearDown() override { cuda::emulated::set_graphs_fail(false); }
  LanguageModelOptions options_ = tiny_options("gpt2");
};

/// Batches of these lengths in turn.
[[nodiscard]] BatchProvider in_turn(const std::vector<std::int64_t>& lengths) {
  auto batches = std::make_shared<std::vector<RandomBatches>>();  // shared by the provider's copies
  for (const std::int64_t length : lengths) batches->emplace_back(kVocab, kSequences, length);
  return [batches](StepIndex t) {
    return (*batches)[static_cast<std::size_t>(t.value()) % batches->size()].at(t);
  };
}

TEST_F(StepGraphs, HoldForEveryNumberOfTargets) {
  SparseBatches one(true), other(true);
  CudaLoop graphs(options_, one.provider());
  CudaLoop plain(options_, other.provider(), {.graphs = false});
  EXPECT_EQ(train(graphs, 1, 7), train(plain, 1, 7));
  // Pass and update are queued in step 1 and recorded in step 2.
  EXPECT_EQ(cuda::emulated::take_graph_counts(), (GraphCounts{.recorded = 2, .launched = 12}));
}

TEST_F(StepGraphs, OfTwoLengthsInTurnAreBothHeld) {
  CudaLoop graphs(options_, in_turn({kLength, kLength - 3}));
  CudaLoop plain(options_, in_turn({kLength, kLength - 3}), {.graphs = false});
  EXPECT_EQ(train(graphs, 1, 8), train(plain, 1, 8));
  EXPECT_EQ(cuda::emulated::take_graph_counts(),
            (GraphCounts{.recorded = 3, .launched = 6 + 7}));  // the update has one
}

TEST_F(StepGraphs, OfMoreLengthsGoOnceOthersCome) {
  const std::vector<std::int64_t> lengths = {kLength, kLength - 1, kLength - 2};
  CudaLoop graphs(options_, in_turn(lengths));
  CudaLoop plain(options_, in_turn(lengths), {.graphs = false});
  EXPECT_EQ(train(graphs, 1, 7), train(plain, 1, 7));
  EXPECT_EQ(cuda::emulated::take_graph_counts(), (GraphCounts{.recorded = 1, .launched = 6}));
}

TEST_F(StepGraphs, ThatTheDeviceDoesNotTakeAreSaidOnceAndDoneWithout) {
  std::vector<std::string> lines;
  set_log_sink([&](LogLevel, std::string_view line) { lines.emplace_back(line); });
  cuda::emulated::set_graphs_fail(true);
  CudaLoop refused(options_, batches_.provider());
  const Trajectory without = train(refused, 1, 6);
  set_log_sink({});
  EXPECT_EQ(cuda::emulated::take_graph_counts(), GraphCounts{});
  const auto said = [](const char* work) {
    return AllOf(HasSubstr("takes no graph of the " + std::string(work) + " (CUDA: cudaGraph"),
                 HasSubstr("queued one by one"));
  };
  EXPECT_THAT(lines, testing::ElementsAre(said("forward and backward pass"), said("update")));
  CudaLoop plain(options_, cpu_batches_.provider(), {.graphs = false});
  EXPECT_EQ(without, train(plain, 1, 6));
}

}  // namespace
}  // namespace isthmus::this_file
