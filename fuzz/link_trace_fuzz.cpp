// SPDX-License-Identifier: Apache-2.0
// Any text as a trace of a link's rates: one error, or rates and times within their bounds, whose
// plain spelling reads back.
#include <fmt/format.h>

#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "config/load/link_trace.h"
#include "isthmus/errors.h"

namespace {

constexpr isthmus::Duration kShortestPiece = std::chrono::milliseconds(1);

void require(bool condition) {
  if (!condition) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  try {
    const isthmus::LinkTrace trace = isthmus::parse_link_trace(input, "t.csv");
    require(!trace.steps.empty() && trace.steps.front().from == isthmus::Duration{0});
    std::string text = "seconds,rate_up,rate_down\n";
    isthmus::Duration last{-1};
    const auto seconds = [](isthmus::Duration time) {
      return fmt::format("{}.{:09}", time.count() / 1'000'000'000, time.count() % 1'000'000'000);
    };
    for (const auto& step : trace.steps) {
      require(last < isthmus::Duration{0} || step.from - last >= kShortestPiece);
      require(step.bits_per_s_up >= 1e3 && step.bits_per_s_down >= 1e3);
      last = step.from;
      text +=
          fmt::format("{},{},{}\n", seconds(step.from), step.bits_per_s_up, step.bits_per_s_down);
    }
    require(trace.period == isthmus::Duration{0} || trace.period - last >= kShortestPiece);
    require(trace.mean_up() >= 999 && trace.mean_down() <= 1.001e15);
    if (trace.period > isthmus::Duration{0}) text += seconds(trace.period) + ",repeat\n";
    const isthmus::LinkTrace again = isthmus::parse_link_trace(text, "again.csv");
    require(again.steps.size() == trace.steps.size());
    for (std::size_t i = 0; i < again.steps.size(); ++i) {
      require(again.steps[i].bits_per_s_up == trace.steps[i].bits_per_s_up);
      require(again.steps[i].bits_per_s_down == trace.steps[i].bits_per_s_down);
    }
  } catch (const isthmus::ConfigError& error) {
    require(std::string_view(error.what()).starts_with("t.csv:"));
  }
  return 0;
}
