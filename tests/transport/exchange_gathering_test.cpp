// SPDX-License-Identifier: Apache-2.0
// Members that meet before a run begins: who comes and goes meanwhile, and lives of one member that
// follow one another.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <optional>
#include <utility>
#include <vector>

#include "transport/exchange/exchange_engine.h"
#include "transport/naive_mean.h"

namespace isthmus::this_file {
namespace {

using namespace testing_support;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr SyncId kRound{FragmentId(0), StepIndex(1)};
constexpr std::size_t kValues = 3 * 4096;  // both own some

ExchangeEngine engine(int self, bool gathers = true) {
  return ExchangeEngine(
      {.self = WorkerId(self), .members = 2, .exchange = {.elastic = true, .gathers = gathers}});
}

/// `scale`: what the member has instead of the test's values, times this.
Outbox begin(ExchangeEngine& engine, int self, float scale = 1) {
  const std::shared_ptr<const Codec> codec = make_codec("fp32");
  Contribution contribution =
      contribution_of(codec, WorkerId(self), kValues, kRound, ReductionKind::kReduce);
  if (scale != 1) {
    std::vector<float> values = test_vector(WorkerId(self), kValues);
    for (float& value : values) value *= scale;
    contribution.encoded =
        encode(*codec, values, encode_key(kRound, static_cast<std::uint32_t>(self)));
  }
  Outbox out;
  const SharedContribution shared = share(std::move(contribution));
  engine.begin(Round(shared, engine.rounds().place(kRound)), true, shared, TimePoint{}, out);
  return out;
}

void start(ExchangeEngine& engine, std::array<std::uint64_t, 2> met, Outbox& out) {
  engine.start(met, TimePoint{}, out);
}

/// What `out` of member `from` has for the other one.
void carry(int from, const Outbox& out, ExchangeEngine& to, Outbox& answer) {
  for (const Outgoing& each : out) {
    if (each.to != WorkerId(from)) to.receive(WorkerId(from), each.frame, TimePoint{}, answer);
  }
}

/// Until nobody has anything to say.
void carry_all(std::array<ExchangeEngine*, 2> engines, std::array<Outbox, 2> out) {
  while (!out[0].empty() || !out[1].empty()) {
    std::array<Outbox, 2> next;
    carry(0, out[0], *engines[1], next[1]);
    carry(1, out[1], *engines[0], next[0]);
    out = std::move(next);
  }
}

// The end of a former life of member 1 is met first: it has not noticed yet that its run is over.
TEST(ExchangeGathering, WhoComesAndGoesBeforeTheStartIsLeftOutOfNothing) {
  ExchangeEngine first = engine(0), second = engine(1);
  std::array<Outbox, 2> out;
  first.lose(WorkerId(1), "has left", TimePoint{}, out[0]);
  first.welcome_back(WorkerId(1), TimePoint{}, out[0]);
  start(first, {0, 1}, out[0]);
  start(second, {0, 0}, out[1]);
  EXPECT_THAT(first.take_epochs(), IsEmpty());
  EXPECT_EQ(first.members().membership().number(), 0U);
  for (int m = 0; m < 2; ++m) {
    const auto place = static_cast<std::size_t>(m);
    const Outbox more = begin(m == 0 ? first : second, m);
    out[place].insert(out[place].end(), more.begin(), more.end());
  }
  carry_all({&first, &second}, out);
  for (ExchangeEngine* each : {&first, &second}) {
    ASSERT_TRUE(each->ready(kRound));
    EXPECT_THAT(each->take(kRound)->contributors, ElementsAre(WorkerId(0), WorkerId(1)));
  }
}

TEST(ExchangeGathering, WhoHasGoneSinceItWasMetIsLeftOutOfTheRun) {
  ExchangeEngine first = engine(0);
  Outbox out;
  first.lose(WorkerId(1), "killed", TimePoint{}, out);
  EXPECT_THAT(first.take_epochs(), IsEmpty());
  start(first, {0, 0}, out);
  const std::vector<Epoch> epochs = first.take_epochs();
  ASSERT_THAT(epochs, SizeIs(1));
  EXPECT_THAT(epochs[0].live, ElementsAre(true, false));
  EXPECT_EQ(epochs[0].why, "killed");
  (void)begin(first, 0);
  ASSERT_TRUE(first.ready(kRound));
  EXPECT_THAT(first.take(kRound)->contributors, ElementsAre(WorkerId(0)));
}

// Its next process is no member: it may join.
TEST(ExchangeGathering, WhoWasStartedAnewSinceItWasMetIsLeftOutAndMayJoin) {
  ExchangeEngine first = engine(0);
  Outbox out;
  first.lose(WorkerId(1), "killed", TimePoint{}, out);
  first.welcome_back(WorkerId(1), TimePoint{}, out);
  start(first, {0, 0}, out);
  const std::vector<Epoch> epochs = first.take_epochs();
  ASSERT_THAT(epochs, SizeIs(1));
  EXPECT_THAT(epochs[0].live, ElementsAre(true, false));
  EXPECT_TRUE(first.admit(WorkerId(1), 0, TimePoint{}, out));
}

// Member 1 starts as soon as it is told to, perhaps before member 0 has done so itself.
TEST(ExchangeGathering, WhatIsSentBeforeTheStartCountsButNotThatOfALifeBefore) {
  ExchangeEngine first = engine(0), former = engine(1), second = engine(1);
  std::array<Outbox, 2> out;
  start(former, {0, 0}, out[1]);
  carry(1, begin(former, 1, 3), first, out[0]);
  first.lose(WorkerId(1), "killed", TimePoint{}, out[0]);
  first.welcome_back(WorkerId(1), TimePoint{}, out[0]);
  start(second, {0, 0}, out[1]);
  const Outbox sent = begin(second, 1);
  carry(1, sent, first, out[0]);
  EXPECT_THAT(out[0], IsEmpty()) << "answered before it has started";
  start(first, {0, 1}, out[0]);
  const Outbox more = begin(first, 0);
  out[0].insert(out[0].end(), more.begin(), more.end());
  carry_all({&first, &second}, out);
  const std::shared_ptr<const Codec> codec = make_codec("fp32");
  ASSERT_TRUE(first.ready(kRound));
  const auto result = first.take(kRound);
  EXPECT_THAT(result->contributors, ElementsAre(WorkerId(0), WorkerId(1)));
  EXPECT_EQ(result->values,
            naive_mean(*codec, result->contributors, kValues, ReductionKind::kReduce));
}

// Its next process is of another start: it will have nothing of a round of this one.
TEST(ExchangeGathering, NoRoundWaitsForAFirstMemberThatWasStartedAnew) {
  for (const bool gathers : {false, true}) {
    ExchangeEngine second = engine(1, gathers);
    Outbox out;
    if (gathers) start(second, {0, 0}, out);
    second.lose(WorkerId(0), "killed", TimePoint{}, out);
    second.welcome_back(WorkerId(0), TimePoint{}, out);
    (void)begin(second, 1);
    ASSERT_TRUE(second.ready(kRound));
    const auto result = second.take(kRound);
    ASSERT_FALSE(result.has_value());
    EXPECT_EQ(result.error().kind, ExchangeError::Kind::kPeerLost);
    EXPECT_THAT(result.error().what, HasSubstr("worker 0 is gone (killed)"));
  }
}

// ... also where that happened between the word to start and the start.
TEST(ExchangeGathering, NoRoundWaitsForAFirstMemberOfAnotherStart) {
  ExchangeEngine second = engine(1);
  Outbox out;
  second.lose(WorkerId(0), "killed", TimePoint{}, out);
  second.welcome_back(WorkerId(0), TimePoint{}, out);
  start(second, {0, 0}, out);
  (void)begin(second, 1);
  ASSERT_TRUE(second.ready(kRound));
  EXPECT_EQ(second.take(kRound).error().kind, ExchangeError::Kind::kPeerLost);
}

}  // namespace
}  // namespace isthmus::this_file
