// SPDX-License-Identifier: Apache-2.0
// A worker loses the others, comes back to another state and takes its own work along.
#include "outer/parts/uncommitted_delta.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <exception>
#include <map>

#include "isthmus/errors.h"
#include "outer/toy_loops.h"

namespace isthmus::this_file {
namespace {

using outer::CarriesWork;
using outer::UncommittedDelta;
using testing_support::Drift;
using testing_support::MemoryState;

/// The exchange of worker 0 of two: worker 1 gives what the test says, and no round sent after
/// `fails_after` ends.
class OneOther final : public Exchange {
 public:
  [[nodiscard]] WorkerId self() const override { return WorkerId(0); }
  [[nodiscard]] int members() const override { return 2; }
  [[nodiscard]] EncodeKey key(const SyncId& id) const override { return encode_key(id, 0); }
  Ticket begin(Contribution contribution) override {
    Given given{.delta = {}, .weight = contribution.weight};
    given.delta.resize(contribution.encoded.values);
    EXPECT_TRUE(decode(*contribution.codec, contribution.encoded.bytes, given.delta));
    given_[contribution.id] = given;
    weights.push_back(contribution.weight);
    return {contribution.id};
  }
  [[nodiscard]] bool poll(const Ticket&) override { return true; }
  [[nodiscard]] Expected<Reduced, ExchangeError> wait(const Ticket& ticket, Duration) override {
    if (ticket.id.sent.value() > fails_after) {
      return Unexpected<ExchangeError>(
          ExchangeError{ExchangeError::Kind::kPeerLost, WorkerId(1), "the link is cut"});
    }
    const Given& own = given_.at(ticket.id);
    Reduced result;
    const double all = own.weight + other_weight;
    for (const float delta : own.delta) {
      result.values.push_back(static_cast<float>(
          (static_cast<double>(delta) * own.weight + other_delta * other_weight) / all));
    }
    if (own.weight > 0) result.contributors.push_back(WorkerId(0));
    result.contributors.push_back(WorkerId(1));
    return result;
  }
  [[nodiscard]] ByteCounts bytes() const override { return {}; }

  std::int64_t fails_after = 1000;
  double other_delta = 0;
  double other_weight = 0;
  std::vector<double> weights;

 private:
  struct Given {
    std::vector<float> delta;
    double weight = 0;
  };
  std::map<SyncId, Given> given_;
};

OuterOptions average(LostContribution carry = LostContribution::kCarry) {
  OuterOptions outer;
  outer.H = 4;
  outer.lr = 1.0;
  outer.momentum = 0.0;
  outer.carry = carry;
  return outer;
}

CarriesWork& carries(OuterStrategy& strategy) { return dynamic_cast<CarriesWork&>(strategy); }

/// Falls by 2 a step of 10 tokens, alone; is cut off after `steps`. RETURNS: what it keeps.
UncommittedDelta cut_off(const OuterOptions& options, std::int64_t steps,
                         std::int64_t fails_after = 1000) {
  Drift inner(2, 10);
  OneOther exchange;
  exchange.fails_after = fails_after;
  const auto strategy = make_outer_strategy("diloco", options, inner, exchange);
  try {
    for (std::int64_t t = 1; t <= steps; ++t) (void)strategy->step();
  } catch (const PeerError&) {
    EXPECT_GT(steps, fails_after);
  }
  return carries(*strategy).uncommitted_delta();
}

TEST(UncommittedDelta, IsWhatLocalValuesHoldBeyondTheAnchor) {
  const UncommittedDelta work = cut_off(average(), 7);
  ASSERT_EQ(work.parts.size(), 1u);
  EXPECT_THAT(work.parts[0].beyond, testing::ElementsAre(-6.0f));
  EXPECT_EQ(work.parts[0].tokens, 30);
  EXPECT_EQ(work.lost_tokens(), 0);
  EXPECT_EQ(work.step, StepIndex(7));
}

// Whether the round of step 4 was committed nobody here knows: given again it might count twice.
TEST(UncommittedDelta, OfARoundThatFailedIsLost) {
  const UncommittedDelta work = cut_off(average(), 4, 3);
  EXPECT_TRUE(work.parts[0].beyond.empty());
  EXPECT_EQ(work.tokens(), 0);
  EXPECT_EQ(work.lost_tokens(), 40);
}

TEST(UncommittedDelta, IsLostWhereLostContributionsAre) {
  for (const LostContribution carry : {LostContribution::kStay, LostContribution::kRollback}) {
    const UncommittedDelta work = cut_off(average(carry), 7);
    EXPECT_TRUE(work.parts[0].beyond.empty());
    EXPECT_EQ(work.lost_tokens(), 30);
  }
}

/// Comes back with that work after `joins_after` of the first window. RETURNS: anchors after two
/// windows of its own, both of which end with worker 1's, of 5 and weight 20.
std::vector<float> comes_back(const UncommittedDelta& work, std::int64_t joins_after,
                              std::vector<double>& weights) {
  Drift inner(1, 10);
  OneOther exchange;
  exchange.other_delta = 5;
  exchange.other_weight = 20;
  const auto strategy = make_outer_strategy("diloco", average(), inner, exchange);
  for (std::int64_t t = 1; t <= joins_after; ++t) (void)strategy->step();
  strategy->forget_own_work();
  const CarriesWork::Kept kept = carries(*strategy).carry(work);
  EXPECT_EQ(kept.tokens, work.tokens());
  EXPECT_EQ(kept.lost_tokens, 0);
  std::vector<float> anchors;
  for (std::int64_t t = joins_after + 1; t <= 8; ++t) {
    (void)strategy->step();
    if (t % 4 == 0) anchors.push_back(strategy->values(0)[0]);
  }
  weights = exchange.weights;
  return anchors;
}

// With SGD(1) the anchor is what it would be had its window come so many rounds later: 6 and 4 of
// its next window are one contribution of 10, which weighs the tokens of both.
TEST(UncommittedDelta, ComesAlongWithTheNextWindowAndWeighsItsTokens) {
  std::vector<double> weights;
  const std::vector<float> anchors = comes_back(cut_off(average(), 7), 0, weights);
  EXPECT_EQ(weights, (std::vector<double>{70, 40}));
  const double first = -(10 * 70.0 + 5 * 20) / 90;
  EXPECT_NEAR(anchors[0], first, 1e-6);
  EXPECT_NEAR(anchors[1], first - (4 * 40.0 + 5 * 20) / 60, 1e-5);  // and is given once
}

// Within a window it waits for the first whole one, with what was trained on in between.
TEST(UncommittedDelta, OfOneThatJoinsWithinAWindowComesWithTheFirstWholeOne) {
  std::vector<double> weights;
  const std::vector<float> anchors = comes_back(cut_off(average(), 7), 2, weights);
  EXPECT_EQ(weights, (std::vector<double>{0, 90}));
  EXPECT_NEAR(anchors[0], -5, 1e-6);
  EXPECT_NEAR(anchors[1], -5 - (12 * 90.0 + 5 * 20) / 110, 1e-5);
}

// A second checkpoint on the way changes nothing.
TEST(UncommittedDelta, IsInACheckpoint) {
  Drift inner(1, 10);
  OneOther exchange;
  auto strategy = make_outer_strategy("diloco", average(), inner, exchange);
  strategy->forget_own_work();
  (void)carries(*strategy).carry(cut_off(average(), 7));
  MemoryState state;
  strategy->save(state);
  strategy = make_outer_strategy("diloco", average(), inner, exchange);
  strategy->load(state);
  for (int t = 1; t <= 4; ++t) (void)strategy->step();
  EXPECT_EQ(exchange.weights, (std::vector<double>{70}));
  EXPECT_EQ(strategy->values(0)[0], -10.0f);
}

TEST(UncommittedDelta, OnlyMethodsWhoseWindowsStayInTheLocalValuesHaveIt) {
  for (const MethodInfo& method : methods()) {
    const bool streams =
        method.name == "diloco" || method.name == "streaming-diloco" || method.name == "localsgd";
    OuterOptions outer;
    outer.H = method.takes("H") ? 4 : 1;
    Drift inner(1, 10);
    OneOther exchange;
    std::unique_ptr<OuterStrategy> strategy;
    try {
      strategy = make_outer_strategy(method.name, outer, inner, exchange);
    } catch (const std::exception& error) {  // wants other keys, or another loop
      EXPECT_FALSE(streams) << method.name << ": " << error.what();
      continue;
    }
    const bool has = dynamic_cast<CarriesWork*>(strategy.get()) != nullptr;
    EXPECT_EQ(has, streams) << method.name;
  }
}

}  // namespace
}  // namespace isthmus::this_file
