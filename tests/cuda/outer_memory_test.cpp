// SPDX-License-Identifier: Apache-2.0
// Memory of outer state on the (emulated) device: as much as was said, and words where it ends.
#include <algorithm>
#include <cmath>
#include <latch>
#include <string>
#include <vector>

#include "core/base/log.h"
#include "cuda/device_test.h"
#include "cuda/emulated/runtime.h"
#include "cuda/resident_adam_loop.h"
#include "cuda/resident_loop.h"
#include "outer/adam_loop.h"
#include "outer/losing_exchange.h"
#include "outer/place/outer_placement.h"
#include "outer/toy_loops.h"

namespace isthmus::this_file {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing_support::LosingExchange;
using testing_support::MemoryState;
using testing_support::QuadraticLoop;
using testing_support::ResidentLoop;

class OuterMemory : public cuda::DeviceTest {
 protected:
  void TearDown() override {
    cuda::emulated::set_device_memory(std::size_t{4} << 30);
    cuda::emulated::set_largest_pinned(std::size_t{4} << 30);
  }
  [[nodiscard]] static std::size_t held() {
    const cuda::DeviceMemory memory = cuda::device_memory();
    return memory.total_bytes - memory.free_bytes;
  }
  QuadraticLoop real_{{.tensors = {{0, 3 * kTileValues}, {1, 5}}}};
  ResidentLoop inner_{real_};
};

TEST_F(OuterMemory, IsWhatIsSaid) {
  constexpr double kSmallThings = 1000;  // tables of tiles and levels
  run_in_process(1, [&](WorkerContext& context) {
    for (const OuterOptions& options :
         {OuterOptions{.H = 2}, OuterOptions{.H = 2, .momentum = 0.0, .codec = "int8:ef"},
          OuterOptions{.H = 2, .momentum_every = 2, .fragments = 2}}) {
      const std::size_t before = held();
      const auto strategy = outer::make_outer_strategy_on_device("streaming-diloco", options,
                                                                 inner_, context.exchange, inner_);
      const std::int64_t said =
          outer::outer_device_bytes("streaming-diloco", options, inner_.parameters());
      EXPECT_NEAR(static_cast<double>(held() - before), static_cast<double>(said), kSmallThings);
    }
  });
}

TEST_F(OuterMemory, ThatEndsSaysWhatWasNeededAndWhatHelps) {
  for (const std::size_t room : {10'000, 100'000, 150'000}) {
    cuda::emulated::set_device_memory(held() + room);
    run_in_process(1, [&](WorkerContext& context) {
      try {
        static_cast<void>(outer::make_outer_strategy_on_device(
            "diloco", {.H = 2, .codec = "int8:ef"}, inner_, context.exchange, inner_));
        FAIL() << "a state had room in " << room;
      } catch (const SystemError& error) {
        EXPECT_THAT(error.what(), AllOf(HasSubstr("outer.placement = \"device\""),
                                        HasSubstr("are free"), HasSubstr("\"host\"")));
      }
    });
  }
}

TEST_F(OuterMemory, OnTheHostThatCannotBePinnedSaysWhatHelps) {
  cuda::emulated::set_largest_pinned(1000);
  run_in_process(1, [&](WorkerContext& context) {
    try {
      static_cast<void>(outer::make_outer_strategy_on_device("diloco", {.H = 2}, inner_,
                                                             context.exchange, inner_));
      FAIL() << "a state was pinned";
    } catch (const SystemError& error) {
      EXPECT_THAT(error.what(), AllOf(HasSubstr("outer.placement = \"device\""),
                                      HasSubstr("pinned"), HasSubstr("\"host\"")));
    }
  });
}

// Which asks the loop for its values, as the device does not.
TEST_F(OuterMemory, ThatIsMissingLeavesAStateOnTheHostToTheCpu) {
  const auto values_asked_for = [&](const std::string& method, const OuterOptions& options) {
    const std::int64_t before = inner_.elements_read();
    run_in_process(1, [&](WorkerContext& context) {
      const auto strategy = outer::make_outer_strategy_beside_device(method, options, inner_,
                                                                     context.exchange, inner_);
      static_cast<void>(strategy->step());
    });
    return inner_.elements_read() - before;
  };
  const OuterOptions options{.H = 1, .codec = "int8:64:ef"};
  EXPECT_EQ(values_asked_for("diloco", options), 0);
  EXPECT_GT(values_asked_for("co2", options), 0);
  cuda::emulated::set_largest_pinned(1000);
  EXPECT_GT(values_asked_for("diloco", options), 0);
  cuda::emulated::set_largest_pinned(std::size_t{4} << 30);
  cuda::emulated::set_device_memory(held() + 100'000);
  EXPECT_GT(values_asked_for("diloco", options), 0);
}

// Which has the gradients brought to the host, as the device does not.
TEST_F(OuterMemory, ThatIsMissingLeavesTheCompressedStageToTheCpu) {
  constexpr int kFreeze = 2;
  testing_support::AdamLoop real({});
  testing_support::ResidentAdamLoop inner(real);
  const auto gradients_stay = [&] {
    run_in_process(1, [&](WorkerContext& context) {
      const auto strategy = outer::make_outer_strategy_beside_device(
          "1bit-adam", {.one_bit_adam = {.freeze = kFreeze}}, inner, context.exchange, inner);
      for (int t = 1; t <= kFreeze + 1; ++t) static_cast<void>(strategy->step());
    });
    return std::isnan(inner.gradient(0)[0]);
  };
  EXPECT_TRUE(gradients_stay());
  cuda::emulated::set_device_memory(held() + 100'000);
  EXPECT_FALSE(gradients_stay());
  cuda::emulated::set_device_memory(std::size_t{4} << 30);
  EXPECT_TRUE(gradients_stay());
}

/// AdamW whose moments have no room on the host.
class NoRoomForMoments final : public InnerLoop {
 public:
  explicit NoRoomForMoments(InnerLoop& real) : real_(real) {}
  [[nodiscard]] std::span<const Parameter> parameters() const override {
    return real_.parameters();
  }
  InnerStep train_step(StepIndex t) override { return real_.train_step(t); }
  [[nodiscard]] double learning_rate(StepIndex t) const override { return real_.learning_rate(t); }
  [[nodiscard]] AdamSettings adam_settings() const override { return real_.adam_settings(); }
  [[nodiscard]] AdamMoments adam_moments(std::size_t) override {
    throw SystemError("no room for moments");
  }

 private:
  InnerLoop& real_;
};

TEST_F(OuterMemory, ThatTheCpuMissesTooIsNotSaidToBeLeftToIt) {
  testing_support::AdamLoop real({});
  testing_support::ResidentAdamLoop resident(real);
  NoRoomForMoments inner(resident);
  std::vector<std::string> lines;
  set_log_sink([&](LogLevel, std::string_view line) { lines.emplace_back(line); });
  run_in_process(1, [&](WorkerContext& context) {
    EXPECT_THROW(static_cast<void>(outer::make_outer_strategy_beside_device(
                     "1bit-adam", {}, inner, context.exchange, resident)),
                 SystemError);
  });
  set_log_sink({});
  EXPECT_THAT(lines, testing::IsEmpty());
}

// The runs of lanes are known at the freeze only: as the CPU goes on there, so it does where a run
// is taken up after it.
TEST_F(OuterMemory, ThatIsMissingAtTheFreezeLeavesTheCompressedStageToTheCpu) {
  constexpr int kFreeze = 2, kSteps = 6;
  const OuterOptions options{.one_bit_adam = {.freeze = kFreeze}};
  struct Outcome {
    MemoryState inner, outer;
    bool stayed = false;  // gradients, on the device
  };
  // `full_after`: steps after which the device has no memory left.
  const auto train = [&](int first, int last, Outcome* from, int full_after) {
    testing_support::AdamLoop real({});
    testing_support::ResidentAdamLoop inner(real);
    Outcome outcome;
    run_in_process(1, [&](WorkerContext& context) {
      const auto strategy = outer::make_outer_strategy_beside_device("1bit-adam", options, inner,
                                                                     context.exchange, inner);
      if (full_after == first - 1) cuda::emulated::set_device_memory(held());
      if (from != nullptr) {
        inner.load(from->inner);
        strategy->load(from->outer);
      }
      for (int t = first; t <= last; ++t) {
        static_cast<void>(strategy->step());
        if (full_after == t) cuda::emulated::set_device_memory(held());
      }
      outcome.stayed = std::isnan(inner.gradient(0)[0]);
      inner.save(outcome.inner);
      strategy->save(outcome.outer);
    });
    cuda::emulated::set_device_memory(std::size_t{4} << 30);
    static_cast<void>(inner.gradients(StepIndex(last + 1), {}));
    EXPECT_FALSE(std::isnan(inner.gradient(0)[0])) << "the strategy is gone";
    return outcome;
  };
  Outcome middle = train(1, kFreeze + 1, nullptr, kSteps);
  const Outcome straight = train(1, kSteps, nullptr, kSteps);
  EXPECT_TRUE(straight.stayed);
  std::vector<std::string> lines;
  set_log_sink([&](LogLevel, std::string_view line) { lines.emplace_back(line); });
  const Outcome full = train(1, kSteps, nullptr, 1);
  const Outcome resumed = train(kFreeze + 2, kSteps, &middle, kFreeze + 1);
  set_log_sink({});
  for (const Outcome* outcome : {&full, &resumed}) {
    EXPECT_FALSE(outcome->stayed);
    EXPECT_TRUE(outcome->inner == straight.inner);
    EXPECT_TRUE(outcome->outer == straight.outer);
  }
  EXPECT_EQ(std::ranges::count_if(lines,
                                  [](const std::string& line) {
                                    return line.find(
                                               "the CPU computes on the outer state, for "
                                               "want of memory: ") != std::string::npos;
                                  }),
            2);
}

TEST_F(OuterMemory, SufficesForALostRoundOnceItIsHeld) {
  constexpr int kWorkers = 2;
  std::latch made(kWorkers);
  run_in_process(kWorkers, [&](WorkerContext& context) {
    QuadraticLoop real({.tensors = {{0, 3 * kTileValues}, {1, 5}}});
    ResidentLoop inner(real);
    const bool loses = context.rank == WorkerId(1);
    LosingExchange exchange(context.exchange, {loses ? 4 : 0});
    const auto strategy = outer::make_outer_strategy_on_device(
        "diloco", {.H = 2, .codec = "int8:ef"}, inner, exchange, inner);
    made.arrive_and_wait();
    cuda::emulated::set_device_memory(held());
    cuda::emulated::set_largest_pinned(0);
    int lost = 0;
    while (strategy->steps().value() < 6) {
      for (const RoundReport& round : strategy->step().rounds) lost += round.counted ? 0 : 1;
    }
    EXPECT_EQ(lost, loses ? 1 : 0);
  });
}

}  // namespace
}  // namespace isthmus::this_file
