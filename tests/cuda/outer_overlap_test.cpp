// SPDX-License-Identifier: Apache-2.0
// What the outer loop does beside the inner loop's steps, on the emulated device, which does work
// as late as it may: what has been done was waited for.
#include <fmt/format.h>

#include <functional>
#include <string>
#include <vector>

#include "cuda/device_test.h"
#include "cuda/emulated/runtime.h"
#include "cuda/resident_loop.h"
#include "cuda/thread_orders.h"
#include "outer/place/device_encoder.h"
#include "outer/place/device_places.h"
#include "outer/place/outer_placement.h"
#include "outer/toy_loops.h"

namespace isthmus::this_file {
namespace {

using testing_support::QuadraticLoop;
using testing_support::ResidentLoop;
using Log = std::vector<std::string>;

/// Says when rounds begin and when their results are taken.
class LoggingExchange final : public Exchange {
 public:
  LoggingExchange(Exchange& real, Log& log) : real_(real), log_(log) {}
  [[nodiscard]] WorkerId self() const override { return real_.self(); }
  [[nodiscard]] int members() const override { return real_.members(); }
  [[nodiscard]] EncodeKey key(const SyncId& id) const override { return real_.key(id); }
  Ticket begin(Contribution contribution) override {
    log_.push_back(fmt::format("begin of {}", contribution.id.sent.value()));
    return real_.begin(std::move(contribution));
  }
  [[nodiscard]] bool poll(const Ticket& ticket) override { return real_.poll(ticket); }
  [[nodiscard]] Expected<Reduced, ExchangeError> wait(const Ticket& ticket,
                                                      Duration patience) override {
    log_.push_back(fmt::format("result of {}", ticket.id.sent.value()));
    return real_.wait(ticket, patience);
  }
  [[nodiscard]] ByteCounts bytes() const override { return real_.bytes(); }

 private:
  Exchange& real_;
  Log& log_;
};

class OuterOverlap : public cuda::DeviceTest, public ::testing::WithParamInterface<outer::KeptIn> {
 protected:
  /// `steps` of one worker, whose loop says when it waits for a step.
  void train(const OuterOptions& options, int steps,
             const std::function<void(OuterStrategy&, ResidentLoop&)>& after_step = {}) {
    run_in_process(1, [&](WorkerContext& context) {
      QuadraticLoop real({.tensors = {{0, kTileValues + 9}, {1, 5}}});
      ResidentLoop inner(real);
      inner.on_wait = [&](StepIndex t) { log.push_back(fmt::format("wait in {}", t.value())); };
      LoggingExchange exchange(context.exchange, log);
      const auto strategy = GetParam() == outer::KeptIn::kDevice
                                ? outer::make_outer_strategy_on_device("streaming-diloco", options,
                                                                       inner, exchange, inner)
                                : outer::make_outer_strategy_beside_device(
                                      "streaming-diloco", options, inner, exchange, inner);
      while (strategy->steps().value() < steps) {
        static_cast<void>(strategy->step());
        log.push_back(fmt::format("end of {}", strategy->steps().value()));
        if (after_step) after_step(*strategy, inner);
      }
      waited_for = inner.waited_for();
      EXPECT_EQ(inner.elements_read(), 0);
      if (!looks) return;
      values = testing_support::anchors_of(*strategy, inner);
      inner.read_values(isthmus::all_elements(inner));
      for (const Parameter& each : inner.parameters()) {
        values.insert(values.end(), each.values.begin(), each.values.end());
      }
    });
  }

  Log log;
  int waited_for = 0;
  bool looks = false;         // at the values, in the end
  std::vector<float> values;  // anchors and local ones
};

TEST_P(OuterOverlap, WhatIsSentIsGivenAndWhatIsDueTakenWhileAStepIsComputed) {
  train({.H = 3, .overlap = 2, .alpha = 0.5, .codec = "int8:64:ef"}, 6);
  EXPECT_EQ(log, (Log{"wait in 1", "end of 1", "wait in 2", "end of 2", "wait in 3", "end of 3",
                      "begin of 3", "wait in 4", "end of 4", "result of 3", "wait in 5", "end of 5",
                      "wait in 6", "end of 6"}));
}

TEST_P(OuterOverlap, NeitherPassNorUpdateNorMergeIsWaitedFor) {
  for (const std::string codec : {"fp32", "int8:64:ef"}) {
    train({.H = 4, .fragments = 2, .overlap = 1, .alpha = 0.5, .codec = codec}, 9,
          [](OuterStrategy& strategy, ResidentLoop& inner) {
            EXPECT_FALSE(inner.waited_since_step()) << "step " << strategy.steps().value();
          });
    EXPECT_EQ(waited_for, 0);
  }
}

TEST_P(OuterOverlap, WhatIsSentIsGivenBeforeAnybodyLooks) {
  train({.H = 3, .overlap = 2, .codec = "int8:64:ef"}, 4,
        [&](OuterStrategy& strategy, ResidentLoop& inner) {
          if (strategy.steps().value() != 3) return;
          inner.read_values({});
          log.push_back("looked");
        });
  EXPECT_EQ(log, (Log{"wait in 1", "end of 1", "wait in 2", "end of 2", "wait in 3", "end of 3",
                      "begin of 3", "looked", "wait in 4", "end of 4"}));
}

TEST_P(OuterOverlap, WhatIsAppliedAtOnceIsWaitedFor) {
  train({.H = 2, .codec = "int8:64:ef"}, 2);
  EXPECT_EQ(log,
            (Log{"wait in 1", "end of 1", "wait in 2", "begin of 2", "result of 2", "end of 2"}));
}

TEST(OuterStream, IsOfTheLowestPriority) {
  outer::DeviceEncoder encoder(*make_codec("fp32"), 10, outer::KeptIn::kDevice, {});
  EXPECT_EQ(cuda::emulated::priority_of(encoder.stream()), cuda::Stream::Priority::kLow);
}

// The loop's stream is the first that is made, the encoder's the next.
TEST_P(OuterOverlap, AnchorsAndWeightsAreTheSameInEveryOrderOfStreams) {
  looks = true;
  for (const std::string codec : {"fp32", "int8:64:ef"}) {
    std::vector<std::vector<float>> all;
    for (const int order : cuda::stream_orders()) {
      cuda::use_stream_order(order);
      train({.H = 3, .fragments = 2, .overlap = 1, .alpha = 0.5, .codec = codec}, 10);
      all.push_back(values);
    }
    cuda::use_stream_order(0);
    EXPECT_THAT(all, ::testing::Each(all.front())) << codec;
  }
}

INSTANTIATE_TEST_SUITE_P(All, OuterOverlap,
                         ::testing::Values(outer::KeptIn::kDevice, outer::KeptIn::kPinned),
                         [](const auto& param) {
                           return param.param == outer::KeptIn::kDevice ? "kept_there"
                                                                        : "kept_on_the_host";
                         });

}  // namespace
}  // namespace isthmus::this_file
