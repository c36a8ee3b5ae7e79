// SPDX-License-Identifier: Apache-2.0
// The acts of a run's workers without their durations: when in a step a round begins, the bytes
// that it moves, where it is awaited. Re-timing replays them over other links (plan/retiming.h).
//
// It is recorded from the method itself: one worker's strategy runs over an inner loop that does
// not train and an exchange that answers at once. All workers begin and await the same rounds in
// the same order (isthmus/transport.h), so one worker's program holds for all. Plain values; any
// thread.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "isthmus/inner_loop.h"
#include "isthmus/outer.h"
#include "transport/exchange/reduction.h"

namespace isthmus {

/// A round as seen by the links.
struct RoundShape {
  struct Part {
    int owner = -1;  // reduces it; -1: every member takes all
    std::uint64_t bytes = 0;
    bool operator==(const Part&) const = default;
  };
  int fragment = 0;
  bool commits = true;
  bool all_to_all = true;
  std::vector<Part> parts;
  bool operator==(const RoundShape&) const = default;
};

/// One act of a worker. Shares are of the step's time, from its begin.
struct ProgramAct {
  enum class Kind : std::uint8_t {
    kStep,     // a whole inner step; no time if the worker is idle
    kCompute,  // computes up to `share`
    kSleep,    // waits until `share`; continues at once if that is past
    kBegin,    // begins a round of shape `which`
    kWait,     // awaits the round begun `which` rounds before the latest
  };
  Kind kind = Kind::kStep;
  double share = 0;
  int which = 0;
  bool operator==(const ProgramAct&) const = default;
};

struct RunProgram {
  int workers = 1;
  std::vector<RoundShape> shapes;
  std::vector<std::vector<ProgramAct>> bodies;  // of steps, each once
  std::vector<int> steps;                       // the body of step t at t - 1
};

struct ProgramInput {
  std::string_view method;
  const OuterOptions& options;
  std::span<const Parameter> parameters;  // shapes and sizes; values are not read
  int workers = 1;
  std::int64_t steps = 0;
  std::size_t chunk_bytes = kMaxPartBytes;  // of a frame's values, at most
};

/// Why a finished run of this kind cannot be re-timed, in words; nothing if it can: its
/// configuration then fixes what it sends and when.
[[nodiscard]] std::optional<std::string> retiming_obstacle(std::string_view method,
                                                           const OuterOptions& options);

/// Takes about as long as the outer steps and encodings of one worker. THROWS: ConfigError as
/// make_outer_strategy. REQUIRES: no retiming_obstacle.
[[nodiscard]] RunProgram record_program(const ProgramInput& input);

}  // namespace isthmus
