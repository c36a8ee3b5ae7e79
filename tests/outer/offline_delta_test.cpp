// SPDX-License-Identifier: Apache-2.0
// A worker that was cut off trains on alone, and takes that along when it is found again.
#include "outer/parts/offline_delta.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <map>
#include <memory>

#include "isthmus/errors.h"
#include "outer/toy_loops.h"

namespace isthmus::this_file {
namespace {

using outer::CarriesWork;
using outer::OfflineDelta;
using outer::UncommittedDelta;
using testing::ElementsAre;
using testing::FloatNear;

constexpr std::int64_t kTokens = 10;  // of a step
constexpr float kOther = 5;           // what worker 1 gives, with the weight of two steps
constexpr double kOtherWeight = 20;

/// The exchange of worker 0 of two: worker 1 gives the same in every round, and no round sent after
/// `fails_after` ends.
class OneOther final : public Exchange {
 public:
  [[nodiscard]] WorkerId self() const override { return WorkerId(0); }
  [[nodiscard]] int members() const override { return 2; }
  [[nodiscard]] EncodeKey key(const SyncId& id) const override { return encode_key(id, 0); }
  Ticket begin(Contribution contribution) override {
    std::vector<float> delta(contribution.encoded.values);
    EXPECT_TRUE(decode(*contribution.codec, contribution.encoded.bytes, delta));
    given_[contribution.id] = {delta, contribution.weight};
    weights.push_back(contribution.weight);
    return {contribution.id};
  }
  [[nodiscard]] bool poll(const Ticket&) override { return true; }
  [[nodiscard]] Expected<Reduced, ExchangeError> wait(const Ticket& ticket, Duration) override {
    if (ticket.id.sent.value() > fails_after) {
      return Unexpected<ExchangeError>(
          ExchangeError{ExchangeError::Kind::kPeerLost, WorkerId(1), "the link is cut"});
    }
    const auto& [delta, weight] = given_.at(ticket.id);
    Reduced result;
    for (const float own : delta) {
      result.values.push_back(static_cast<float>(
          (static_cast<double>(own) * weight + kOther * kOtherWeight) / (weight + kOtherWeight)));
    }
    if (weight > 0) result.contributors.push_back(WorkerId(0));
    result.contributors.push_back(WorkerId(1));
    return result;
  }
  [[nodiscard]] ByteCounts bytes() const override { return {}; }

  std::int64_t fails_after = 1000;
  std::vector<double> weights;

 private:
  std::map<SyncId, std::pair<std::vector<float>, double>> given_;
};

/// Two layers of a value each, which fall by 1 and by 2 a step.
class TwoLayers final : public InnerLoop {
 public:
  TwoLayers() {
    for (int layer = 0; layer < 2; ++layer) {
      parameters_.push_back(
          {.name = "w" + std::to_string(layer),
           .layer = layer,
           .shape = {1},
           .elements = {layer, layer + 1},
           .values = std::span(values_).subspan(static_cast<std::size_t>(layer), 1)});
    }
  }
  [[nodiscard]] std::span<const Parameter> parameters() const override { return parameters_; }
  InnerStep train_step(StepIndex t) override {
    steps.push_back(t.value());
    values_[0] -= 1;
    values_[1] -= 2;
    return {.tokens = kTokens};
  }
  [[nodiscard]] double learning_rate(StepIndex) const override { return 1; }
  void read_values(CanonicalRange) override {
    if (unreadable) throw SystemError("the device is gone");
  }
  void spoil(std::size_t layer) { values_[layer] = std::numeric_limits<float>::quiet_NaN(); }

  std::vector<std::int64_t> steps;
  bool unreadable = false;

 private:
  std::vector<float> values_ = {0, 0};
  std::vector<Parameter> parameters_;
};

OuterOptions average(int fragments, std::int64_t overlap = 0) {
  OuterOptions outer;
  outer.H = 4;
  outer.lr = 1.0;
  outer.momentum = 0.0;
  outer.fragments = fragments;
  outer.overlap = overlap;
  if (fragments > 1) outer.alpha = 0.0;
  return outer;
}

std::unique_ptr<OuterStrategy> make(InnerLoop& inner, Exchange& exchange, int fragments,
                                    std::int64_t overlap = 0) {
  return make_outer_strategy(fragments == 1 ? "diloco" : "streaming-diloco",
                             average(fragments, overlap), inner, exchange);
}

/// Worker 0 takes `steps`, the last of which ends with the news that it is cut off, or nothing.
struct CutOff {
  TwoLayers inner;
  OneOther exchange;
  std::unique_ptr<OuterStrategy> strategy;

  explicit CutOff(std::int64_t steps, std::int64_t fails_after = 1000, int fragments = 1,
                  std::int64_t overlap = 0) {
    exchange.fails_after = fails_after;
    strategy = make(inner, exchange, fragments, overlap);
    try {
      for (std::int64_t t = 1; t <= steps; ++t) (void)strategy->step();
      EXPECT_GE(fails_after, steps);
    } catch (const PeerError&) {
      EXPECT_LT(fails_after, steps);
    }
  }
  [[nodiscard]] UncommittedDelta work() const { return carries().uncommitted_delta(); }
  [[nodiscard]] CarriesWork& carries() const { return dynamic_cast<CarriesWork&>(*strategy); }
  [[nodiscard]] OfflineDelta lone() { return {work(), carries().fragments(), inner}; }
  [[nodiscard]] UncommittedDelta alone(std::int64_t steps) {
    OfflineDelta lone = this->lone();
    for (std::int64_t k = 0; k < steps; ++k) (void)lone.step();
    return lone.take();
  }
};

// The window of step 4 has ended: three steps are open, and four follow.
TEST(OfflineDelta, BelongsToTheOpenWindow) {
  CutOff worker(7);
  const UncommittedDelta before = worker.work();
  ASSERT_THAT(before.parts[0].beyond, ElementsAre(FloatNear(-3, 1e-5f), FloatNear(-6, 1e-5f)));
  const UncommittedDelta work = worker.alone(4);
  EXPECT_THAT(work.parts[0].beyond, ElementsAre(FloatNear(-7, 1e-5f), FloatNear(-14, 1e-5f)));
  EXPECT_EQ(work.parts[0].tokens, 7 * kTokens);
  EXPECT_EQ(work.parts[0].steps, 7);
  EXPECT_EQ(work.step, before.step) << "where it was with the others";
  EXPECT_EQ(work.trained, StepIndex(11));
  EXPECT_EQ(work.alone_steps, 4);
  EXPECT_EQ(work.alone_tokens, 4 * kTokens);
  EXPECT_EQ(work.lost_tokens(), 0);
}

TEST(OfflineDelta, TakesTheStepsAfterTheLastOneEachOnce) {
  CutOff between(6);
  (void)between.alone(2);
  EXPECT_THAT(between.inner.steps, ElementsAre(1, 2, 3, 4, 5, 6, 7, 8));
  CutOff in_a_round(4, 3);  // step 4 was trained on, and its round has failed
  OfflineDelta lone = in_a_round.lone();
  EXPECT_EQ(lone.next(), StepIndex(5));
  lone.skip();  // a slow worker's
  (void)lone.step();
  EXPECT_THAT(in_a_round.inner.steps, ElementsAre(1, 2, 3, 4, 6));
  EXPECT_EQ(lone.take().alone_steps, 1);
}

// Whether the round of step 4 was committed nobody here knows; what follows it is in no anchor.
TEST(OfflineDelta, AfterARoundThatFailedIsAllThereIsToGive) {
  CutOff worker(4, 3);
  const UncommittedDelta work = worker.alone(3);
  EXPECT_THAT(work.parts[0].beyond, ElementsAre(-3, -6));
  EXPECT_EQ(work.parts[0].tokens, 3 * kTokens);
  EXPECT_EQ(work.lost_tokens(), 4 * kTokens);
}

TEST(OfflineDelta, WithoutAStepIsTheWorkOfBefore) {
  CutOff between(7);
  const UncommittedDelta work = between.alone(0);
  EXPECT_EQ(work.parts[0].beyond, between.work().parts[0].beyond);
  EXPECT_EQ(work.parts[0].tokens, 3 * kTokens);
  EXPECT_EQ(work.trained, StepIndex(7));
  CutOff in_a_round(4, 3);
  EXPECT_TRUE(in_a_round.alone(0).parts[0].beyond.empty());
}

// Fragments are sent after steps 4, 8, .. and 2, 6, ..; the round of step 6 has failed.
TEST(OfflineDelta, IsOfEachFragmentWhatNoRoundWasGiven) {
  CutOff worker(6, 5, 2);
  const UncommittedDelta work = worker.alone(3);
  ASSERT_EQ(work.parts.size(), 2u);
  for (std::size_t p = 0; p < 2; ++p) {
    const std::size_t layer = worker.carries().fragments()[p].parameters.at(0);
    const float rate = layer == 0 ? 1 : 2;
    const bool failed = worker.carries().fragments()[p].id.value() == 1;
    const std::int64_t steps = failed ? 3 : 2 + 3;
    EXPECT_THAT(work.parts[p].beyond,
                ElementsAre(FloatNear(-rate * static_cast<float>(steps), 1e-5f)));
    EXPECT_EQ(work.parts[p].tokens, steps * kTokens);
  }
  EXPECT_EQ(work.lost_tokens(), 4 * kTokens);
}

TEST(OfflineDelta, ThatIsNotFiniteIsLostOfThatFragmentAlone) {
  CutOff worker(5, 1000, 2);
  OfflineDelta lone = worker.lone();
  (void)lone.step();
  worker.inner.spoil(0);
  const UncommittedDelta work = lone.take();
  for (std::size_t p = 0; p < 2; ++p) {
    const bool spoilt = worker.carries().fragments()[p].parameters.at(0) == 0;
    EXPECT_EQ(work.parts[p].beyond.empty(), spoilt);
    EXPECT_EQ(work.parts[p].tokens > 0, !spoilt);
  }
  EXPECT_GT(work.lost_tokens(), 0);
}

// A fragment's round that failed and the steps alone after it are of that fragment alike: of its
// 4 and 3 steps all tokens are gone where the latter are lost too.
TEST(OfflineDelta, ThatIsLostCountsWithTheRoundLostBeforeIt) {
  CutOff worker(4, 3);
  EXPECT_EQ(worker.alone(3).all_tokens(), 7 * kTokens);
  CutOff spoilt(4, 3);
  OfflineDelta lone = spoilt.lone();
  for (int k = 0; k < 3; ++k) (void)lone.step();
  spoilt.inner.spoil(0);
  EXPECT_EQ(lone.take().lost_tokens(), 7 * kTokens);
}

// The model's values cannot be had any more.
TEST(OfflineDelta, ThatCannotBeReadIsLost) {
  CutOff worker(6, 5, 2);
  OfflineDelta lone = worker.lone();
  (void)lone.step();
  worker.inner.unreadable = true;
  EXPECT_THROW((void)lone.take(), SystemError);
  const UncommittedDelta work = lone.lose();
  EXPECT_EQ(work.tokens(), 0);
  EXPECT_EQ(work.lost_tokens(), 5 * kTokens) << "4 in the round that failed, and one alone";
  EXPECT_EQ(work.alone_steps, 1);
  for (const UncommittedDelta::Part& part : work.parts) EXPECT_TRUE(part.beyond.empty());
}

// Of the fragments one has lost 4 steps and has 3 to give, and one has 5 to give: most of one.
TEST(OfflineDelta, ThatIsLostCountsByFragment) {
  CutOff worker(6, 5, 2);
  const UncommittedDelta work = worker.alone(3);
  EXPECT_EQ(work.tokens(), 5 * kTokens);
  EXPECT_EQ(work.lost_tokens(), 4 * kTokens);
  EXPECT_EQ(work.all_tokens(), 7 * kTokens);
}

// Where the site joins, after step 4, the first fragment is under way: its 3 steps alone have no
// place. Before that the window of 4 steps whose round has failed and the step after it were lost.
TEST(OfflineDelta, WithoutAPlaceIsLostWithTheRoundLostBeforeIt) {
  CutOff away(5, 3, 2, 1);  // what was sent after step 4 is due after step 5
  const UncommittedDelta work = away.alone(3);
  const std::size_t failed = away.carries().fragments()[0].id.value() == 0 ? 0 : 1;
  ASSERT_EQ(work.parts[failed].lost_tokens, 5 * kTokens);
  ASSERT_EQ(work.parts[failed].tokens, 3 * kTokens);
  CutOff joins(4, 1000, 2, 1);
  joins.strategy->forget_own_work();
  const CarriesWork::Kept kept = joins.carries().carry(work);
  EXPECT_EQ(kept.lost_tokens, 8 * kTokens);
  EXPECT_EQ(kept.tokens, work.parts[1 - failed].tokens) << "the other one has its place";
}

// With SGD(1) it is one contribution with the next window's: 7 and 4 steps, by their tokens. The
// same as if the worker's window had been 11 steps long.
TEST(OfflineDelta, ComesWithTheNextWindowAndWeighsItsTokens) {
  CutOff away(7);
  const UncommittedDelta work = away.alone(4);
  TwoLayers inner;
  OneOther exchange;
  const auto strategy = make(inner, exchange, 1);
  strategy->forget_own_work();
  const CarriesWork::Kept kept = dynamic_cast<CarriesWork&>(*strategy).carry(work);
  EXPECT_EQ(kept.tokens, 7 * kTokens);
  EXPECT_EQ(kept.lost_tokens, 0);
  for (int t = 1; t <= 4; ++t) (void)strategy->step();
  EXPECT_THAT(exchange.weights, ElementsAre(11.0 * kTokens));
  for (std::size_t layer = 0; layer < 2; ++layer) {
    const double own = layer == 0 ? 11 : 22;
    EXPECT_NEAR(strategy->values(layer)[0],
                -(own * 110 + static_cast<double>(kOther) * kOtherWeight) / (110 + kOtherWeight),
                1e-5);
  }
  for (int t = 5; t <= 8; ++t) (void)strategy->step();  // and is given once
  EXPECT_THAT(exchange.weights, ElementsAre(11.0 * kTokens, 4.0 * kTokens));
}

}  // namespace
}  // namespace isthmus::this_file
