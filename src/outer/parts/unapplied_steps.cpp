// SPDX-License-Identifier: Apache-2.0
#include "outer/parts/unapplied_steps.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

namespace isthmus::outer {
namespace {

/// By fragment, the last step whose round has been applied.
std::vector<std::int64_t> last_applied(StateReader& state) {
  std::vector<std::int64_t> last;
  const auto named = [&](std::size_t p) { return fmt::format("last_sent/{}", p); };
  while (state.contains(named(last.size()))) last.push_back(state.integer(named(last.size())));
  const std::int64_t in_flight = state.contains("in_flight") ? state.integer("in_flight") : 0;
  for (std::int64_t i = in_flight - 1; i >= 0; --i) {  // the oldest of a fragment comes last
    const std::string prefix = fmt::format("in_flight/{}/", i);
    const auto p = static_cast<std::size_t>(state.integer(prefix + "fragment"));
    if (p >= last.size()) continue;
    const std::int64_t sent = state.integer(prefix + "sent");
    last[p] = std::max<std::int64_t>(0, sent - state.integer(prefix + "steps"));
  }
  // 01-adam between two syncs, which it has once its variance is frozen.
  if (state.contains("last_sync") && state.contains("anchor/0")) {
    last.push_back(state.integer("last_sync"));
  }
  return last;
}

}  // namespace

std::optional<UnappliedSteps> unapplied_steps(StateReader& state, std::int64_t step) {
  const std::vector<std::int64_t> last = last_applied(state);
  if (last.empty()) return std::nullopt;  // exchanges every step
  const auto [oldest, newest] = std::ranges::minmax(last);
  if (oldest >= step) return std::nullopt;
  const bool eager = state.contains("outer/method") && state.text("outer/method") == "eager";
  return UnappliedSteps{.first = oldest + 1,
                        .last = step,
                        .some_fragments = newest != oldest,
                        .in_part = eager && state.integer("in_flight") > 0};
}

std::string unapplied_text(const UnappliedSteps& steps) {
  const std::string which = steps.first == steps.last
                                ? fmt::format("step {} is", steps.last)
                                : fmt::format("steps {} to {} are", steps.first, steps.last);
  return fmt::format(
      "{} in no round that has been applied{}, so this model does not hold {}{}", which,
      steps.some_fragments ? " to every fragment" : "", steps.first == steps.last ? "it" : "them",
      steps.in_part ? " whole (of the round in flight it has the workers' own parts)" : "");
}

}  // namespace isthmus::outer
