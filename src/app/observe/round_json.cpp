// SPDX-License-Identifier: Apache-2.0
#include "app/observe/round_json.h"

#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <vector>

#include "core/base/json_input.h"
#include "record/json_line.h"

namespace isthmus::app {
namespace {

JsonLine& add_compared(JsonLine& line, const RoundsCompared& rounds) {
  line.add("rounds", rounds.rounds)
      .add("predicted_median_s", rounds.predicted.median_s)
      .add("predicted_p95_s", rounds.predicted.p95_s)
      .add("measured_median_s", rounds.measured.median_s)
      .add("measured_p95_s", rounds.measured.p95_s);
  const double error = rounds.error();
  return std::isnan(error) ? line.add_null("error") : line.add("error", error);
}

RoundsCompared compared_of(const nlohmann::json& json, int fragment) {
  return {.fragment = fragment,
          .rounds = json.at("rounds").get<std::size_t>(),
          .predicted = {json.at("predicted_median_s").get<double>(),
                        json.at("predicted_p95_s").get<double>()},
          .measured = {json.at("measured_median_s").get<double>(),
                       json.at("measured_p95_s").get<double>()}};
}

}  // namespace

std::string rounds_json(const RoundComparison& comparison, const std::string& whose, bool pairs) {
  std::vector<std::string> fragments;
  for (const RoundsCompared& each : comparison.fragments) {
    JsonLine line;
    fragments.push_back(add_compared(line.add("frag", each.fragment), each).str());
  }
  JsonLine all;
  JsonLine line;
  line.add("at", whose)
      .add_raw("all", add_compared(all, comparison.all).str())
      .add_raw("fragments", json_array(fragments));
  if (pairs) {
    std::vector<std::string> each;
    for (const RoundPair& pair : comparison.pairs) {
      each.push_back(fmt::format("[{},{},{},{}]", pair.fragment, pair.sent, pair.predicted_s,
                                 pair.measured_s));
    }
    line.add_raw("pairs", json_array(each));
  }
  return line.str();
}

RoundComparison read_rounds(std::string_view text) {
  const nlohmann::json json = parse_json(text, "rounds");
  RoundComparison comparison{.all = compared_of(json.at("all"), -1), .fragments = {}, .pairs = {}};
  for (const nlohmann::json& each : json.at("fragments")) {
    comparison.fragments.push_back(compared_of(each, each.at("frag").get<int>()));
  }
  return comparison;
}

}  // namespace isthmus::app
