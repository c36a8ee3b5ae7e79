// SPDX-License-Identifier: Apache-2.0
// Which method, H and codec for these links: candidates from the mildest change of data parallelism
// to the strongest, what each takes a step on given links, and the one to take. Times are those of
// the prediction that `simulate` prints beside a run (plan/prediction.h), over a vector of at most
// a few million values whose bytes stand for the model's. What a candidate does to the loss is not
// computed: each says where that was measured. Pure functions; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "isthmus/outer.h"
#include "plan/prediction.h"
#include "sim/link.h"

namespace isthmus {

/// What is known of a method's loss, and from where.
struct ChoiceEvidence {
  std::string_view source;  // "arXiv:2501.18512", "experiments/streaming-diloco"
  std::string_view claim;
};

struct MethodCandidate {
  std::string_view method;
  std::string_view codec;
  std::int64_t H = 1;
  bool streaming = false;  // fragments of three layers, one step of overlap
  std::span<const ChoiceEvidence> evidence;
};

/// Mildest first: in the order of the loss that is to be expected.
[[nodiscard]] std::span<const MethodCandidate> method_candidates();

/// A model and the links between its sites.
struct ChoiceQuestion {
  double parameters = 0;
  int layers = 1;
  double step_s = 0;                // computing of an inner step
  int members = 2;                  // >= 2
  std::vector<DirectedLink> links;  // members x members, row-major [from][to]
  LinkOptions link;                 // byte_scale: not read
  double processor_bits_per_s = 0;  // as PredictionInput's
};

/// What a method takes on the links of a question once its pattern repeats.
struct MethodTime {
  double step_s = 0;      // of an inner step, exchanges that nothing hides included
  double computing = 0;   // share of that: question.step_s / step_s
  double step_bytes = 0;  // sent by one site in a step, mean
};

/// The outer options of a candidate for a model of so many layers.
[[nodiscard]] OuterOptions options_of(const MethodCandidate& candidate, int layers);

/// REQUIRES: parameters, layers and step_s > 0, members >= 2. THROWS: ConfigError for options that
/// the method does not take.
[[nodiscard]] MethodTime time_method(const ChoiceQuestion& question, std::string_view method,
                                     const OuterOptions& options);
/// The same of a whole run of `steps`, with its closing round, and the mean of its steps.
[[nodiscard]] MethodTime time_run(const ChoiceQuestion& question, std::string_view method,
                                  const OuterOptions& options, std::int64_t steps);

struct TimedCandidate {
  const MethodCandidate* candidate = nullptr;
  MethodTime time;
  bool enough = false;  // computes at least the share that was asked for
};

struct MethodChoice {
  std::vector<TimedCandidate> candidates;  // all, mildest first
  std::size_t chosen = 0;                  // the first that is enough, else the fastest
};

/// REQUIRES: as time_method; 0 < least_computing < 1.
[[nodiscard]] MethodChoice choose_method(const ChoiceQuestion& question, double least_computing);

}  // namespace isthmus
