// SPDX-License-Identifier: Apache-2.0
// What a recording says of rounds that took long: each cause made by hand, and told.
#include "app/commands/bench/frame_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace isthmus::app::this_file {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

const std::vector<std::string> kNames = {"east", "west", "north"};

class Records {
 public:
  Records& at(double seconds) {
    time_ = static_cast<std::int64_t>(seconds * 1e9);
    return *this;
  }
  Records& add(FrameEvent event, int peer, FrameKind kind, std::uint32_t part = 0,
               std::uint32_t bytes = 100'000, int stream = -1) {
    all.push_back({.time_ns = time_,
                   .event = event,
                   .stream = stream,
                   .peer = WorkerId(peer),
                   .kind = kind,
                   .epoch = epoch,
                   .id = id,
                   .part = part,
                   .bytes = bytes,
                   .crc = part * 7 + static_cast<std::uint32_t>(peer)});
    return *this;
  }
  /// The own contribution to both others goes at once.
  Records& begin(double seconds) {
    at(seconds);
    add(FrameEvent::kQueued, 1, FrameKind::kContribution);
    add(FrameEvent::kLeft, 1, FrameKind::kContribution, 0, 100'000, 2);
    add(FrameEvent::kQueued, 2, FrameKind::kContribution);
    return add(FrameEvent::kLeft, 2, FrameKind::kContribution, 0, 100'000, 0);
  }
  Records& come(double seconds, int peer, std::uint32_t part, FrameKind kind) {
    at(seconds).add(FrameEvent::kCame, peer, kind, part, 100'000, 1);
    return add(FrameEvent::kTaken, peer, kind, part);
  }
  Records& commit(double seconds) {
    at(seconds).add(FrameEvent::kQueued, 1, FrameKind::kDone, 0, 84);
    return add(FrameEvent::kTaken, 1, FrameKind::kCommit, 0, 68);
  }
  std::vector<FrameRecord> all;
  SyncId id{FragmentId(0), StepIndex(100)};
  std::uint32_t epoch = 0;

 private:
  std::int64_t time_ = 0;
};

RecordedRound only_round(const Records& records) {
  const FrameReport report = report_frames(records.all, kNames.size());
  EXPECT_EQ(report.rounds.size(), 1u);
  return report.rounds.front();
}

TEST(FrameReport, NamesTheLinkWhoseValuesComeSlowly) {
  Records records;
  records.begin(1);
  for (std::uint32_t k = 0; k < 10; ++k) {
    records.come(1.1 + 0.01 * k, 1, k, FrameKind::kContribution);
    records.come(1.2 + k, 2, k, FrameKind::kContribution);
  }
  records.commit(10.3);
  const RecordedRound round = only_round(records);
  EXPECT_NEAR(round.took_s(), 9.3, 1e-6);
  // A million bytes in nine seconds.
  EXPECT_THAT(words_of(round, kNames), HasSubstr("values of north came for 9.0 s (889 kbit/s)"));
}

TEST(FrameReport, NamesWhoBeganLate) {
  Records records;
  records.begin(1);
  records.come(1.1, 1, 0, FrameKind::kContribution).come(7.5, 2, 0, FrameKind::kContribution);
  records.come(7.6, 2, 0, FrameKind::kResult).commit(7.7);
  EXPECT_THAT(words_of(only_round(records), kNames),
              HasSubstr("nothing came from north for 6.5 s"));
}

TEST(FrameReport, NamesTheVerdictThatIsLate) {
  Records records;
  records.begin(1);
  records.come(1.1, 1, 0, FrameKind::kContribution).come(1.2, 2, 0, FrameKind::kContribution);
  records.commit(21.2);
  EXPECT_THAT(words_of(only_round(records), kNames), HasSubstr("the verdict came 20 s after"));
}

TEST(FrameReport, NamesTheOwnLineThatIsSlow) {
  Records records;
  records.begin(1);
  records.at(8).add(FrameEvent::kLeft, 1, FrameKind::kContribution, 0, 100'000, 2);
  records.come(8.5, 1, 0, FrameKind::kResult).commit(8.6);
  EXPECT_THAT(words_of(only_round(records), kNames),
              HasSubstr("own values went to west for 7.0 s"));
}

TEST(FrameReport, TellsOfRoundsThatBeganAgainOrHaveNoEnd) {
  Records records;
  records.begin(1);
  records.epoch = 1;
  records.begin(3).come(3.1, 1, 0, FrameKind::kContribution);
  const std::string words = words_of(only_round(records), kNames);
  EXPECT_THAT(words, HasSubstr("it began 2 times"));
  EXPECT_THAT(words, HasSubstr("no verdict yet"));
}

// As `ddp` has it: a fragment's rounds are covered by the digest of a later one.
TEST(FrameReport, OfRoundsThatAreNotCommittedNoVerdictIsAwaited) {
  Records records;
  for (int step = 100; step < 103; ++step) {
    records.id.sent = StepIndex(step);
    records.begin(step).come(step + 0.1, 1, 0, FrameKind::kContribution);
  }
  records.id = {FragmentId(1), StepIndex(102)};  // of another fragment, the only one
  records.begin(102.2).come(102.3, 1, 0, FrameKind::kContribution);
  const FrameReport report = report_frames(records.all, kNames.size());
  ASSERT_EQ(report.rounds.size(), 4u);
  for (const RecordedRound& round : report.rounds) {
    const bool awaits = round.id.fragment == FragmentId(1);
    const bool told = words_of(round, kNames).find("no verdict yet") != std::string::npos;
    EXPECT_EQ(told, awaits) << round.id.sent.value();
  }
}

TEST(FrameReport, ARoundThatIsOverKeepsItsFirstVerdict) {
  Records records;
  records.begin(1).come(1.1, 1, 0, FrameKind::kContribution).commit(2);
  records.at(9).add(FrameEvent::kTaken, 1, FrameKind::kCommit, 0, 68);
  records.at(9).add(FrameEvent::kTaken, 1, FrameKind::kAbort, 0, 68);
  const RecordedRound round = only_round(records);
  EXPECT_NEAR(round.verdict.value(), 2, 1e-9);
  EXPECT_NEAR(round.took_s(), 1, 1e-9);
  EXPECT_FALSE(round.aborted);
}

// A connection broke: frame 0 came again when it had been taken, frame 1 before that. Frame 2 has
// come once and waits.
TEST(FrameReport, CountsWhatCameAgain) {
  Records records;
  records.come(1, 1, 0, FrameKind::kContribution);
  records.at(2).add(FrameEvent::kCame, 1, FrameKind::kContribution, 1, 100'000, 0);
  records.at(3).add(FrameEvent::kCame, 1, FrameKind::kContribution, 0, 100'000, 2);
  records.come(4, 1, 1, FrameKind::kContribution);
  records.at(5).add(FrameEvent::kCame, 1, FrameKind::kContribution, 2, 100'000, 0);
  for (int k = 0; k < 3; ++k) records.come(6 + k, 2, 7, FrameKind::kProbe);  // all alike
  const FrameReport report = report_frames(records.all, kNames.size());
  EXPECT_EQ(report.peers[1].in.frames, 2u);
  EXPECT_EQ(report.peers[1].in.again, 2u);
  EXPECT_DOUBLE_EQ(report.peers[1].in.waited_longest_s, 2);
  EXPECT_EQ(report.peers[2].in.again, 0u);
}

TEST(FrameReport, CountsFramesWaitsAndRepetitionsOfEachWay) {
  Records records;
  records.at(1);
  for (std::uint32_t k = 0; k < 5; ++k) {
    records.add(FrameEvent::kQueued, 1, FrameKind::kContribution, k);
  }
  for (std::uint32_t k = 0; k < 5; ++k) {
    records.at(1 + 0.5 * k)
        .add(FrameEvent::kLeft, 1, FrameKind::kContribution, k, 100'000, static_cast<int>(k % 2));
  }
  records.at(4).add(FrameEvent::kLeft, 1, FrameKind::kContribution, 3, 100'000, 1);
  records.at(5).add(FrameEvent::kCame, 1, FrameKind::kResult, 0, 100'000, 0);
  records.at(5.25).add(FrameEvent::kTaken, 1, FrameKind::kResult, 0);
  const FrameReport report = report_frames(records.all, kNames.size());
  const FramesOfWay& out = report.peers[1].out;
  EXPECT_EQ(out.frames, 5u);
  EXPECT_EQ(out.bytes, 500'000u);
  EXPECT_EQ(out.again, 1u);
  EXPECT_EQ(out.streams.size(), 2u);
  EXPECT_DOUBLE_EQ(out.waited_median_s, 1.0);
  EXPECT_DOUBLE_EQ(out.waited_longest_s, 2.0);
  EXPECT_EQ(report.peers[1].in.frames, 1u);
  EXPECT_DOUBLE_EQ(report.peers[1].in.waited_longest_s, 0.25);
  EXPECT_EQ(report.peers[2].out.frames, 0u);
}

}  // namespace
}  // namespace isthmus::app::this_file
