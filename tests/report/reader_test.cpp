// SPDX-License-Identifier: Apache-2.0
// Reading run directories and thinning series.
#include <gtest/gtest.h>

#include "report/data/run_data.h"
#include "report/page/figures.h"
#include "report/run_fixture.h"

namespace isthmus::report::this_file {
namespace {

class Reader : public testing::Test {
 protected:
  RunData read(const std::string& metrics) {
    write_file(folder_.path() / "metrics.jsonl", metrics);
    return read_run(folder_.path());
  }
  TemporaryFolder folder_;
};

TEST_F(Reader, TheLaterLineOfAResumedStepHolds) {
  const RunData run = read(
      "{\"k\":\"train\",\"step\":1,\"loss\":5}\n{\"k\":\"train\",\"step\":2,\"loss\":4}\n"
      "{\"k\":\"train\",\"step\":2,\"loss\":3}\n{\"k\":\"train\",\"step\":3,\"loss\":2}\n");
  ASSERT_EQ(run.train.size(), 3u);
  EXPECT_EQ(run.train[1].loss, 3);
}

TEST_F(Reader, BytesAgainstLossCountsRoundsSentByThen) {
  const RunData run = read_run(write_run(folder_.path() / "a", {}));
  const std::vector<Point> points = train_series(run, Against::kBytes);
  ASSERT_EQ(points.size(), 31u);  // the nine steps before the first round have no place
  EXPECT_EQ(points.front().x, 1'000'200);
  EXPECT_EQ(points.back().x, 4 * 1'000'200);
}

TEST_F(Reader, FiguresOfARunInProgressAreAddedUpFromItsLines) {
  const RunData run = read_run(write_run(folder_.path() / "a", {.ended = false}));
  const RunFigures figures = figures_of(run);
  EXPECT_EQ(figures.steps, 40);
  EXPECT_EQ(figures.payload_bytes, 4e6);
  EXPECT_EQ(figures.simulated_s, 80);
  EXPECT_NEAR(figures.utilisation, 0.5, 1e-12);
  EXPECT_EQ(figures.status, "in progress");
}

TEST_F(Reader, SpansKeptAreTheEarliestWhateverTheOrder) {
  std::string events;
  for (int i = 9'999; i >= 0; --i) {
    events += fmt::format("{{\"k\":\"compute\",\"w\":0,\"t0\":{},\"t1\":{}}}\n", i, i + 1);
  }
  RunData run;
  write_file(folder_.path() / "events.jsonl", events);
  read_events(folder_.path() / "events.jsonl", run);
  ASSERT_EQ(run.spans.size(), kMaxSpans);
  EXPECT_EQ(run.spans.front().begin_s, 0);
  EXPECT_EQ(run.spans.back().begin_s, kMaxSpans - 1);
  EXPECT_EQ(run.times.at(0).of(SpanKind::kCompute), 10'000);
  EXPECT_EQ(run.span_count, 10'000);
}

// Sums over a list that the run itself cut off would tell less than was computed.
TEST_F(Reader, SharesDoNotRestOnEventsThatWereCutOff) {
  const std::filesystem::path a = write_run(folder_.path() / "a", {});
  write_file(a / "events.jsonl",
             "{\"k\":\"compute\",\"w\":0,\"t0\":0,\"t1\":1,\"step\":1}\n"
             "{\"k\":\"cut\",\"step\":2,\"t0\":1}\n");
  const RunData run = read_run(a);
  EXPECT_TRUE(run.warnings.empty());
  const std::vector<WorkerShare> shares = worker_shares(run, figures_of(run));
  ASSERT_EQ(shares.size(), 2u);
  EXPECT_EQ(shares[1].compute_s, 40);
  EXPECT_TRUE(std::isnan(shares[0].wait_s));
}

TEST_F(Reader, ResolvedConfigurationKeepsOriginsAndStringsWithHashes) {
  RunData run;
  write_file(
      folder_.path() / "c.toml",
      "schema = 1\n[data]\nsource = \"text:a#b.txt\" # run.toml:3:1\n[[link]]\nrtt = \"80ms\"\n"
      "[[link]]\nrtt = \"9ms\" # x\n");
  read_resolved_config(folder_.path() / "c.toml", run);
  EXPECT_EQ(run.config.at("data.source").value, "\"text:a#b.txt\"");
  EXPECT_EQ(run.config.at("data.source").origin, "run.toml:3:1");
  EXPECT_EQ(run.config.at("link[1].rtt").value, "\"9ms\"");
  EXPECT_EQ(run.config.at("schema").value, "1");
}

TEST_F(Reader, NumbersThatAreNotFiniteComeAsStrings) {
  const RunData run = read(
      "{\"k\":\"train\",\"step\":1,\"loss\":\"NaN\"}\n{\"k\":\"train\",\"step\":2,\"loss\":\"-"
      "inf\"}\n"
      "{\"k\":\"train\",\"step\":3,\"loss\":null}\n{\"k\":\"train\",\"step\":4,\"loss\":[1]}\n");
  ASSERT_EQ(run.train.size(), 4u);
  EXPECT_TRUE(std::isnan(run.train[0].loss));
  EXPECT_TRUE(std::isinf(run.train[1].loss));
  EXPECT_TRUE(std::isnan(run.train[2].loss));
  EXPECT_TRUE(std::isnan(run.train[3].loss));
}

TEST_F(Reader, AnyCutOfAMetricsFileIsRead) {
  const std::string whole = read_file(write_run(folder_.path() / "a", {}) / "metrics.jsonl");
  for (std::size_t length = 0; length < whole.size(); length += 97) {
    const RunData run = read(whole.substr(0, length));
    EXPECT_LE(run.train.size(), 40u) << length;
  }
}

TEST(Decimate, KeepsEveryPeakAndStaysBelowTheLimit) {
  std::vector<Point> points;
  for (int i = 0; i < 10'000; ++i) {
    points.push_back({static_cast<double>(i), i == 5'432 ? 99.0 : i == 7'777 ? -99.0 : 0.0});
  }
  const std::vector<Point> kept = decimate(points, 100);
  EXPECT_LE(kept.size(), 100u);
  const auto has = [&](double x, double y) {
    return std::any_of(kept.begin(), kept.end(),
                       [&](const Point& p) { return p.x == x && p.y == y; });
  };
  EXPECT_TRUE(has(5'432, 99));
  EXPECT_TRUE(has(7'777, -99));
  EXPECT_TRUE(std::is_sorted(kept.begin(), kept.end(),
                             [](const Point& a, const Point& b) { return a.x < b.x; }));
}

TEST(Decimate, LeavesShortSeriesAlone) {
  const std::vector<Point> points = {{1, 2}, {2, kNothing}, {3, 4}};
  EXPECT_EQ(decimate(points, 100).size(), 3u);
  EXPECT_LE(decimate(points, 2).size(), 2u);
}

}  // namespace
}  // namespace isthmus::report::this_file
