// SPDX-License-Identifier: Apache-2.0
// The built-in trainer on a device with its outer state there, and on the host: the same bits.
#include <memory>

#include "cuda/thread_orders.h"
#include "cuda/training_case.h"
#include "outer/place/outer_placement.h"
#include "outer/toy_loops.h"

namespace isthmus::this_file {
namespace {

class PlacedTraining : public CudaLoopTest {};

struct Outcome {
  std::vector<float> anchors, local;
  std::vector<double> losses;
  bool operator==(const Outcome&) const = default;
};

enum class Place { kHost, kDevice, kPinned };

/// Worker 0 of two, which evaluate their anchors in between.
Outcome train_placed(Place place) {
  Outcome outcome;
  run_in_process(2, [&](WorkerContext& context) {
    LanguageModelOptions options = tiny_options("gpt2");
    options.bf16 = true;  // whose rounded copies must follow
    RandomBatches batches(kVocab, kSequences, kLength);
    const std::int64_t shift = 100 * context.rank.value();
    CudaLoop loop(options, [&](StepIndex t) { return batches.at(StepIndex(t.value() + shift)); });
    const OuterOptions outer{
        .H = 2, .fragments = 2, .overlap = 1, .alpha = 0.5, .codec = "int8:64:ef"};
    constexpr const char* kMethod = "streaming-diloco";
    Exchange& exchange = context.exchange;
    const auto strategy =
        place == Place::kDevice
            ? outer::make_outer_strategy_on_device(kMethod, outer, loop, exchange, loop)
        : place == Place::kPinned
            ? outer::make_outer_strategy_beside_device(kMethod, outer, loop, exchange, loop)
            : make_outer_strategy(kMethod, outer, loop, exchange);
    RandomBatches fixed(kVocab, kSequences, kLength);
    std::vector<double> losses;
    for (int t = 1; t <= 5; ++t) {
      losses.push_back(strategy->step().inner.loss);
      if (t == 3) losses.push_back(loop.loss(fixed.at(StepIndex(999)), *strategy));
    }
    static_cast<void>(strategy->finish());
    if (context.rank != WorkerId(0)) return;
    outcome = {testing_support::anchors_of(*strategy, loop), values_now(loop), losses};
  });
  return outcome;
}

TEST_F(PlacedTraining, IsTheSameInAllPlaces) {
  const Outcome host = train_placed(Place::kHost);
  EXPECT_EQ(host, train_placed(Place::kDevice));
  EXPECT_EQ(host, train_placed(Place::kPinned));
  EXPECT_NE(host.local, host.anchors);
  // The first stream, that of a loop, late and all others early, the outer loop's among them.
  cuda::use_stream_order(cuda::stream_orders().size() > 1 ? 2 : 0);
  EXPECT_EQ(host, train_placed(Place::kDevice));
  cuda::use_stream_order(0);
}

/// Other weights, which come when the passes of a step are queued.
class ChangesWeights final : public cuda::OverlapHooks {
 public:
  ChangesWeights(CudaLoop& loop, std::vector<float> weights)
      : loop_(loop), weights_(std::move(weights)) {}
  [[nodiscard]] bool passes_are_queued() noexcept override {
    if (++steps_ != 3) return false;
    cuda::copy<float>(loop_.stream(), loop_.device_values(), weights_.data(), weights_.size());
    loop_.wrote_device_values(all_elements(loop_));
    return true;
  }
  void step_is_queued(StepIndex t) noexcept override { queued_.push_back(t.value()); }
  void values_are_asked_for() noexcept override { ++asked_for_; }
  [[nodiscard]] const std::vector<std::int64_t>& queued() const { return queued_; }
  [[nodiscard]] int asked_for() const { return asked_for_; }

 private:
  CudaLoop& loop_;
  std::vector<float> weights_;
  std::vector<std::int64_t> queued_;
  int steps_ = 0, asked_for_ = 0;
};

TEST_F(PlacedTraining, PassesBeginAnewWhereWeightsHaveChangedUnderThem) {
  LanguageModelOptions options = tiny_options("gpt2");
  options.bf16 = true;
  CudaLoop before(options, batches_.provider());
  CudaLoop under(options, batches_.provider());
  std::vector<float> others = values_now(before);
  for (float& each : others) each *= 0.75f;
  static_cast<void>(train(before, 1, 2));
  set_values(before, others);
  const Trajectory expected = train(before, 3, 5);
  ChangesWeights changes(under, others);
  ASSERT_TRUE(under.go_beside(&changes));
  static_cast<void>(train(under, 1, 2));
  EXPECT_EQ(expected, train(under, 3, 5));
  EXPECT_EQ(changes.queued(), (std::vector<std::int64_t>{1, 2, 3, 4, 5}));
  EXPECT_GT(changes.asked_for(), 0);  // by `train`, which reads the values at its end
  static_cast<void>(under.go_beside(nullptr));
}

}  // namespace
}  // namespace isthmus::this_file
