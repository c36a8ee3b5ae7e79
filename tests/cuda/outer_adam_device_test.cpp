// SPDX-License-Identifier: Apache-2.0
// Method 1bit-adam with its compressed stage on a device, against the same on the host: encoded
// bytes, reports, weights, moments and checkpoints have the same bits.
#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cuda/device_test.h"
#include "cuda/resident_adam_loop.h"
#include "outer/adam_loop.h"
#include "outer/methods/one_bit_adam.h"
#include "outer/parts/idle_inner_loop.h"
#include "outer/place/outer_placement.h"
#include "outer/toy_loops.h"

namespace isthmus::this_file {
namespace {

using testing_support::AdamLoop;
using testing_support::MemoryState;
using testing_support::ResidentAdamLoop;

constexpr int kWorkers = 3, kFreeze = 4, kSteps = 14;
constexpr std::size_t kBucket = 5000;  // of 8000 lanes, so buckets cut a tensor

class OneBitOnDevice : public cuda::DeviceTest {};

struct Scenario {
  std::string codec = "1bit:4096:norm=l2:ef";
  bool bias_correction = true;
  std::int64_t not_finite_at = 0;       // step whose gradient holds a NaN on worker 1
  bool on_all = false;                  // ... and on all others
  std::int64_t idle_from = kSteps + 1;  // worker 2 stands still from then on
  std::int64_t forgets_after = 0;       // step after which worker 2 forgets its own work
};

/// A worker between two steps.
struct State {
  MemoryState inner, outer;  // weights and moments; step and residuals
  bool operator==(const State&) const = default;
};

/// Of all workers.
struct Outcome {
  std::vector<std::vector<double>> reports{kWorkers};
  std::vector<State> states{kWorkers};
  bool operator==(const Outcome&) const = default;
};

/// Numbers, since nothing in place of one equals itself.
void note(std::vector<double>& numbers, const StepReport& report) {
  const auto number = [&](std::optional<double> value) {
    numbers.push_back(value && std::isfinite(*value) ? *value : -1);
  };
  number(report.inner.loss);
  number(report.inner.grad_norm);
  for (const RoundReport& round : report.rounds) {
    numbers.push_back(round.members);
    numbers.push_back(static_cast<double>(round.payload_bytes));
    number(round.delta_norm);
    number(round.codec_error);
    number(round.cosine);
  }
}

MethodInfo one_bit() {
  const std::vector<MethodInfo> all = methods();
  return *std::ranges::find(all, "1bit-adam", &MethodInfo::name);
}

Outcome train(const Scenario& run, bool on_device, int first = 1, int last = kSteps,
              Outcome* from = nullptr) {
  Outcome outcome;
  run_in_process(kWorkers, [&](WorkerContext& context) {
    const int worker = context.rank.value();
    const auto w = static_cast<std::size_t>(worker);
    AdamLoop::Options options{.dead = 700, .worker = worker};
    options.adam.clip = 3;
    options.adam.weight_decay = 0.1;
    if (worker == 1 || run.on_all) options.not_finite_at = run.not_finite_at;
    AdamLoop real(options);
    std::optional<ResidentAdamLoop> resident;
    if (on_device) resident.emplace(real);
    outer::IdleInnerLoop inner(on_device ? static_cast<InnerLoop&>(*resident) : real);
    const OuterOptions outer{
        .codec = run.codec,
        .one_bit_adam = {.freeze = kFreeze, .bias_correction = run.bias_correction}};
    outer::OneBitAdam strategy(one_bit(), outer, inner, context.exchange, kBucket,
                               on_device ? &*resident : nullptr);
    if (from != nullptr) {
      inner.load(from->states[w].inner);
      strategy.load(from->states[w].outer);
    }
    for (int t = first; t <= last; ++t) {
      inner.set_idle(worker == 2 && t >= run.idle_from);
      note(outcome.reports[w], strategy.step());
      if (worker == 2 && t == run.forgets_after) strategy.forget_own_work();
    }
    inner.save(outcome.states[w].inner);
    strategy.save(outcome.states[w].outer);
  });
  return outcome;
}

TEST_F(OneBitOnDevice, HasTheBitsOfTheHostWithEveryKindOfCodec) {
  for (const char* const codec : {"1bit:4096:norm=l2:ef", "1bit:256", "int8:256:ef",
                                  "fp4-e3m0:64:ef", "bf16", "topk:64:ef"}) {
    for (const bool bias_correction : {true, false}) {
      const Scenario run{.codec = codec, .bias_correction = bias_correction};
      const Outcome host = train(run, false);
      EXPECT_TRUE(train(run, true) == host) << codec << bias_correction;
      const bool feedback = run.codec.ends_with(":ef");
      EXPECT_EQ(host.states[0].outer.tensor_values("residual/worker"), feedback ? 7300u : 0u);
    }
  }
}

TEST_F(OneBitOnDevice, GradientsThatAreNotFiniteAreLeftOutAsOnTheHost) {
  for (const bool on_all : {false, true}) {
    const Scenario run{.not_finite_at = kFreeze + 3, .on_all = on_all};
    EXPECT_TRUE(train(run, true) == train(run, false)) << on_all;
  }
}

TEST_F(OneBitOnDevice, AWorkerThatStandsStillGivesNoGradient) {
  const Scenario run{.idle_from = kFreeze + 2, .forgets_after = kFreeze + 1};
  const Outcome device = train(run, true);
  EXPECT_TRUE(device == train(run, false));
  EXPECT_FALSE(device == train({}, true));
}

TEST_F(OneBitOnDevice, GoesOnFromTheOthersCheckpoint) {
  for (const int stop : {kFreeze - 1, kFreeze, kFreeze + 4}) {
    Outcome of_host = train({}, false, 1, stop);
    Outcome of_device = train({}, true, 1, stop);
    ASSERT_TRUE(of_host == of_device) << stop;
    const Outcome straight = train({}, false);
    EXPECT_TRUE(train({}, true, stop + 1, kSteps, &of_host).states == straight.states) << stop;
    EXPECT_TRUE(train({}, false, stop + 1, kSteps, &of_device).states == straight.states) << stop;
  }
}

/// The second bucket's round of a step is lost to its member.
class CutExchange final : public Exchange {
 public:
  CutExchange(Exchange& real, int cut_at) : real_(real), cut_at_(cut_at) {}
  [[nodiscard]] WorkerId self() const override { return real_.self(); }
  [[nodiscard]] int members() const override { return real_.members(); }
  [[nodiscard]] EncodeKey key(const SyncId& id) const override { return real_.key(id); }
  Ticket begin(Contribution contribution) override { return real_.begin(std::move(contribution)); }
  [[nodiscard]] bool poll(const Ticket& ticket) override { return real_.poll(ticket); }
  [[nodiscard]] Expected<Reduced, ExchangeError> wait(const Ticket& ticket,
                                                      Duration patience) override {
    Expected<Reduced, ExchangeError> mean = real_.wait(ticket, patience);
    if (ticket.id.sent.value() != cut_at_ || ticket.id.fragment.value() != 1) return mean;
    return Unexpected<ExchangeError>(ExchangeError{.peer = WorkerId(1), .what = "cut"});
  }
  [[nodiscard]] ByteCounts bytes() const override { return real_.bytes(); }

 private:
  Exchange& real_;
  std::int64_t cut_at_;
};

// What the first bucket's round gave stands, wherever the moments are and whoever computes.
TEST_F(OneBitOnDevice, ARoundThatFailsLeavesWhatTheOnesBeforeItGave) {
  const auto cut = [](bool resident_loop, bool on_device, int at) {
    MemoryState state;
    run_in_process(1, [&](WorkerContext& context) {
      AdamLoop real({});
      std::optional<ResidentAdamLoop> resident;
      if (resident_loop) resident.emplace(real);
      InnerLoop& inner = resident_loop ? static_cast<InnerLoop&>(*resident) : real;
      CutExchange exchange(context.exchange, at);
      outer::OneBitAdam strategy(one_bit(), {.one_bit_adam = {.freeze = kFreeze}}, inner, exchange,
                                 kBucket, on_device ? &*resident : nullptr);
      for (int t = 1; t < kFreeze + 2; ++t) static_cast<void>(strategy.step());
      if (at > 0) {
        EXPECT_THROW(static_cast<void>(strategy.step()), PeerError);
      }
      inner.save(state);
    });
    return state;
  };
  const MemoryState host = cut(false, false, kFreeze + 2);
  EXPECT_FALSE(host == cut(false, false, 0)) << "nothing was given";
  EXPECT_TRUE(cut(true, false, kFreeze + 2) == host);
  EXPECT_TRUE(cut(true, true, kFreeze + 2) == host);
}

TEST_F(OneBitOnDevice, IsWhatARunWithItsWeightsOnADeviceTakes) {
  run_in_process(2, [&](WorkerContext& context) {
    AdamLoop real({.worker = context.rank.value()});
    ResidentAdamLoop inner(real);
    const auto strategy = outer::make_outer_strategy_beside_device(
        "1bit-adam", {.one_bit_adam = {.freeze = kFreeze}}, inner, context.exchange, inner);
    for (int t = 1; t <= kFreeze; ++t) {
      static_cast<void>(strategy->step());
      EXPECT_FALSE(std::isnan(inner.gradient(0)[0])) << t;  // the exchange reads them
    }
    static_cast<void>(strategy->step());
    EXPECT_TRUE(std::isnan(inner.gradient(0)[0]));            // they have stayed where they are,
    EXPECT_TRUE(std::isnan(inner.adam_moments(1).first[0]));  // as have the moments
    EXPECT_TRUE(std::isnan(inner.parameters()[0].values[0]));
    EXPECT_FALSE(std::isnan(strategy->values(0)[0]));
  });
}

}  // namespace
}  // namespace isthmus::this_file
