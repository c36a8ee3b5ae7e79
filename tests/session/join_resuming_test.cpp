// SPDX-License-Identifier: Apache-2.0
// A newcomer that dies before it has the whole state, and comes back to it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "isthmus/codec.h"
#include "isthmus/errors.h"
#include "join_fixture.h"
#include "transport/wire/note_stream.h"

namespace isthmus::app::this_file {
namespace {

using testing::HasSubstr;
using testing::Not;

// The state has 2.4 MB in two large pieces, a round's result 0.8 MB.
TEST_F(Join, OneThatDiesGoesOnWithTheStateOfBefore) {
  std::filesystem::remove(file_);
  auto north = saving_newcomer();
  live_ = {true, true, false};
  host_.receive(WorkerId(2), north->join({0, 1}));
  after_step(6);
  west_.receive(WorkerId(0), sent_.front().second);
  sent_.pop_front();
  west_.after_step(StepIndex(7), loop_, *strategy_);
  after_step(7);
  ASSERT_TRUE(offered(7));
  const auto deliver = [&] {
    for (const auto& [to, note] : std::exchange(sent_, {})) {
      (to == WorkerId(1) ? west_.receive(WorkerId(0), note) : north->receive(WorkerId(0), note));
    }
  };
  deliver();
  EXPECT_FALSE(west_.next(runtime_.clock().now(), false)) << "it says what it has";
  const auto piece_is_saved = [&] {
    return PartialStateFile(storage_, file_).summary().bytes >= 1'200'000;
  };
  for (int part = 0; part < 15; ++part) {
    until([&] {
      EXPECT_FALSE(north->fetch(runtime_.clock().now()));
      return !answers_.empty() || source_.due();
    });
    answer();
    const auto given = source_.next(runtime_.clock().now(), false);
    ASSERT_TRUE(given);
    north->receive(WorkerId(0), given->second);
  }
  until(piece_is_saved);
  north.reset();
  answers_.clear();
  from_west_.clear();
  host_.lost(WorkerId(2));
  source_.lost(WorkerId(2), runtime_.clock().now());
  west_.lost(WorkerId(2), runtime_.clock().now());
  ASSERT_TRUE(forwarding_.wait({{FragmentId(0), StepIndex(8)}}, 1s));
  after_step(8);
  EXPECT_TRUE(sent_.empty());

  north = saving_newcomer();
  loop_.values()[5] = 0;  // the state goes on meanwhile
  host_.receive(WorkerId(2), north->join({0, 1}));
  after_step(9);
  ASSERT_TRUE(offered(7));
  for (const auto& [to, note] : sent_) {
    if (to == WorkerId(1)) west_.receive(WorkerId(0), note);
  }
  EXPECT_EQ(from_west_.size(), 1u) << "it has the same pieces still";
  std::erase_if(sent_, [](const auto& each) { return each.first == WorkerId(1); });
  until([&] {
    settle(*north);
    return north->fetch(runtime_.clock().now());
  });
  EXPECT_FALSE(source_.serves(WorkerId(2)) && answers_.empty()) << "it says that it has enough";
  answer();
  EXPECT_FALSE(source_.serves(WorkerId(2)));
  const std::unique_ptr<StateReader> state = north->take_state();
  std::vector<float> values(300000);
  state->tensor("local/w", values);
  EXPECT_EQ(values[5], 5.0f);
  EXPECT_THAT(north->progress(), Not(HasSubstr("(east 2400"))) << "a piece was on the disk";
  until([&] { return !std::filesystem::exists(file_); });

  // The round that it has missed.
  const std::shared_ptr<const Codec> codec = make_codec("fp32");
  const Ticket ticket =
      north->exchange().begin({.id = {FragmentId(0), StepIndex(8)},
                               .encoded = encode(*codec, std::vector<float>(200000)),
                               .codec = codec});
  const auto result = north->exchange().wait(ticket, 0s);
  ASSERT_TRUE(result.has_value()) << result.error().what;
  EXPECT_EQ(result->values, std::vector<float>(200000, 8.0f));
  const auto says_caught_up = [&] {
    return std::ranges::any_of(answers_, [](const auto& each) {
      return std::holds_alternative<CaughtUpNote>(each.second);
    });
  };
  for (const std::int64_t t : {8, 9}) EXPECT_TRUE(north->may_replay(StepIndex(t), 0s));
  EXPECT_FALSE(says_caught_up()) << "its state is old";
  EXPECT_THROW((void)north->may_replay(StepIndex(10), 0s), PeerError);
  EXPECT_TRUE(says_caught_up());
}

TEST_F(Join, UntilTheDonorHasSaidHowFarItIsNobodyHasCaughtUp) {
  live_ = {true, false, false};
  const auto north = newcomer(WorkerId(2));
  host_.receive(WorkerId(2), JoinNote{{0}});
  after_step(7);
  settle(*north);
  ASSERT_TRUE(north->fetch(runtime_.clock().now()));
  answers_.clear();
  EXPECT_THROW((void)north->may_replay(StepIndex(8), 0s), PeerError);
  EXPECT_TRUE(answers_.empty());
  after_step(8);
  settle(*north);
  EXPECT_TRUE(north->may_replay(StepIndex(8), 0s));
  EXPECT_TRUE(answers_.empty());
}

TEST_F(Join, AStateIsKeptWhileItSparesSomething) {
  live_ = {true, false, false};
  Digest128 digest;  // of the last table
  const auto dies = [&] {
    host_.lost(WorkerId(2));
    source_.lost(WorkerId(2), TimePoint(1h));
    sent_.clear();
  };
  const auto take_digest = [&] {
    NoteStreamAssembler tables(1 << 20);
    for (const auto& [to, note] : sent_) {
      const auto* piece = std::get_if<TableNote>(&note);
      if (piece == nullptr || to != WorkerId(2)) continue;
      auto whole = tables.take(piece->piece);
      ASSERT_TRUE(whole);
      if (*whole) digest = xxh3_128((*whole)->bytes);
    }
  };
  std::int64_t t = 7;
  const auto begin = [&] {
    host_.receive(WorkerId(2), JoinNote{{0}});
    after_step(++t);
    const auto* offer = std::get_if<OfferNote>(&sent_.front().second);
    ASSERT_TRUE(offer != nullptr);
    EXPECT_EQ(offer->step, StepIndex(t)) << "who has nothing is given a state of now";
    take_digest();
  };
  const auto returns_with = [&](std::uint64_t saved) {
    host_.receive(WorkerId(2), JoinNote{.linked = {0}, .table = digest, .saved = saved});
  };
  const auto round = [&] {
    ASSERT_TRUE(forwarding_.wait({{FragmentId(0), StepIndex(++t)}}, 1s));
    after_step(t);
  };
  for (const bool enough : {true, false}) {  // more on its disk than it would have to replay
    begin();
    const std::int64_t first = t;
    dies();
    round();
    returns_with(enough ? 900'000 : 700'000);
    after_step(++t);
    EXPECT_TRUE(offered(enough ? first : t));
    EXPECT_EQ(std::ranges::count_if(
                  sent_,
                  [](const auto& each) { return std::holds_alternative<ResultNote>(each.second); }),
              enough ? 2 : 0);  // of 800,000 bytes
    dies();
    source_.forget(WorkerId(2));
    after_step(++t);
  }
  // Two results are more than half of the state; nor is it kept where they came before it died.
  begin();
  for (int k = 0; k < 2; ++k) round();
  EXPECT_TRUE(source_.serves(WorkerId(2)));
  dies();
  EXPECT_FALSE(source_.serves(WorkerId(2)));
  begin();
  dies();
  for (int k = 0; k < 2; ++k) round();
  EXPECT_FALSE(source_.serves(WorkerId(2)));
  returns_with(std::uint64_t{1} << 40);
  after_step(++t);
  EXPECT_TRUE(offered(t));
  dies();
  // Who was told of it and is gone meanwhile is not told again.
  live_ = {true, true, false};
  host_.receive(WorkerId(2), JoinNote{{0, 1}});
  for (int k = 0; k < 100 && !offered(t); ++k) after_step(++t);
  ASSERT_TRUE(offered(t));
  take_digest();
  dies();
  live_ = {true, false, false};
  returns_with(std::uint64_t{1} << 40);
  const std::int64_t first = t;
  after_step(++t);
  EXPECT_TRUE(offered(first));
  EXPECT_TRUE(
      std::ranges::all_of(sent_, [](const auto& each) { return each.first == WorkerId(2); }));
  dies();
  // Too late.
  begin();
  dies();
  source_.expire(TimePoint(1h) + kMostKeeps - 1ns);
  EXPECT_TRUE(source_.serves(WorkerId(2)));
  source_.expire(TimePoint(1h) + kMostKeeps);
  EXPECT_FALSE(source_.serves(WorkerId(2)));
  returns_with(std::uint64_t{1} << 40);
  after_step(++t);
  EXPECT_TRUE(offered(t));
}

}  // namespace
}  // namespace isthmus::app::this_file
