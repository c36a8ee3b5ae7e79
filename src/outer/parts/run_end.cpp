// SPDX-License-Identifier: Apache-2.0
#include "outer/parts/run_end.h"

#include <fmt/format.h>

#include <algorithm>

#include "isthmus/errors.h"
#include "outer/parts/schedule.h"
#include "outer/parts/zero_one_schedule.h"

namespace isthmus::outer {
namespace {

MethodInfo method_named(std::string_view name) {
  for (const MethodInfo& method : methods()) {
    if (method.name == name) return method;
  }
  throw ConfigError(
      fmt::format("outer.method = \"{}\": no such method; `isthmus methods` lists them", name));
}

/// Syncs among steps 1 .. `steps`: their number, and the last one's step (0: none).
struct Sends {
  std::int64_t count = 0;
  std::int64_t last = 0;
};
Sends sends_by(std::int64_t steps, std::int64_t H, std::int64_t offset) {
  const std::int64_t first = offset == 0 ? H : offset;
  if (steps < first) return {};
  const std::int64_t count = (steps - first) / H + 1;
  return {.count = count, .last = first + (count - 1) * H};
}

/// Of the sends up to step `steps`, those that are applied in a run that drops its rounds in
/// flight.
Sends applied_sends(const MethodInfo& method, const OuterOptions& options, std::int64_t offset,
                    std::int64_t steps) {
  const std::int64_t lag = !method.drains        ? 0  // its own part is applied at once
                           : method.round_behind ? options.H
                                                 : options.overlap;
  return sends_by(steps - lag, options.H, offset);
}

RunEnd zero_one_end(const OuterOptions& options, std::int64_t steps) {
  RunEnd end{.fragments = 1};
  ZeroOneSchedule schedule(options.zero_one_adam);
  std::int64_t last = 0;
  for (std::int64_t done = 0; done < steps;) {
    const ZeroOneStretch stretch = schedule.next_stretch(steps - done);
    done += stretch.steps;
    end.rounds += stretch.variance + stretch.compressed + stretch.syncs;
    last = std::max(last, stretch.last_sent);
  }
  end.sent = end.rounds;
  if (last < steps) end.closing.push_back({.fragment = FragmentId(0), .steps = steps - last});
  return end;
}

}  // namespace

RunEnd run_end(std::string_view name, const OuterOptions& options, std::int64_t fragments,
               std::int64_t steps) {
  const MethodInfo method = method_named(name);
  if (name == "01-adam") return zero_one_end(options, steps);
  if (!method.takes("final_sync") && !method.by_arrival) {
    return {.fragments = fragments, .sent = steps, .rounds = steps, .closing = {}, .uncarried = {}};
  }
  const std::vector<std::int64_t> offsets = resolve_offsets(options.offsets, options.H, fragments);
  RunEnd end{.fragments = fragments};
  for (std::int64_t p = 0; p < fragments; ++p) {
    const std::int64_t offset = offsets[static_cast<std::size_t>(p)];
    const Sends sent = sends_by(steps, options.H, offset);
    const Sends applied = options.final_sync == FinalSync::kNone
                              ? applied_sends(method, options, offset, steps)
                              : sent;
    end.sent += sent.count;
    end.rounds += applied.count;
    if (!method.drains && options.final_sync != FinalSync::kFull && sent.count > 0) {
      end.own_part_only = options.H;
    }
    if (applied.last == steps) continue;
    const LastWindow window{.fragment = FragmentId(static_cast<int>(p)),
                            .steps = steps - applied.last};
    (options.final_sync == FinalSync::kFull ? end.closing : end.uncarried).push_back(window);
  }
  return end;
}

std::int64_t longest(const std::vector<LastWindow>& windows) {
  std::int64_t most = 0;
  for (const LastWindow& window : windows) most = std::max(most, window.steps);
  return most;
}

}  // namespace isthmus::outer
