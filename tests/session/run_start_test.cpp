// SPDX-License-Identifier: Apache-2.0
// The start that a run's first worker gives to all.
#include "session/run/run_start.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <functional>
#include <limits>
#include <memory>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "isthmus/errors.h"
#include "sim/run_simulated.h"

namespace isthmus::app::this_file {
namespace {

using namespace std::chrono_literals;

/// Two tensors, of 3 and 4 values.
class Loop final : public InnerLoop {
 public:
  explicit Loop(std::vector<float> values) : values_(std::move(values)) {
    parameters_ = {
        {.name = "a.b", .shape = {3}, .elements = {0, 3}, .values = std::span(values_).first(3)},
        {.name = "c", .shape = {4}, .elements = {3, 7}, .values = std::span(values_).last(4)}};
  }
  [[nodiscard]] std::span<const Parameter> parameters() const override { return parameters_; }
  InnerStep train_step(StepIndex) override { return {}; }
  [[nodiscard]] double learning_rate(StepIndex) const override { return 0; }
  void wrote_values(CanonicalRange range) override { wrote += range.size(); }
  [[nodiscard]] std::vector<float>& values() { return values_; }
  std::int64_t wrote = 0;

 private:
  std::vector<float> values_;
  std::vector<Parameter> parameters_;
};

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

std::vector<float> start_of(int worker) {
  const auto shift = static_cast<float>(worker);
  return {worker == 0 ? -0.0f : shift,
          std::numeric_limits<float>::denorm_min(),
          1 + shift,
          2,
          3,
          4,
          5 + shift};
}

TEST(RunStart, IsTheFirstWorkersBitForBitAtAll) {
  for (const std::int64_t piece : {std::int64_t{2}, kStartPiece}) {
    run_in_process(3, [&](WorkerContext& context) {
      Loop loop(start_of(context.rank.value()));
      take_first_values(loop, context.exchange, std::chrono::seconds(60), piece);
      EXPECT_TRUE(same_bits(loop.values(), start_of(0))) << context.rank.value();
      EXPECT_EQ(loop.wrote, context.rank == WorkerId(0) ? 0 : 7);
    });
  }
}

/// Worker 2 of three. The first round tells of digests: of unlike starts, or with `alike` of equal
/// ones. What the others give then is `given`, by round; nothing: who was to give is gone.
class Scripted final : public Exchange {
 public:
  explicit Scripted(std::vector<std::vector<float>> given) : given_(std::move(given)) {}
  [[nodiscard]] WorkerId self() const override { return WorkerId(2); }
  [[nodiscard]] int members() const override { return 3; }
  [[nodiscard]] EncodeKey key(const SyncId& id) const override { return encode_key(id, 2); }
  Ticket begin(Contribution contribution) override {
    if (!ids.empty()) weights.push_back(contribution.weight);
    ids.push_back(contribution.id);
    own_ = std::move(contribution.encoded);
    return {contribution.id};
  }
  [[nodiscard]] bool poll(const Ticket&) override { return true; }
  [[nodiscard]] Expected<Reduced, ExchangeError> wait(const Ticket&, Duration) override {
    Reduced result;
    if (weights.empty()) {
      result.contributors = {WorkerId(1), WorkerId(2)};
      result.contributions = {alike ? own_ : Encoded{16, std::vector<std::byte>(16)}, own_};
      return result;
    }
    const std::size_t round = weights.size() - 1;
    if (weights.back() > 0) {
      result.contributors = {WorkerId(2)};
      result.contributions = {own_};
    } else if (!given_.at(round).empty()) {
      result.contributors = {giver};
      Encoded& bytes = result.contributions.emplace_back();
      const auto raw = std::as_bytes(std::span(given_[round]));
      bytes = {raw.size(), {raw.begin(), raw.end()}};
    }
    return result;
  }
  [[nodiscard]] ByteCounts bytes() const override { return {}; }

  std::vector<double> weights;
  std::vector<SyncId> ids;
  WorkerId giver{0};
  bool alike = false;

 private:
  std::vector<std::vector<float>> given_;
  Encoded own_;
};

// What the lost one gave first is in nobody's values, since the others may be the next to give.
TEST(RunStart, IsTheNextWorkersWhereTheFirstIsLostHalfWay) {
  Scripted exchange({{10, 11, 12, 13}, {}, {}});
  Loop loop(start_of(2));
  take_first_values(loop, exchange, Duration{0}, 4);
  EXPECT_TRUE(same_bits(loop.values(), start_of(2)));
  EXPECT_THAT(exchange.weights, testing::ElementsAre(0, 0, 0, 1, 1));
  EXPECT_EQ(std::set(exchange.ids.begin(), exchange.ids.end()).size(), 6u) << "an id came again";
}

/// Four sites over links of 1 Mbit/s; worker 1 is gone at `first`, worker 3 at `second`. RETURNS:
/// what the two that are left begin with.
std::vector<std::vector<float>> starts_of_two(bool takes_back, Duration first, Duration second) {
  std::vector<std::vector<float>> starts(4);
  SimulationOptions options{.workers = 4, .seed = 5};
  options.links = uniform_links(4, {.bits_per_s = 1'000'000, .one_way = 5ms});
  options.exchange = {.elastic = true, .takes_back = takes_back};
  options.network.faults.crashes = {{.rank = WorkerId(1), .time = TimePoint{} + first},
                                    {.rank = WorkerId(3), .time = TimePoint{} + second}};
  (void)run_simulated(options, [&](WorkerContext& context) {
    Loop loop(start_of(context.rank.value()));
    take_first_values(loop, context.exchange, 600s, 2);
    starts.at(static_cast<std::size_t>(context.rank.value())) = loop.values();
  });
  return {starts[0], starts[2]};
}

// With outer.commit > 1 a loss takes back the round that is open, at the start too.
TEST(RunStart, SitesThatDieAtAnyMomentOfItChangeNothingAtTheOthers) {
  for (const bool takes_back : {false, true}) {
    for (Duration first = 1ms; first < 200ms; first += 7ms) {
      for (const Duration later : {Duration{1ms}, Duration{9ms}, Duration{60ms}}) {
        for (const std::vector<float>& start : starts_of_two(takes_back, first, first + later)) {
          EXPECT_TRUE(same_bits(start, start_of(0))) << takes_back << ", " << first.count();
        }
      }
    }
  }
}

TEST(RunStart, TravelsOnlyWhereStartsAreUnlike) {
  Scripted exchange({});
  exchange.alike = true;
  Loop loop(start_of(2));
  take_first_values(loop, exchange, Duration{0}, 4);
  EXPECT_EQ(exchange.ids.size(), 1u);
  EXPECT_EQ(loop.wrote, 0);
  EXPECT_TRUE(same_bits(loop.values(), start_of(2)));
}

TEST(RunStart, OfAnotherSizeOrWorkerEndsTheRun) {
  Scripted small({{10, 11, 12}});
  Loop loop(start_of(2));
  EXPECT_THROW(take_first_values(loop, small, Duration{0}, 4), PeerError);
  Scripted other({{10, 11, 12, 13}});
  other.giver = WorkerId(1);
  EXPECT_THROW(take_first_values(loop, other, Duration{0}, 4), PeerError);
  EXPECT_TRUE(same_bits(loop.values(), start_of(2)));
}

TEST(RunStart, TheFirstTensorThatDiffersIsNamed) {
  Loop one(start_of(0)), other(start_of(0)), third(start_of(0));
  EXPECT_EQ(first_unlike(digests_of_start(one), digests_of_start(other)), "");
  other.values()[5] = 9;
  EXPECT_EQ(first_unlike(digests_of_start(one), digests_of_start(other)), "c");
  third.values()[0] = 0.0f;
  EXPECT_EQ(first_unlike(digests_of_start(other), digests_of_start(third)), "a.b");
  EXPECT_EQ(first_unlike("", digests_of_start(third)), "");
}

}  // namespace
}  // namespace isthmus::app::this_file
