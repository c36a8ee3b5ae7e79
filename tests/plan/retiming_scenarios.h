// SPDX-License-Identifier: Apache-2.0
// Runs of every method to re-time, on one worker and several, even and uneven, with exchanges that
// overlap and that do not.
#pragma once

#include <fmt/format.h>

#include <chrono>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "isthmus/outer.h"
#include "plan/retiming.h"
#include "sim/network.h"

namespace isthmus {

using std::chrono::milliseconds;
using std::chrono::nanoseconds;

struct Scenario {
  const char* name = "";
  std::string method = "diloco";
  int workers = 2;
  std::int64_t steps = 37;
  OuterOptions options;
  std::vector<std::int64_t> sizes = {20'000, 15'000, 15'000, 10'001};  // one tensor a layer
  Duration step = milliseconds(50);
  int slow_worker = -1;  // takes half as long again
  int idle_worker = -1;  // takes every other step only
  bool even = false;     // steps of the same round length, so that many things coincide
  LinkModel model = LinkModel::kPlain;
  double byte_scale = 1;

  friend void PrintTo(const Scenario& scenario, std::ostream* out) { *out << scenario.name; }
};

inline std::optional<Duration> step_of(const Scenario& scenario, WorkerId worker, StepIndex t) {
  if (worker.value() == scenario.idle_worker && t.value() % 2 == 1) return std::nullopt;
  const Duration step = scenario.step + (scenario.even ? 0 : t.value() % 3) * nanoseconds(1);
  return worker.value() == scenario.slow_worker ? step * 3 / 2 : step;
}

inline RunProgram program_of(const Scenario& scenario) {
  std::vector<Parameter> parameters;
  std::int64_t begin = 0;
  for (const std::int64_t size : scenario.sizes) {
    parameters.push_back({.name = fmt::format("layer {}", parameters.size()),
                          .layer = static_cast<int>(parameters.size()),
                          .shape = {size},
                          .elements = {begin, begin + size}});
    begin += size;
  }
  return record_program({.method = scenario.method,
                         .options = scenario.options,
                         .parameters = parameters,
                         .workers = scenario.workers,
                         .steps = scenario.steps});
}

inline RetimingInput retiming_of(const Scenario& scenario, const RunProgram& program,
                                 const DirectedLink& link) {
  return {.program = program,
          .links = uniform_links(scenario.workers, link),
          .link = {.model = scenario.model, .byte_scale = scenario.byte_scale},
          .step_time = [&](WorkerId worker, StepIndex t) { return step_of(scenario, worker, t); }};
}

inline OuterOptions every(std::int64_t H, FinalSync sync = FinalSync::kFull) {
  OuterOptions options{.H = H};
  options.final_sync = sync;
  return options;
}
inline OuterOptions streaming(std::int64_t H, std::int64_t overlap, int fragments,
                              FinalSync sync = FinalSync::kFull) {
  OuterOptions options{.H = H, .fragments = fragments};
  options.overlap = overlap;
  options.final_sync = sync;
  return options;
}
inline OuterOptions frozen(std::int64_t after) {
  OuterOptions options;
  options.one_bit_adam.freeze = after;
  return options;
}
inline OuterOptions with(OuterOptions options, const std::string& codec, ReductionKind kind) {
  options.codec = codec;
  options.exchange = kind;
  return options;
}
inline OuterOptions zero_one() {
  OuterOptions options;
  options.zero_one_adam.var_freeze_step = 12;
  return options;
}
inline OuterOptions samples(int count) {
  OuterOptions options;
  options.spsa.samples = count;
  return options;
}

inline const std::vector<Scenario> kScenarios = {
    {.name = "Alone", .workers = 1, .options = every(5)},
    {.name = "Ddp", .method = "ddp"},
    {.name = "DdpWhole", .method = "ddp", .steps = 32, .even = true},
    {.name = "DdpOfFour", .method = "ddp", .workers = 4},
    {.name = "DdpInBuckets",
     .method = "ddp",
     .steps = 3,
     .sizes = {2'500'000, 2'500'000},
     .step = std::chrono::seconds(1)},
    {.name = "LocalSgd", .method = "localsgd", .options = every(10)},
    {.name = "LocalSgdDrained", .method = "localsgd", .options = every(10, FinalSync::kDrain)},
    {.name = "Diloco", .options = every(10)},
    {.name = "DilocoEveryStep", .workers = 3, .options = every(1)},
    {.name = "DilocoOfFourEven", .workers = 4, .options = every(2), .even = true},
    {.name = "StreamingOfFourEven",
     .method = "streaming-diloco",
     .workers = 4,
     .options = streaming(8, 5, 4),
     .step = milliseconds(5),
     .even = true},
    {.name = "DilocoOfFourReduced", .workers = 4, .options = every(10)},
    {.name = "DilocoOfFiveGathered",
     .workers = 5,
     .options = with(every(10), "int8", ReductionKind::kGather)},
    {.name = "DilocoInManyParts",
     .workers = 3,
     .steps = 9,
     .options = every(4),
     .sizes = {400'000, 300'000},
     .byte_scale = 3.7},
    {.name = "DilocoOverTcp", .options = every(10), .model = LinkModel::kTcp},
    {.name = "DilocoSurrogate",
     .workers = 4,
     .options = every(10),
     .model = LinkModel::kTcp,
     .byte_scale = 1212.37},
    {.name = "DilocoSlowWorker", .workers = 3, .options = every(10), .slow_worker = 0},
    {.name = "DilocoOtherSlowWorker", .options = every(10), .slow_worker = 1},
    {.name = "DilocoIdleWorker", .workers = 3, .options = every(10), .idle_worker = 2},
    {.name = "Delayed", .method = "delayed", .options = every(10), .step = milliseconds(10)},
    {.name = "DelayedDrained",
     .method = "delayed",
     .workers = 3,
     .options = every(10, FinalSync::kDrain)},
    {.name = "Eager",
     .method = "eager",
     .workers = 3,
     .options = every(6),
     .step = milliseconds(5)},
    {.name = "Co2", .method = "co2", .options = every(6), .slow_worker = 1},
    {.name = "Co2NoSync", .method = "co2", .workers = 3, .options = every(6, FinalSync::kNone)},
    {.name = "Sparseloco", .method = "sparseloco", .workers = 3, .options = every(10)},
    {.name = "Streaming", .method = "streaming-diloco", .options = streaming(8, 0, 4)},
    {.name = "StreamingOverlapping",
     .method = "streaming-diloco",
     .options = streaming(8, 2, 4),
     .step = milliseconds(10)},
    {.name = "StreamingCrowded",
     .method = "streaming-diloco",
     .workers = 4,
     .options = streaming(8, 7, 4, FinalSync::kFull),
     .step = milliseconds(3)},
    {.name = "StreamingCrowdedOverTcp",
     .method = "streaming-diloco",
     .workers = 4,
     .options = streaming(8, 5, 4),
     .step = milliseconds(3),
     .model = LinkModel::kTcp,
     .byte_scale = 20},
    {.name = "StreamingIn4BitsUnequal",
     .method = "streaming-diloco",
     .workers = 3,
     .options = with(streaming(8, 3, 4), "fp4-e3m0", ReductionKind::kReduce),
     .step = milliseconds(2),
     .slow_worker = 2},
    {.name = "OneBitAdam", .method = "1bit-adam", .options = frozen(9)},
    {.name = "OneBitAdamOfFour", .method = "1bit-adam", .workers = 4, .options = frozen(9)},
    {.name = "ZeroOneAdam", .method = "01-adam", .workers = 3, .options = zero_one()},
    {.name = "Spsa", .method = "spsa", .workers = 3, .steps = 70, .options = samples(2)},
};

}  // namespace isthmus
