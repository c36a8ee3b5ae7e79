// SPDX-License-Identifier: Apache-2.0
// A trace has to be what its readers draw: slices of a row apart, arrows in pairs, sorted.
#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "report/export/trace_json.h"

namespace isthmus::report::this_file {
namespace {

using Json = nlohmann::json;

TraceInput two_workers() {
  TraceInput input{.worker_names = {"east", "we\"st"}, .simulated = true};
  const auto transfer = [&](double t0, double t1, double bytes) {
    input.spans.push_back({SpanKind::kSend, 0, 1, t0, t1, bytes, 2, 1});
    input.spans.push_back({SpanKind::kReceive, 1, 0, t0 + 0.04, t1 + 0.04, bytes, 2, 1});
  };
  input.spans.push_back({SpanKind::kCompute, 0, -1, 0, 1, 0, -1, 1});
  input.spans.push_back({SpanKind::kCompute, 1, -1, 0, 1, 0, -1, 1});
  transfer(1, 1.5, 1'000'000);
  transfer(1.2, 1.7, 500'000);  // beside the first
  input.spans.push_back({SpanKind::kWait, 0, -1, 1, 1.8, 0, 2, 1});
  return input;
}

std::vector<Json> of_phase(const Json& trace, const std::string& phase) {
  std::vector<Json> events;
  for (const Json& event : trace["traceEvents"]) {
    if (event["ph"] == phase) events.push_back(event);
  }
  return events;
}

/// In nanoseconds: microseconds with three digits are whole ones.
std::int64_t ns(const Json& number) { return std::llround(number.get<double>() * 1000); }

TEST(TraceJson, SlicesOfOneRowNeverOverlap) {
  const Json trace = Json::parse(trace_json(two_workers()).json);
  std::map<std::int64_t, std::int64_t> row_end;
  std::set<std::int64_t> rows_of_east;
  for (const Json& slice : of_phase(trace, "X")) {
    std::int64_t& end = row_end[slice["tid"].get<std::int64_t>()];
    EXPECT_GE(ns(slice["ts"]), end) << slice;
    end = ns(slice["ts"]) + ns(slice["dur"]);
    if (slice["cat"] == "send") rows_of_east.insert(slice["tid"].get<std::int64_t>());
  }
  EXPECT_EQ(rows_of_east.size(), 2U) << "two sends at once need two rows";
}

TEST(TraceJson, ArrowsLeadFromEachSendToItsReceive) {
  const Json trace = Json::parse(trace_json(two_workers()).json);
  const std::vector<Json> starts = of_phase(trace, "s");
  const std::vector<Json> ends = of_phase(trace, "f");
  ASSERT_EQ(starts.size(), 2U);
  ASSERT_EQ(ends.size(), 2U);
  for (std::size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(starts[i]["id"], ends[i]["id"]);
    EXPECT_EQ(ns(ends[i]["ts"]) - ns(starts[i]["ts"]), 40'000'000);
    EXPECT_EQ(ends[i]["bp"], "e");
  }
}

TEST(TraceJson, CounterAddsUpWhatIsInFlight) {
  const Json trace = Json::parse(trace_json(two_workers()).json);
  std::vector<double> rates;
  for (const Json& event : of_phase(trace, "C")) {
    EXPECT_EQ(event["name"], "east->we\"st Mbit/s");
    rates.push_back(event["args"]["Mbit/s"].get<double>());
  }
  EXPECT_EQ(rates, (std::vector<double>{16, 24, 8, 0}));  // 1 MB and 0.5 MB in 0.5 s each
}

TEST(TraceJson, LongRunsKeepWholeRoundsAndSaySo) {
  TraceInput input;
  for (int step = 1; step <= 400; ++step) {
    input.spans.push_back({SpanKind::kCompute, 0, -1, step - 1.0, step + 0.0, 0, -1, step});
    if (step % 4 == 0) {
      input.spans.push_back({SpanKind::kSend, 0, 1, step + 0.0, step + 0.5, 1000, 0, step});
      input.spans.push_back({SpanKind::kReceive, 1, 0, step + 0.1, step + 0.6, 1000, 0, step});
    }
  }
  EXPECT_EQ(trace_json(input).note, "");
  const Trace trace = trace_json(input, 150);
  EXPECT_LE(trace.events, 150U);
  EXPECT_NE(trace.note.find("one round in 7 of 100"), std::string::npos) << trace.note;
  const Json json = Json::parse(trace.json);
  EXPECT_EQ(json["otherData"]["note"], trace.note);
  // Each round kept has its four computes, its send and its receive.
  EXPECT_EQ(of_phase(json, "X").size(), 15U * 6);
  EXPECT_EQ(of_phase(json, "s").size(), 15U);
}

}  // namespace
}  // namespace isthmus::report::this_file
