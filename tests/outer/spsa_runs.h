// SPDX-License-Identifier: Apache-2.0
// Runs of method spsa on quadratic losses, for its tests.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "toy_loops.h"

namespace isthmus::testing_support {

inline constexpr std::uint64_t kRun = 0xfeedface12345678;

/// Tensors that begin and end inside words and counters, in and outside layers.
inline QuadraticLoop::Options odd_tensors(int worker) {
  return {.tensors = {{kNoLayer, 77}, {0, 1001}, {0, 5}, {1, 1000}, {kNoLayer, 33}},
          .start = 1,
          .center = 0.1f * static_cast<float>(worker),
          .lr = 0.7f,
          .noise = 0.3f,
          .worker = worker};
}

inline OuterOptions spsa_options(int samples = 1) {
  OuterOptions options;
  options.spsa = {.eps = 1e-2, .samples = samples, .weight_decay = 1e-3, .run_key = kRun};
  return options;
}

inline std::vector<std::uint32_t> bits_of(const std::vector<float>& x) {
  std::vector<std::uint32_t> bits;
  for (const float value : x) bits.push_back(std::bit_cast<std::uint32_t>(value));
  return bits;
}

/// A worker's end: weights and log.
struct Finish {
  std::vector<float> weights;
  std::vector<std::byte> log;
  std::vector<StepReport> reports;
};

/// M workers for some steps. `each` may look at a worker after each step.
using AfterStep = std::function<void(int worker, OuterStrategy&, QuadraticLoop&)>;
inline std::vector<Finish> run_workers(int workers, int steps, const OuterOptions& options,
                                       const AfterStep& each = {}) {
  std::vector<Finish> ends(static_cast<std::size_t>(workers));
  run_in_process(workers, [&](WorkerContext& context) {
    QuadraticLoop inner(odd_tensors(context.rank.value()));
    const auto strategy = make_outer_strategy("spsa", options, inner, context.exchange);
    Finish& end = ends[static_cast<std::size_t>(context.rank.value())];
    for (int t = 1; t <= steps; ++t) {
      end.reports.push_back(strategy->step());
      if (each) each(context.rank.value(), *strategy, inner);
    }
    end.weights = inner.all();
    end.log.assign(strategy->log().begin(), strategy->log().end());
  });
  return ends;
}

}  // namespace isthmus::testing_support
