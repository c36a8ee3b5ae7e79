// SPDX-License-Identifier: Apache-2.0
// What the first rank of a site has whole of outer state that all share out: for how long, and what
// happens where there is no memory for it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <new>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "outer/lane_ranks.h"
#include "outer/toy_loops.h"

namespace isthmus::this_file {
namespace {

using testing_support::anchors_of;
using testing_support::LaneRanks;
using testing_support::MemoryState;
using testing_support::QuadraticLoop;

/// Of several tiles, the last one short.
QuadraticLoop::Options small_model() {
  QuadraticLoop::Options options;
  options.tensors = {{kNoLayer, 5000}, {0, 14100}, {1, 700}, {kNoLayer, 33}};
  options.noise = 0.5f;
  return options;
}

// The first rank has the anchors of a fragment that somebody asked for until the next step, where
// they do not change either.
TEST(LaneCopies, AnchorsAreCollectedOnceAndKeptUntilTheNextStep) {
  const OuterOptions options{.H = 3};
  QuadraticLoop inner(small_model());
  LaneRanks site("diloco", options, inner.parameters(), 2);
  run_in_process(1, [&](WorkerContext& context) {
    const auto strategy = outer::make_outer_strategy_on_ranks("diloco", options, inner,
                                                              context.exchange, site.call());
    int before = site.calls();
    const auto calls = [&] { return site.calls() - std::exchange(before, site.calls()); };
    const auto look = [&] { static_cast<void>(anchors_of(*strategy, inner)); };
    look();
    EXPECT_EQ(calls(), 1);
    look();
    EXPECT_EQ(calls(), 0);
    static_cast<void>(strategy->step());
    EXPECT_EQ(calls(), 0);
    look();
    EXPECT_EQ(calls(), 1) << "dropped, though no outer step has been taken";
    for (int t = 2; t <= 3; ++t) static_cast<void>(strategy->step());
    EXPECT_GT(calls(), 0);
    look();
    look();
    EXPECT_EQ(calls(), 1);
  });
}

/// Fails at tensor `last`, as memory does or a file; nobody may be waiting for the first rank then.
class FailingState final : public StateWriter, public StateReader {
 public:
  FailingState(MemoryState& state, const LaneRanks& site, int last)
      : state_(state), site_(site), left_(last) {}
  void tensor(std::string_view name, std::span<const float> values) override {
    count();
    state_.tensor(name, values);
  }
  void bytes(std::string_view name, std::span<const std::byte> values) override {
    state_.bytes(name, values);
  }
  void integer(std::string_view name, std::int64_t value) override { state_.integer(name, value); }
  void real(std::string_view name, double value) override { state_.real(name, value); }
  void text(std::string_view name, std::string_view value) override { state_.text(name, value); }
  [[nodiscard]] bool contains(std::string_view name) const override {
    EXPECT_FALSE(site_.in_call()) << name;
    return state_.contains(name);
  }
  void tensor(std::string_view name, std::span<float> values) override {
    count();
    state_.tensor(name, values);
  }
  [[nodiscard]] std::vector<std::byte> bytes(std::string_view name) override {
    return state_.bytes(name);
  }
  [[nodiscard]] std::int64_t integer(std::string_view name) override {
    EXPECT_FALSE(site_.in_call()) << name;
    return state_.integer(name);
  }
  [[nodiscard]] double real(std::string_view name) override { return state_.real(name); }
  [[nodiscard]] std::string text(std::string_view name) override { return state_.text(name); }

 private:
  void count() {
    EXPECT_FALSE(site_.in_call());
    if (left_-- == 0) throw std::bad_alloc();
  }

  MemoryState& state_;
  const LaneRanks& site_;
  int left_;
};

// Also for want of memory, which a donor of state survives, and in a checkpoint that is damaged.
TEST(LaneCopies, CheckpointsThatFailLeaveTheSiteAlive) {
  const OuterOptions options{.H = 2, .momentum_every = 2, .codec = "int8:ef"};
  QuadraticLoop inner(small_model());
  LaneRanks site("diloco", options, inner.parameters(), 3);
  run_in_process(1, [&](WorkerContext& context) {
    const auto strategy = outer::make_outer_strategy_on_ranks("diloco", options, inner,
                                                              context.exchange, site.call());
    for (int t = 1; t <= 3; ++t) static_cast<void>(strategy->step());
    MemoryState good;
    FailingState all(good, site, 1000);
    strategy->save(all);
    const std::vector<float> anchors = anchors_of(*strategy, inner);
    constexpr int kTensors = 4;  // anchor, momentum, sum, residual
    for (int last = 0; last < kTensors; ++last) {
      MemoryState some;
      FailingState failing(some, site, last);
      EXPECT_THROW(strategy->save(failing), std::bad_alloc) << last;
      FailingState unread(good, site, last);
      EXPECT_THROW(strategy->load(unread), std::bad_alloc) << last;
    }
    // At the end: the last rank's part.
    MemoryState damaged;
    strategy->load(good);
    strategy->save(damaged);
    std::vector<float> residual(damaged.tensor_values("residual/0"));
    damaged.tensor("residual/0", std::span<float>(residual));
    residual.back() = std::nanf("");
    damaged.overwrite("residual/0", residual);
    try {
      strategy->load(damaged);
      FAIL() << "loaded";
    } catch (const RunError& error) {
      EXPECT_THAT(error.what(), testing::HasSubstr("residual/0 holds nan"));
    }
    strategy->load(good);
    EXPECT_EQ(anchors_of(*strategy, inner), anchors);
    MemoryState again;
    strategy->save(again);
    EXPECT_EQ(again, good);
  });
}

}  // namespace
}  // namespace isthmus::this_file
