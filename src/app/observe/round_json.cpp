// SPDX-License-Identifier: Apache-2.0
#include "app/observe/round_json.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

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
  return line.add_or_null("error", rounds.error());
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
  JsonLine all;
  JsonLine line;
  line.add("at", whose)
      .add("all", add_compared(all, comparison.all))
      .add_list("fragments", comparison.fragments, [](const RoundsCompared& each) {
        JsonLine fragment;
        return add_compared(fragment.add("frag", each.fragment), each);
      });
  if (pairs) {
    line.add_list("pairs", comparison.pairs, [](const RoundPair& pair) {
      return fmt::format("[{},{},{},{}]", pair.fragment, pair.sent, pair.predicted_s,
                         pair.measured_s);
    });
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
