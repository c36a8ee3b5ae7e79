// SPDX-License-Identifier: Apache-2.0
// The "round" lines of metrics.jsonl.
#include "app/run_log.h"

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "core/storage.h"
#include "core/temporary_directory.h"

namespace isthmus::app {
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

}  // namespace
}  // namespace isthmus::app
