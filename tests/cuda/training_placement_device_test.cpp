// SPDX-License-Identifier: Apache-2.0
// The built-in trainer on a device with its outer state there, and on the host: the same bits.
#include <memory>

#include "cuda/training_case.h"
#include "outer/outer_placement.h"
#include "outer/toy_loops.h"

namespace isthmus {
namespace {

class PlacedTraining : public CudaLoopTest {};

struct Outcome {
  std::vector<float> anchors, local;
  std::vector<double> losses;
  bool operator==(const Outcome&) const = default;
};

/// Worker 0 of two, which evaluate their anchors in between.
Outcome train_placed(bool on_device) {
  Outcome outcome;
  run_in_process(2, [&](WorkerContext& context) {
    LanguageModelOptions options = tiny_options("gpt2");
    options.bf16 = true;  // whose rounded copies must follow
    RandomBatches batches(kVocab, kSequences, kLength);
    const std::int64_t shift = 100 * context.rank.value();
    CudaLoop loop(options, [&](StepIndex t) { return batches.at(StepIndex(t.value() + shift)); });
    const OuterOptions outer{
        .H = 2, .fragments = 2, .overlap = 1, .alpha = 0.5, .codec = "int8:64:ef"};
    const auto strategy =
        on_device ? outer::make_outer_strategy_on_device("streaming-diloco", outer, loop,
                                                         context.exchange, loop)
                  : make_outer_strategy("streaming-diloco", outer, loop, context.exchange);
    RandomBatches fixed(kVocab, kSequences, kLength);
    std::vector<double> losses;
    for (int t = 1; t <= 5; ++t) {
      losses.push_back(strategy->step().inner.loss);
      if (t == 3) losses.push_back(loop.loss(fixed.at(StepIndex(999)), *strategy));
    }
    static_cast<void>(strategy->finish());
    if (context.rank != Rank(0)) return;
    outcome = {testing_support::anchors_of(*strategy, loop), values_now(loop), losses};
  });
  return outcome;
}

TEST_F(PlacedTraining, IsTheSameInBothPlaces) {
  const Outcome host = train_placed(false);
  EXPECT_EQ(host, train_placed(true));
  EXPECT_NE(host.local, host.anchors);
}

}  // namespace
}  // namespace isthmus
