// SPDX-License-Identifier: Apache-2.0
// Prints what retime_in_page.mjs checks the page's script with: runs as a report embeds them, links
// and speeds, and the times that the program itself gives. One JSON object a line.
#include <fmt/format.h>

#include <cmath>
#include <cstdio>

#include "plan/retiming_scenarios.h"

namespace isthmus {
namespace {

struct OneLink {
  std::int64_t bits_per_s = 0;
  std::int64_t rtt_ns = 0;
  double speed = 1;
};
const std::vector<OneLink> kLinks = {
    {100'000'000, 80'000'000},          {3'000'000, 14'000'001, 2}, {10'000'000'000, 100'000, 0.3},
    {250'000'000'000, 99'999, 7},       {0, 20'000'000, 1.5},       {1'000'000'000, 30'000'000},
    {17'777'777, 123'456'789, 1.0 / 3},
};

template <typename Values, typename Text>
std::string list(const Values& values, const Text& text) {
  std::string json;
  for (const auto& value : values) {
    json += json.empty() ? "" : ",";
    json += fmt::format("{}", text(value));
  }
  return "[" + json + "]";
}

void print_cases(const Scenario& scenario) {
  const RunProgram program = program_of(scenario);
  for (const OneLink& link : kLinks) {
    RetimingInput input =
        retiming_of(scenario, program,
                    {.bits_per_s = link.bits_per_s, .one_way = nanoseconds(link.rtt_ns / 2)});
    const std::string run = retiming_json(input);
    input.step_time = [&](WorkerId worker, StepIndex t) -> std::optional<Duration> {
      const auto length = step_of(scenario, worker, t);
      if (!length || link.speed == 1) return length;
      return Duration(std::llround(static_cast<double>(length->count()) / link.speed));
    };
    const RetimedRun again = retime(input);
    fmt::print(
        R"({{"name":"{}","run":{},"link":{{"bits_per_s":{},"rtt_ns":{}}},"speed":{},"ends":{},"computed":{}}})"
        "\n",
        scenario.name, run, link.bits_per_s, link.rtt_ns, link.speed,
        list(again.steps,
             [](const RetimedStep& step) { return step.end.time_since_epoch().count(); }),
        list(again.computed, [](Duration each) { return each.count(); }));
  }
}

}  // namespace
}  // namespace isthmus

int main() {
  for (const isthmus::Scenario& scenario : isthmus::kScenarios) {
    isthmus::print_cases(scenario);
  }
}
