// SPDX-License-Identifier: Apache-2.0
// The "round" lines of metrics.jsonl.
#include "record/run_log.h"

#include <gmock/gmock.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "core/base/storage.h"
#include "core/temporary_directory.h"

namespace isthmus::app::this_file {
namespace {

using Json = nlohmann::json;
using Number = std::optional<double>;

/// The round line of one step in which every worker has applied one round. Worker m has sent m + 1
/// bytes for it and waited m + 1 seconds.
Json round_line(const std::vector<std::pair<Number, Number>>& error_and_cosine,
                std::size_t self = 0) {
  const TemporaryDirectory folder;
  SystemStorage storage;
  JsonLinesFile file(storage.append(folder / "metrics.jsonl"));
  const Config config;
  RunTotals totals;
  totals.payload_bytes.resize(error_and_cosine.size());
  totals.wire_bytes.resize(error_and_cosine.size());
  totals.compute_s.resize(error_and_cosine.size());
  MetricsLog log({.config = config, .total_steps = 1, .self = self}, file, nullptr, totals);
  std::vector<StepPost> posts;
  for (const auto& [error, cosine] : error_and_cosine) {
    posts.push_back({.report = {.step = StepIndex(1),
                                .inner = {.loss = 1, .grad_norm = 1, .tokens = 1},
                                .rounds = {{.codec_error = error, .cosine = cosine}}}});
    posts.back().rank = WorkerId(static_cast<int>(posts.size()) - 1);
    RoundReport& round = posts.back().report.rounds.front();
    round.payload_bytes = posts.size();
    round.waited = std::chrono::seconds(posts.size());
  }
  log.step(StepIndex(1), posts);
  log.sync();
  std::ifstream in(folder / "metrics.jsonl");
  for (std::string line; std::getline(in, line);) {
    Json object = Json::parse(line);
    if (object.at("k") == "round") return object;
  }
  return {};
}

TEST(RunLog, TheWaitsAreThoseOfThisProcesssOwnWorker) {
  const Json line = round_line({{0.0, 0.0}, {0.0, 0.0}, {0.0, 0.0}}, 2);
  EXPECT_EQ(line.at("wait_s"), 3);
  EXPECT_EQ(line.at("bytes_payload"), 1) << "the first worker's";
}

TEST(RunLog, ARoundHasTheMeansOverTheWorkersThatWereCounted) {
  const Json line = round_line({{0.25, 0.5}, {std::nullopt, std::nullopt}, {0.5, 1.0}});
  EXPECT_EQ(line.at("err"), 0.375);
  EXPECT_EQ(line.at("cos"), 0.75);
}

TEST(RunLog, ARoundWithoutAMeasureSaysNull) {
  const Json line = round_line({{std::nullopt, std::nullopt}, {std::nullopt, std::nullopt}});
  EXPECT_TRUE(line.at("err").is_null());
  EXPECT_TRUE(line.at("cos").is_null());
  EXPECT_EQ(round_line({{0.0, std::nullopt}}).at("err"), 0);
}

/// A log of three workers, and what it has written.
class MembershipLogTest : public testing::Test {
 protected:
  MembershipLogTest() { config_.sites = {{.name = "east"}, {.name = "west"}, {.name = "north"}}; }
  static RunTotals none_yet() {
    RunTotals totals;
    totals.payload_bytes.resize(3);
    totals.wire_bytes.resize(3);
    totals.compute_s.resize(3);
    return totals;
  }
  static StepPost post(int rank, double loss, std::uint64_t wire_bytes) {
    return {.rank = WorkerId(rank),
            .report = {.inner = {.loss = loss, .grad_norm = 1, .tokens = 10}, .rounds = {{}}},
            .sent = {.payload = 0, .wire = wire_bytes}};
  }
  [[nodiscard]] std::vector<Json> lines(const std::string& kind) {
    log_.sync();
    std::vector<Json> found;
    std::ifstream in(folder_ / "metrics.jsonl");
    for (std::string line; std::getline(in, line);) {
      Json object = Json::parse(line);
      if (object.at("k") == kind) found.push_back(std::move(object));
    }
    return found;
  }

  const TemporaryDirectory folder_;
  SystemStorage storage_;
  JsonLinesFile file_{storage_.append(folder_ / "metrics.jsonl")};
  Config config_;
  RunTotals totals_ = none_yet();
  MetricsLog log_{{.config = config_, .total_steps = 9}, file_, nullptr, totals_};
};

TEST_F(MembershipLogTest, APostKeepsItsRank) {
  log_.step(StepIndex(1), {post(0, 1, 5), post(2, 3, 7)});
  EXPECT_EQ(lines("train").at(0).at("loss"), 2);
  ASSERT_EQ(lines("worker").size(), 2U);
  EXPECT_EQ(lines("worker").at(1).at("w"), 2);
  EXPECT_THAT(totals_.wire_bytes, testing::ElementsAre(5, 0, 7));
}

TEST_F(MembershipLogTest, AWorkerLeftAloneStillHasItsOwnLine) {
  log_.step(StepIndex(1), {post(0, 1, 5)});
  EXPECT_EQ(lines("worker").size(), 1U);
}

TEST_F(MembershipLogTest, AProcessThatComesBackCountsOnFromWhatTheOneBeforeHadSent) {
  log_.step(StepIndex(1), {post(0, 1, 100), post(1, 1, 100), post(2, 1, 100)});
  log_.event(
      {.kind = RunEvent::Kind::kLeft, .step = StepIndex(1), .who = WorkerId(1), .present = 2});
  log_.step(StepIndex(2), {post(0, 1, 200), post(2, 1, 200)});
  log_.event(
      {.kind = RunEvent::Kind::kJoined, .step = StepIndex(2), .who = WorkerId(1), .present = 3});
  log_.step(StepIndex(3), {post(0, 1, 300), post(1, 1, 30), post(2, 1, 300)});
  EXPECT_THAT(totals_.wire_bytes, testing::ElementsAre(300, 130, 300));
}

TEST_F(MembershipLogTest, WhatASiteBringsBackHasALine) {
  log_.event(
      {.kind = RunEvent::Kind::kCameBack,
       .step = StepIndex(7),
       .who = WorkerId(1),
       .present = 3,
       .work = {.kept_tokens = 640, .lost_tokens = 128, .alone_steps = 4, .alone_tokens = 320}});
  const Json line = lines("event").at(0);
  EXPECT_EQ(line.at("what"), "site came back");
  EXPECT_EQ(line.at("site"), "west");
  EXPECT_EQ(line.at("tokens_kept"), 640);
  EXPECT_EQ(line.at("tokens_lost"), 128);
  EXPECT_EQ(line.at("steps_alone"), 4);
  EXPECT_EQ(line.at("tokens_alone"), 320);
}

// A checkpoint of step 4 holds merge 1, and a run that goes on from it keeps the lines up to there.
TEST_F(MembershipLogTest, AMergeHasOneLineWithTheFirstStepAfterWhichItIsApplied) {
  const auto applying = [](int rank, const std::vector<std::int64_t>& merges) {
    StepPost with = post(rank, 1, 0);
    with.report.rounds.clear();
    for (const std::int64_t merge : merges) {
      with.report.rounds.push_back({.fragment = FragmentId(static_cast<int>(merge % 2)),
                                    .sent = StepIndex(3),
                                    .applied = StepIndex(4 + rank),
                                    .merge = merge,
                                    .tokens = 70});
    }
    return with;
  };
  log_.step(StepIndex(4), {applying(0, {}), applying(1, {1}), applying(2, {})});
  log_.step(StepIndex(5), {applying(0, {1, 2}), applying(1, {2}), applying(2, {1})});
  log_.step(StepIndex(6), {applying(0, {}), applying(1, {}), applying(2, {2, 3})});
  std::vector<std::pair<int, int>> found;  // step, merge
  for (const Json& line : lines("round")) {
    found.emplace_back(line.at("step").get<int>(), line.at("merge").get<int>());
  }
  EXPECT_THAT(found, testing::ElementsAre(std::pair(4, 1), std::pair(5, 2), std::pair(6, 3)));
}

TEST_F(MembershipLogTest, EventsHaveLines) {
  log_.event({.step = StepIndex(4), .who = WorkerId(1), .present = 2, .why = "silent for 4 s"});
  log_.event({.kind = RunEvent::Kind::kEvalIncomplete,
              .step = StepIndex(5),
              .present = 2,
              .of = 8,
              .missing = 3,
              .why = "it died"});
  const Json left = lines("event").at(0);
  EXPECT_EQ(left.at("what"), "site left");
  EXPECT_EQ(left.at("site"), "west");
  EXPECT_EQ(left.at("step"), 4);
  EXPECT_EQ(left.at("sites"), 2);
  EXPECT_EQ(left.at("why"), "silent for 4 s");
  const Json eval = lines("event").at(1);
  EXPECT_EQ(eval.at("what"), "evaluation incomplete");
  EXPECT_EQ(eval.at("missing"), 3);
  EXPECT_FALSE(eval.contains("site"));
}

TEST_F(MembershipLogTest, ARoundThatTheDeadDidNotApplyHasTheMeanOfTheOthers) {
  StepPost survivor = post(0, 1, 5);
  survivor.report.rounds[0].codec_error = 0.5;
  StepPost dead = post(1, 1, 5);
  dead.report.rounds.clear();
  log_.step(StepIndex(1), {survivor, dead});
  EXPECT_EQ(lines("round").at(0).at("err"), 0.5);
}

// Worker 0 applies the round at step 3, worker 2 at step 4; worker 1 has gone by then.
TEST_F(MembershipLogTest, ARoundThatSlipsHasItsLineOnceAllHaveAppliedIt) {
  config_.outer.late = LateRound::kSlip;
  const auto at = [](int rank, std::int64_t step, bool applies) {
    StepPost each = post(rank, 1, 5);
    each.report.rounds.clear();
    if (applies) {
      each.report.rounds.push_back({.fragment = FragmentId(1),
                                    .sent = StepIndex(2),
                                    .applied = StepIndex(step),
                                    .codec_error = rank == 0 ? 0.25 : 0.75});
    }
    return each;
  };
  log_.step(StepIndex(3), {at(0, 3, true), at(1, 3, false), at(2, 3, false)});
  EXPECT_TRUE(lines("round").empty());
  log_.step(StepIndex(4), {at(0, 4, false), at(2, 4, true)});
  ASSERT_EQ(lines("round").size(), 1U);
  const Json round = lines("round").at(0);
  EXPECT_EQ(round.at("step"), 4);
  EXPECT_EQ(round.at("step_send"), 2);
  EXPECT_EQ(round.at("step_apply"), 3) << "this process's own worker's";
  EXPECT_EQ(round.at("err"), 0.5);
  EXPECT_EQ(totals_.rounds, 1);
}

// One that came after the round was sent never applies it.
TEST_F(MembershipLogTest, ARoundThatSlipsHasItsLineWithoutWhoCameLater) {
  config_.outer.late = LateRound::kSlip;
  config_.outer.H = 4;
  for (std::int64_t t = 3; t <= 11; ++t) {
    StepPost own = post(0, 1, 5);
    StepPost late = post(1, 1, 5);
    own.report.rounds.clear();
    late.report.rounds.clear();
    if (t == 3) {
      own.report.rounds.push_back(
          {.fragment = FragmentId(1), .sent = StepIndex(2), .applied = StepIndex(3)});
    }
    log_.step(StepIndex(t), {own, late});
    EXPECT_EQ(lines("round").size(), t == 11 ? 1U : 0U) << t;
  }
}

TEST_F(MembershipLogTest, EvaluationsAreKeptForWhoAsks) {
  MetricsLog keeps({.config = config_, .total_steps = 9, .keeps_evals = true}, file_, nullptr,
                   totals_);
  for (int t = 1; t <= 5; ++t) {
    for (MetricsLog* log : {&log_, &keeps}) {
      log->eval({.step = StepIndex(t), .loss = 1.0 / t, .tokens = 1, .now = TimePoint{}});
    }
  }
  ASSERT_EQ(log_.evals().size(), 1U);
  EXPECT_EQ(log_.evals()[0].step, 5);
  EXPECT_EQ(log_.evals()[0].loss, 0.2);
  ASSERT_EQ(keeps.evals().size(), 5U);
  EXPECT_EQ(keeps.evals()[1].step, 2);
  EXPECT_EQ(lines("eval").size(), 10U) << "the file has all";
}

TEST_F(MembershipLogTest, AStepThatAllWhoAreLeftSkipKeepsTheLastLoss) {
  StepPost idle = post(1, 0, 5);
  idle.report.inner = {.loss = 0, .grad_norm = 0, .tokens = 0, .idle = true};
  idle.report.rounds.clear();
  StepPost first = post(0, 3, 5);
  log_.step(StepIndex(1), {first, idle});
  first.report.inner = idle.report.inner;
  log_.step(StepIndex(2), {first, idle});
  EXPECT_EQ(lines("train").at(1).at("loss"), 3);
  EXPECT_EQ(lines("train").at(1).at("grad_norm"), 1);
}

}  // namespace
}  // namespace isthmus::app::this_file
