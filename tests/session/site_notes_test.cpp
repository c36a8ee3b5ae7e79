// SPDX-License-Identifier: Apache-2.0
#include "session/site/site_notes.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <cmath>
#include <limits>

#include "core/base/rng.h"

namespace isthmus::app::this_file {
namespace {

PostsNote posts() {
  StepPost post{.report = {.step = StepIndex(7),
                           .inner = {.loss = 0.1, .grad_norm = 3, .tokens = 64, .idle = false},
                           .rounds = {}},
                .learning_rate = 1e-3,
                .now = TimePoint(Duration(123456789)),
                .sent = {.payload = 1u << 31, .wire = (std::uint64_t{1} << 40) + 1},
                .computed = Duration(42)};
  post.report.rounds.push_back({.fragment = FragmentId(2),
                                .sent = StepIndex(5),
                                .applied = StepIndex(7),
                                .members = 3,
                                .counted = false,
                                .payload_bytes = 10,
                                .wire_bytes = 20,
                                .delta_norm = 0.25,
                                .codec_error = std::nullopt,
                                .cosine = -0.5,
                                .waited = Duration(9)});
  post.report.rounds.push_back({.applied = StepIndex(7), .merge = 12, .tokens = 640});
  StepPost diverged;
  diverged.report.step = StepIndex(8);
  diverged.report.inner.loss = std::numeric_limits<double>::quiet_NaN();
  diverged.report.inner.grad_norm = std::numeric_limits<double>::infinity();
  diverged.report.inner.idle = true;
  return {{post, diverged}};
}

template <typename Kind>
Kind there_and_back(const Kind& note) {
  const auto read = read_note(write_note(note));
  EXPECT_TRUE(read.has_value()) << (read ? "" : read.error());
  return std::get<Kind>(*read);
}

TEST(SiteNotes, StepsComeBackBitForBit) {
  const PostsNote note = there_and_back(posts());
  ASSERT_EQ(note.posts.size(), 2U);
  const StepPost& post = note.posts[0];
  EXPECT_EQ(post.report.step, StepIndex(7));
  EXPECT_EQ(post.report.inner.loss, 0.1);
  EXPECT_EQ(post.report.inner.tokens, 64);
  EXPECT_EQ(post.now, TimePoint(Duration(123456789)));
  EXPECT_EQ(post.sent.wire, (std::uint64_t{1} << 40) + 1);
  EXPECT_EQ(post.computed, Duration(42));
  ASSERT_EQ(post.report.rounds.size(), 2U);
  EXPECT_EQ(post.report.rounds[0].merge, 0);
  EXPECT_EQ(post.report.rounds[1].merge, 12);
  EXPECT_EQ(post.report.rounds[1].tokens, 640);
  const RoundReport& round = post.report.rounds[0];
  EXPECT_EQ(round.applied, StepIndex(7));
  EXPECT_EQ(round.members, 3);
  EXPECT_FALSE(round.counted);
  EXPECT_EQ(round.codec_error, std::nullopt);
  EXPECT_EQ(round.cosine, -0.5);
  EXPECT_EQ(round.waited, Duration(9));
  EXPECT_TRUE(std::isnan(note.posts[1].report.inner.loss));
  EXPECT_TRUE(std::isinf(note.posts[1].report.inner.grad_norm));
  EXPECT_TRUE(note.posts[1].report.inner.idle);
}

TEST(SiteNotes, TheOthersComeBack) {
  const HelloNote hello = there_and_back(HelloNote{.run_id = "a1",
                                                   .resumes = true,
                                                   .held = {{100, "a0", "ff"}, {50, "a0", "ee"}},
                                                   .common = {{"outer.H", "50"}},
                                                   .unreadable = true});
  EXPECT_EQ(hello.run_id, "a1");
  EXPECT_TRUE(hello.resumes);
  EXPECT_TRUE(hello.unreadable);
  EXPECT_THAT(hello.held, testing::ElementsAre(HeldCheckpoint{100, "a0", "ff"},
                                               HeldCheckpoint{50, "a0", "ee"}));
  EXPECT_THAT(hello.common, testing::ElementsAre(testing::Pair("outer.H", "50")));
  const EvalNote eval =
      there_and_back(EvalNote{StepIndex(9), {{3, 1.5, 8}}, TimePoint(Duration(5))});
  ASSERT_EQ(eval.parts.size(), 1U);
  EXPECT_EQ(eval.parts[0].batch, 3);
  EXPECT_EQ(eval.parts[0].loss_sum, 1.5);
  const auto written =
      there_and_back(OuterNote{StepIndex(4), "abc", "isthmus on a machine", true, "a full disk"});
  EXPECT_EQ(written.digest, "abc");
  EXPECT_EQ(written.about, "isthmus on a machine");
  EXPECT_TRUE(written.replayed);
  EXPECT_EQ(written.why, "a full disk");
  const auto gone = there_and_back(GoneNote{7, {{3, 2, written}}});
  EXPECT_EQ(gone.epoch, 7U);
  ASSERT_EQ(gone.words.size(), 1U);
  EXPECT_EQ(gone.words[0].epoch, 3U);
  EXPECT_EQ(gone.words[0].site, 2);
  EXPECT_EQ(gone.words[0].note.step, StepIndex(4));
  EXPECT_EQ(gone.words[0].note.why, "a full disk");
  EXPECT_EQ(there_and_back(DifferNote{"nobody can say"}).why, "nobody can say");
  EXPECT_EQ(there_and_back(WishNote{Purpose::kRequeue}).purpose, Purpose::kRequeue);
  JoinNote join{.linked = {0, 2}, .table = {}, .saved = 12345};
  join.table.bytes[15] = 7;
  const JoinNote read = there_and_back(join);
  EXPECT_EQ(read.linked, join.linked);
  EXPECT_EQ(read.table, join.table);
  EXPECT_EQ(read.saved, join.saved);
  EXPECT_EQ(there_and_back(WishNote{Purpose::kJoin}).purpose, Purpose::kJoin);
  EXPECT_EQ(there_and_back(WishNote{Purpose::kLeave}).purpose, Purpose::kLeave);
  EXPECT_EQ(there_and_back(WishNote{Purpose::kWait}).purpose, Purpose::kWait);
  const StartNote start = there_and_back(
      StartNote{.run_id = "r", .session = "s", .absent = {1, 2}, .resume_after = 40});
  EXPECT_EQ(start.run_id, "r");
  EXPECT_EQ(start.session, "s");
  EXPECT_THAT(start.absent, testing::ElementsAre(1, 2));
  EXPECT_EQ(start.resume_after, 40);
  EXPECT_EQ(there_and_back(StartNote{}).resume_after, std::nullopt);
  const std::vector<SyncId> newest = {{FragmentId(0), StepIndex(40)},
                                      {FragmentId(2), StepIndex(7)}};
  const StandingNote standing = there_and_back(
      StandingNote{.run_id = "r", .session = "s", .decided = {.epoch = 3, .newest = newest}});
  EXPECT_EQ(standing.session, "s");
  EXPECT_EQ(standing.decided.epoch, 3u);
  EXPECT_EQ(standing.decided.newest, newest);
  EXPECT_EQ(there_and_back(RefusedNote{"too few"}).why, "too few");
  EXPECT_EQ(there_and_back(TakenNote{1ULL << 40}).bytes, 1ULL << 40);
  const auto prepare = there_and_back(PrepareNote{.newcomer = 2, .step = StepIndex(7)});
  EXPECT_EQ(prepare.newcomer, 2);
  EXPECT_EQ(prepare.step, StepIndex(7));
  EXPECT_EQ(there_and_back(TableNote{{std::byte{9}}}).piece, std::vector{std::byte{9}});
  const std::vector<bool> pieces = {true, false, false, true, false, false, false, false, true};
  EXPECT_EQ(there_and_back(HoldsNote{pieces}).pieces, pieces);
  EXPECT_TRUE(there_and_back(HoldsNote{}).pieces.empty());
  (void)there_and_back(EnoughNote{});
  EXPECT_EQ(there_and_back(AskNote{3}).number, 3);
  EXPECT_EQ(there_and_back(HoldNote{3, StepIndex(11)}).step, StepIndex(11));
  EXPECT_EQ(there_and_back(AgreedNote{3, Purpose::kInterrupt, StepIndex(12)}).step, StepIndex(12));
}

TEST(SiteNotes, WhateverComesIsANoteOrAReason) {
  const std::vector<std::byte> whole = write_note(posts());
  for (std::size_t n = 0; n < whole.size(); ++n) {
    EXPECT_FALSE(read_note(std::span(whole).first(n)).has_value()) << n;
  }
  const Rng rng(1, Stream::kTestData);
  for (std::uint64_t i = 0; i < 20000; ++i) {
    std::vector<std::byte> bytes = whole;
    const auto at =
        static_cast<std::size_t>(rng.uniform(2 * i) * static_cast<double>(bytes.size()));
    bytes[at] = static_cast<std::byte>(rng.uniform(2 * i + 1) * 256);
    static_cast<void>(read_note(bytes));  // must return
  }
  // A million arrays in one another would be as many calls of a parser that calls itself.
  const std::vector<std::byte> nested(std::size_t{1} << 20, std::byte{0x81});
  const auto deep = read_note(nested);
  ASSERT_FALSE(deep.has_value());
  EXPECT_THAT(deep.error(), testing::HasSubstr("nested deeper"));
}

TEST(SiteNotes, APurposeBeyondTheLastIsNone) {
  std::vector<std::byte> bytes = write_note(WishNote{Purpose::kLeave});
  bytes.back() = std::byte{5};
  EXPECT_FALSE(read_note(bytes).has_value());
}

TEST(SiteNotes, AnotherVersionIsNamed) {
  // [0, 99, ...]: a hello of version 99
  const std::vector<std::byte> bytes = {std::byte{0x82}, std::byte{0x00}, std::byte{0x18},
                                        std::byte{99}};
  const auto read = read_note(bytes);
  ASSERT_FALSE(read.has_value());
  EXPECT_THAT(read.error(), testing::HasSubstr("version 99"));
}

// No HELLO comes before it.
TEST(SiteNotes, AStandingOfAnotherVersionIsNamed) {
  std::vector<std::byte> bytes = write_note(StandingNote{.run_id = "r", .session = "s"});
  ASSERT_EQ(bytes.front(), std::byte{0x86}) << "six elements";
  ASSERT_EQ(bytes.back(), std::byte{kNotesVersion});
  const std::string ours = fmt::format(", not {}", kNotesVersion);
  bytes.back() = std::byte{kNotesVersion + 1};
  EXPECT_THAT(read_note(bytes).error(),
              testing::HasSubstr(fmt::format("version {}", kNotesVersion + 1) + ours));
  bytes.resize(bytes.size() - 3);  // neither version nor what it knows of
  bytes.front() = std::byte{0x83};
  EXPECT_THAT(read_note(bytes).error(), testing::HasSubstr("version 9" + ours));
}

}  // namespace
}  // namespace isthmus::app::this_file
