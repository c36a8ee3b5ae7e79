// SPDX-License-Identifier: Apache-2.0
// A run's program for the page's script. Acts are [letter, share or place]; equal things in a row
// are [thing, how many].
#include <fmt/format.h>

#include <iterator>

#include "plan/retiming.h"

namespace isthmus {
namespace {

using ActKind = ProgramAct::Kind;

std::string act_json(const ProgramAct& act) {
  constexpr char kLetters[] = "tcsbw";
  const char letter = kLetters[static_cast<int>(act.kind)];
  return act.kind == ActKind::kBegin || act.kind == ActKind::kWait
             ? fmt::format(R"(["{}",{}])", letter, act.which)
             : fmt::format(R"(["{}",{}])", letter, act.share);
}

template <typename Values, typename Text>
std::string list_json(const Values& values, const Text& text) {
  std::string json;
  for (const auto& value : values) {
    json += json.empty() ? "" : ",";
    json += text(value);
  }
  return "[" + json + "]";
}

std::string shape_json(const RoundShape& shape) {
  return fmt::format(R"({{"fragment":{},"commits":{},"all":{},"parts":{}}})", shape.fragment,
                     shape.commits, shape.all_to_all,
                     list_json(shape.parts, [](const RoundShape::Part& part) {
                       return fmt::format("[{},{}]", part.owner, part.bytes);
                     }));
}

/// `value(t)` for all steps, as [value, how many times in a row], ...
template <typename Value>
std::string runs_json(std::size_t steps, const Value& value) {
  std::string json;
  for (std::size_t t = 1; t <= steps;) {
    const std::string first = value(t);
    std::size_t end = t + 1;
    while (end <= steps && value(end) == first) ++end;
    fmt::format_to(std::back_inserter(json), "{}[{},{}]", json.empty() ? "" : ",", first, end - t);
    t = end;
  }
  return "[" + json + "]";
}

std::string program_json(const RunProgram& program) {
  return fmt::format(
      R"({{"workers":{},"shapes":{},"bodies":{},"steps":{}}})", program.workers,
      list_json(program.shapes, shape_json),
      list_json(program.bodies,
                [](const std::vector<ProgramAct>& body) { return list_json(body, act_json); }),
      runs_json(program.steps.size(),
                [&](std::size_t t) { return fmt::format("{}", program.steps[t - 1]); }));
}

}  // namespace

std::string retiming_json(const RetimingInput& input) {
  std::string lengths;
  for (int m = 0; m < input.program.workers; ++m) {
    lengths += m == 0 ? "" : ",";
    lengths += runs_json(input.program.steps.size(), [&](std::size_t t) {
      const auto length = input.step_time(WorkerId(m), StepIndex(static_cast<std::int64_t>(t)));
      return length ? fmt::format("{}", length->count()) : std::string{"null"};
    });
  }
  return fmt::format(R"({{"program":{},"lengths":[{}],"byte_scale":{},"tcp":{},"streams":1}})",
                     program_json(input.program), lengths, input.link.byte_scale,
                     input.link.model == LinkModel::kTcp);
}

}  // namespace isthmus
