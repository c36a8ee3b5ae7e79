// SPDX-License-Identifier: Apache-2.0
// Both ends of a join in one process: notes go from one to the other when the test says so.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "isthmus/errors.h"
#include "join_fixture.h"

namespace isthmus::app::this_file {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST_F(Join, GivesAStateThenResultsUntilAllHaveAgreed) {
  host_.hello(WorkerId(2), own());
  ASSERT_EQ(sent_.size(), 1u);
  EXPECT_THAT(std::get<RunningNote>(sent_.front().second).live, ElementsAre(0, 1));
  sent_.clear();
  const auto north = newcomer(WorkerId(2));
  host_.receive(WorkerId(2), JoinNote{{0, 1}});
  after_step(6);
  after_step(7);
  settle(*north);
  ASSERT_TRUE(north->fetch(runtime_.clock().now()));
  EXPECT_EQ(north->offer().step, StepIndex(7));
  EXPECT_EQ(north->offer().clock_s, 12.5);
  const std::unique_ptr<StateReader> state = north->take_state();
  std::vector<float> values(300000);
  state->tensor("local/w", values);
  EXPECT_EQ(values[299999], 299999.0f);
  EXPECT_EQ(state->integer("inner/steps"), 41);

  // Its strategy asks for the round of step 8; the donor takes it, in several notes.
  const std::shared_ptr<const Codec> codec = make_codec("fp32");
  const Ticket ticket =
      north->exchange().begin({.id = {FragmentId(0), StepIndex(8)},
                               .encoded = encode(*codec, std::vector<float>(200000)),
                               .codec = codec});
  ASSERT_TRUE(forwarding_.wait({{FragmentId(0), StepIndex(8)}}, 1s));
  after_step(8);
  settle(*north);
  EXPECT_TRUE(north->may_replay(StepIndex(8), 0s));
  const auto result = north->exchange().wait(ticket, 0s);
  ASSERT_TRUE(result.has_value()) << result.error().what;
  EXPECT_EQ(result->values, std::vector<float>(200000, 8.0f));

  // Step 9 is not over at the donor: it has caught up, once.
  for (int k = 0; k < 2; ++k) EXPECT_THROW((void)north->may_replay(StepIndex(9), 0s), PeerError);
  settle(*north);
  answer();
  EXPECT_EQ(wishes_, 1);
  EXPECT_TRUE(host_.agreed(11));
  EXPECT_THAT(admitted_, ElementsAre("2 after 11"));
  north->admitted(11);
  EXPECT_TRUE(north->may_replay(StepIndex(11), 0s));
  EXPECT_FALSE(north->may_replay(StepIndex(12), 0s));

  // Rounds sent by step 11 are still forwarded while they may end, later ones never.
  for (const std::int64_t sent : {11, 12}) {
    ASSERT_TRUE(forwarding_.wait({{FragmentId(0), StepIndex(sent)}}, 1s));
  }
  int streams = 0;
  for (const auto& [to, note] : sent_) streams += std::holds_alternative<ResultNote>(note) ? 1 : 0;
  EXPECT_EQ(streams, 2);  // 800,000 bytes are two pieces
}

// Nobody goes beyond step 6, so no later one can be waited for; the others stand there too.
TEST_F(Join, WhoStandsStillGivesTheStateOfThere) {
  const auto north = newcomer(WorkerId(2));
  const auto stand = [&] {
    host_.after_step(StepIndex(6), loop_, *strategy_, forwarding_, true);
    west_.after_step(StepIndex(6), loop_, *strategy_);
    settle(*north);
  };
  host_.receive(WorkerId(2), JoinNote{{0, 1}});
  for (int k = 0; k < 3; ++k) stand();
  ASSERT_TRUE(north->fetch(runtime_.clock().now()));
  EXPECT_EQ(north->offer().step, StepIndex(6));
  EXPECT_THROW((void)north->may_replay(StepIndex(7), 0s), PeerError);  // it has caught up
  answer();
  EXPECT_EQ(wishes_, 1);
}

// Step 7, which it was promised the state of, does not come.
TEST_F(Join, WhoHasAskedBeforeAllStoodIsGivenTheStateOfThere) {
  const auto north = newcomer(WorkerId(2));
  host_.receive(WorkerId(2), JoinNote{{0, 1}});
  after_step(6);
  settle(*north);
  ASSERT_FALSE(north->fetch(runtime_.clock().now()));
  host_.after_step(StepIndex(6), loop_, *strategy_, forwarding_, true);
  EXPECT_EQ(std::get<PrepareNote>(sent_.front().second).step, StepIndex(6)) << "to the others";
  settle(*north);
  west_.after_step(StepIndex(6), loop_, *strategy_);
  settle(*north);
  ASSERT_TRUE(north->fetch(runtime_.clock().now()));
  EXPECT_EQ(north->offer().step, StepIndex(6));
  EXPECT_THAT(north->progress(), HasSubstr("west"));
}

// The model has 1.2 MB, so eleven results of 0.8 MB may wait for it.
TEST_F(Join, TurnsAwayWhoTakesInLessThanTheRunMakes) {
  const auto north = newcomer(WorkerId(2));
  live_ = {true, false, false};
  host_.receive(WorkerId(2), JoinNote{{0}});
  after_step(7);
  std::int64_t t = 7;
  const auto results = [&](int count) {
    for (int k = 0; k < count; ++k) {
      ASSERT_TRUE(forwarding_.wait({{FragmentId(0), StepIndex(++t)}}, 1s));
    }
  };
  const auto turned_away = [&] {
    return std::ranges::any_of(sent_, [](const auto& sent) {
      return std::holds_alternative<TurnedAwayNote>(sent.second);
    });
  };
  results(11);
  settle(*north);
  ASSERT_TRUE(north->fetch(runtime_.clock().now()));
  EXPECT_FALSE(turned_away());
  const std::shared_ptr<const Codec> codec = make_codec("fp32");
  for (std::int64_t step = 8; step <= 12; ++step) {  // five of them are replayed
    const Ticket ticket =
        north->exchange().begin({.id = {FragmentId(0), StepIndex(step)},
                                 .encoded = encode(*codec, std::vector<float>(200000)),
                                 .codec = codec});
    ASSERT_TRUE(north->exchange().wait(ticket, 0s));
  }
  answer();
  results(5);
  EXPECT_FALSE(turned_away()) << "eleven wait for it";
  results(1);
  ASSERT_TRUE(turned_away());
  const auto note = std::get<TurnedAwayNote>(sent_.back().second);
  EXPECT_THAT(note.why, HasSubstr("less than the run"));
  EXPECT_TRUE(note.again);
  const std::size_t sent = sent_.size();
  results(5);
  after_step(t);
  EXPECT_EQ(sent_.size(), sent) << "nothing more is kept for it";

  // It starts over, with a state of now; the third time is the last.
  for (const bool again : {true, false}) {
    sent_.clear();
    host_.receive(WorkerId(2), JoinNote{{0}});
    after_step(++t);
    EXPECT_EQ(std::get<OfferNote>(sent_.front().second).step, StepIndex(t));
    results(13);
    EXPECT_EQ(std::get<TurnedAwayNote>(sent_.back().second).again, again);
    after_step(++t);
  }
}

// Whoever has been given results of steps that do not count starts over, also once it is admitted,
// unless it was only given what is committed.
TEST_F(Join, WhoWasGivenStepsThatAreTakenBackStartsOver) {
  const auto north = newcomer(WorkerId(2));
  live_ = {true, false, false};
  const auto turned_away = [&] {
    for (const auto& [to, note] : std::exchange(sent_, {})) {
      if (const auto* away = std::get_if<TurnedAwayNote>(&note)) {
        EXPECT_TRUE(away->again);
        EXPECT_THAT(away->why, HasSubstr("gone back to step"));
        return true;
      }
    }
    return false;
  };
  for (const bool admitted : {false, true}) {
    for (const std::int64_t back_to : {8, 12}) {
      host_.receive(WorkerId(2), JoinNote{{0}});
      after_step(7);
      ASSERT_TRUE(forwarding_.wait({{FragmentId(0), StepIndex(8)}}, 1s));
      if (admitted) {
        host_.receive(WorkerId(2), CaughtUpNote{});
        ASSERT_TRUE(host_.agreed(11));
      }
      sent_.clear();
      host_.gone_back(StepIndex(back_to));
      EXPECT_EQ(turned_away(), !admitted || back_to < 11) << back_to;
      ASSERT_TRUE(forwarding_.wait({{FragmentId(0), StepIndex(9)}}, 1s));
      const bool given = std::ranges::any_of(
          sent_, [](const auto& each) { return std::holds_alternative<ResultNote>(each.second); });
      EXPECT_EQ(given, admitted && back_to > 11) << back_to;
    }
  }
}

// The last step it replays may be taken back until the donor has ended it.
TEST_F(Join, TrainsOnceTheDonorHasEndedTheLastStepItReplays) {
  for (const bool awaits_end : {false, true}) {
    real_ = std::make_unique<FakeExchange>(WorkerId(2));
    Joiner north(
        *real_, runtime_, WorkerId(0), {"east", "west", "north"},
        [this](WorkerId to, const Note& note) { answers_.emplace_back(to, note); }, nullptr,
        awaits_end);
    live_ = {true, false, false};
    host_.receive(WorkerId(2), JoinNote{{0}});
    after_step(7);
    settle(north);
    ASSERT_TRUE(north.fetch(runtime_.clock().now()));
    north.admitted(9);
    EXPECT_TRUE(north.may_replay(StepIndex(9), 0s));
    if (awaits_end) {
      north.receive(WorkerId(0), ReachedNote{StepIndex(8)});
      EXPECT_THROW((void)north.may_replay(StepIndex(10), 0s), PeerError);
      north.receive(WorkerId(0), ReachedNote{StepIndex(9)});
    }
    EXPECT_FALSE(north.may_replay(StepIndex(10), 0s));
    host_.lost(WorkerId(2));
    sent_.clear();
    answers_.clear();
  }
}

// Notes to the other site, and from it: what both hold alike comes from either.
TEST_F(Join, TakesWhatIsAlikeFromTheOthers) {
  Loop own;
  own.values()[5] = 0;  // its parameters are other ones, its anchors the same
  loop_.values()[7] = 0;
  const auto north = newcomer(WorkerId(2));
  host_.receive(WorkerId(2), JoinNote{{0, 1}});
  after_step(6);
  ASSERT_EQ(sent_.size(), 1u);
  EXPECT_EQ(sent_.front().first, WorkerId(1));
  EXPECT_EQ(std::get<PrepareNote>(sent_.front().second).step, StepIndex(7));
  settle(*north);
  west_.after_step(StepIndex(6), own, *strategy_);
  after_step(7);
  for (const auto& [to, note] : std::deque(sent_)) {  // the table is there, the state is not
    if (to == WorkerId(1)) west_.receive(WorkerId(0), note);
  }
  EXPECT_TRUE(from_west_.empty());
  west_.after_step(StepIndex(7), own, *strategy_);
  const auto& holds = std::get<HoldsNote>(from_west_.at(0)).pieces;
  EXPECT_GT(std::ranges::count(holds, true), 0);
  EXPECT_GT(std::ranges::count(holds, false), 0);
  std::erase_if(sent_, [](const auto& each) { return each.first == WorkerId(1); });
  settle(*north);
  ASSERT_TRUE(north->fetch(runtime_.clock().now()));
  EXPECT_THAT(north->progress(), HasSubstr("west 12007"));
  std::vector<float> values(300000);
  north->take_state()->tensor("local/w", values);
  EXPECT_EQ(values[5], 5.0f) << "the donor's";
  EXPECT_FALSE(west_.due());
}

TEST_F(Join, ASourceThatGoesCostsItsPiecesOnly) {
  const auto north = newcomer(WorkerId(2));
  host_.receive(WorkerId(2), JoinNote{{0, 1}});
  after_step(6);
  west_.receive(WorkerId(0), sent_.front().second);
  sent_.pop_front();
  west_.after_step(StepIndex(7), loop_, *strategy_);
  after_step(7);
  for (const auto& [to, note] : std::exchange(sent_, {})) {
    if (to == WorkerId(1)) west_.receive(WorkerId(0), note);
    if (to == WorkerId(2)) north->receive(WorkerId(0), note);
  }
  EXPECT_FALSE(west_.next(runtime_.clock().now(), false)) << "it says what it has";
  north->receive(WorkerId(1), from_west_.at(0));
  from_west_.clear();
  EXPECT_GT(std::erase_if(answers_, [](const auto& each) { return each.first == WorkerId(1); }),
            0u);
  north->lost(WorkerId(1));
  settle(*north);
  ASSERT_TRUE(north->fetch(runtime_.clock().now()));
  EXPECT_EQ(north->take_state()->integer("inner/steps"), 41);
}

TEST_F(Join, IsOneAtATimeAndEndsWithALoss) {
  live_ = {true, false, false};
  host_.receive(WorkerId(1), JoinNote{{0}});
  host_.receive(WorkerId(2), JoinNote{{0, 1}});
  after_step(3);
  EXPECT_EQ(sent_.front().first, WorkerId(1));
  EXPECT_EQ(sent_.size(), 2u);  // an offer, and its table
  sent_.clear();
  host_.receive(WorkerId(1), CaughtUpNote{});
  EXPECT_EQ(wishes_, 1);
  host_.lost(WorkerId(1));
  EXPECT_FALSE(host_.agreed(5)) << "whoever it was about is gone";
  EXPECT_TRUE(admitted_.empty());
  after_step(4);
  ASSERT_EQ(sent_.size(), 2u);
  EXPECT_EQ(sent_.front().first, WorkerId(2));
  EXPECT_EQ(std::get<OfferNote>(sent_.front().second).step, StepIndex(4));
}

TEST_F(Join, WhoIsInTheRunDoesNotJoin) {
  host_.receive(WorkerId(1), JoinNote{{0}});
  after_step(3);
  EXPECT_TRUE(sent_.empty());
}

TEST_F(Join, AsksAgainWhoDoesNotKnowAll) {
  host_.receive(WorkerId(2), JoinNote{{0}});
  EXPECT_THAT(std::get<RunningNote>(sent_.front().second).live, ElementsAre(0, 1));
  sent_.clear();
  after_step(3);
  EXPECT_TRUE(sent_.empty());
}

TEST_F(Join, EndsWithTheRun) {
  host_.receive(WorkerId(2), JoinNote{{0, 1}});
  after_step(2);
  after_step(3);
  host_.receive(WorkerId(2), CaughtUpNote{});
  sent_.clear();
  EXPECT_FALSE(host_.agreed(100)) << "there is no step left";
  EXPECT_THAT(std::get<TurnedAwayNote>(sent_.front().second).why, HasSubstr("last step"));
  host_.receive(WorkerId(2), JoinNote{{0, 1}});
  sent_.clear();
  host_.close();
  EXPECT_THAT(std::get<TurnedAwayNote>(sent_.front().second).why, HasSubstr("has ended"));
}

TEST_F(Join, TurnsAwayAnotherConfiguration) {
  HelloNote other;
  other.common = {{"train.steps", "200"}};
  host_.hello(WorkerId(2), other);
  const auto& note = std::get<TurnedAwayNote>(sent_.front().second);
  EXPECT_TRUE(note.configuration);
  EXPECT_THAT(note.why, HasSubstr("train.steps is 100 at east and 200 at north"));
}

TEST_F(Join, RefusesWhatItDidNotAskFor) {
  const std::vector<std::byte> zeros(1000);
  const auto offer = [&](Joiner& to, std::uint64_t bytes) {
    to.receive(WorkerId(0), OfferNote{.step = StepIndex(3), .bytes = bytes, .clock_s = 0});
    const std::vector<std::byte> table = write_table(cut_pieces(zeros, {}));
    to.receive(WorkerId(0), TableNote{NoteStreamCutter(0, 0, table).next()});
  };
  const auto other = newcomer(WorkerId(2));
  offer(*other, 999);
  EXPECT_THROW((void)other->fetch(runtime_.clock().now()), PeerError);

  const auto north = newcomer(WorkerId(2));
  offer(*north, 1000);
  north->receive(WorkerId(0), PieceNote{.offset = 10, .bytes = std::vector<std::byte>(10)});
  north->receive(WorkerId(1), PieceNote{.offset = 0, .bytes = zeros});
  EXPECT_FALSE(north->fetch(runtime_.clock().now()));
  north->receive(WorkerId(0), PieceNote{.offset = 0, .bytes = zeros});
  ASSERT_TRUE(north->fetch(runtime_.clock().now()));
  EXPECT_THROW((void)north->take_state(), PeerError) << "a thousand zeros are no state";
}

}  // namespace
}  // namespace isthmus::app::this_file
