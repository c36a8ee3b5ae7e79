// SPDX-License-Identifier: Apache-2.0
// From a method and its options to the schedule that is predicted, by the method's own tables.
#include <algorithm>
#include <map>

#include "isthmus/errors.h"
#include "outer/parts/buckets.h"
#include "outer/parts/run_end.h"
#include "outer/parts/schedule.h"
#include "outer/parts/settings.h"
#include "outer/parts/zero_one_schedule.h"
#include "plan/prediction.h"

namespace isthmus {
namespace {

/// Buckets are the canonical layout from its end, in pieces of equal capacity. One may go out when
/// the whole of its first tensor is final, and backward goes from the end to that.
std::vector<PlannedFragment> buckets_of(std::span<const Parameter> parameters) {
  constexpr auto kCapacity = static_cast<std::int64_t>(outer::kBucketValues);
  const std::int64_t total = parameters.empty() ? 0 : parameters.back().elements.end;
  std::vector<PlannedFragment> buckets;
  std::size_t first = parameters.size();
  for (std::int64_t end = total; end > 0; end -= kCapacity) {
    const std::int64_t begin = std::max<std::int64_t>(end - kCapacity, 0);
    while (first > 0 && (first == parameters.size() || parameters[first].elements.begin > begin)) {
      --first;
    }
    const std::int64_t done = total - parameters[first].elements.begin;
    const double share = static_cast<double>(done) / static_cast<double>(total);
    buckets.push_back({.elements = end - begin,
                       .offset = 0,
                       .ready = kForwardShare + (1 - kForwardShare) * share});
  }
  return buckets;
}

/// 0/1 Adam by what its steps do, those of one kind together: a step of a kind costs the same
/// wherever it stands.
std::vector<PredictionInput> zero_one_phases(const OuterOptions& options,
                                             std::span<const Parameter> parameters, int workers,
                                             std::int64_t steps) {
  std::int64_t full = 0;
  std::int64_t compressed = 0;
  std::map<std::int64_t, std::int64_t> local;  // J: steps
  outer::ZeroOneSchedule schedule(options.zero_one_adam);
  for (std::int64_t done = 0; done < steps;) {
    const outer::ZeroOneStretch stretch = schedule.next_stretch(steps - done);
    done += stretch.steps;
    full += stretch.variance;
    compressed += stretch.compressed;
    if (stretch.interval > 0) local[stretch.interval] += stretch.steps;
  }
  std::vector<PredictionInput> phases;
  if (full > 0) {
    phases.push_back(prediction_input("ddp",
                                      {.codec = options.one_bit_adam.warmup_codec,
                                       .exchange = options.exchange,
                                       .commit_every = options.commit_every,
                                       .patience = options.patience},
                                      parameters, workers, full));
  }
  if (compressed > 0) {
    phases.push_back(prediction_input("01-adam", options, parameters, workers, compressed));
  }
  for (const auto& [interval, count] : local) {
    phases.push_back(prediction_input("01-adam", options, parameters, workers, count));
    phases.back().H = interval;
    // Every sync is then the first in a stretch of so many steps.
    if (interval >= options.commit_every) phases.back().commit_every = 1;
  }
  std::int64_t before = 0;
  for (PredictionInput& phase : phases) {
    phase.steps_before = before - before % phase.H;  // syncs are counted from a multiple of J
    before += phase.steps;
    phase.ends_the_run = before == steps;
  }
  if (!phases.empty()) {
    phases.back().closes_always = !outer::run_end("01-adam", options, 1, steps).closing.empty();
  }
  return phases;
}

}  // namespace

PredictionInput prediction_input(std::string_view method, const OuterOptions& options,
                                 std::span<const Parameter> parameters, int workers,
                                 std::int64_t steps) {
  const std::vector<MethodInfo> known = methods();
  const auto info = std::find_if(known.begin(), known.end(),
                                 [&](const MethodInfo& each) { return each.name == method; });
  if (info == known.end()) {
    throw ConfigError(std::string{"outer.method = \""}.append(method).append(
        "\": no such method, so nothing can be predicted"));
  }
  outer::validate(*info, options);
  const auto pairs = static_cast<std::size_t>(workers) * static_cast<std::size_t>(workers);
  PredictionInput input{.workers = workers,
                        .steps = steps,
                        .exchange = options.exchange,
                        .codec = make_codec(outer::codec_of(*info, options)),
                        .links = std::vector<DirectedLink>(pairs)};
  if (method == "ddp") {
    input.fragments = buckets_of(parameters);
    input.commit_every = options.commit_every;
    return input;
  }
  if (method == "1bit-adam" || method == "01-adam") {
    // Its momenta go out when the whole backward pass is over.
    input.fragments = buckets_of(parameters);
    for (PlannedFragment& bucket : input.fragments) bucket.ready = 1;
    input.commit_every = options.commit_every;
    return input;
  }
  if (method == "spsa") {
    // One byte a sample; the chain's sixteen bytes each 64 steps are left out.
    input.fragments.push_back({.elements = options.spsa.samples, .offset = 0});
    input.exchange = ReductionKind::kCollect;
    input.codec = plain_bytes();
    return input;
  }
  const std::vector<Fragment> fragments =
      make_fragments(parameters, options.fragments, options.pattern, options.embeddings_own);
  const std::vector<std::int64_t> offsets = outer::resolve_offsets(
      options.offsets, options.H, static_cast<std::int64_t>(fragments.size()));
  for (std::size_t p = 0; p < fragments.size(); ++p) {
    input.fragments.push_back({.elements = fragments[p].elements, .offset = offsets[p]});
  }
  if (method == "sparseloco") input.exchange = ReductionKind::kCollect;
  input.H = options.H;
  input.overlap = options.overlap;
  input.final_sync = options.final_sync;
  input.round_behind = info->round_behind;
  input.drains = info->drains;
  if (info->by_arrival) {
    // One merge a window, behind the steps of the next one unless a worker waits for its own. The
    // coordinator sends what a member of a gather sends.
    input.exchange = ReductionKind::kGather;
    if (!options.merge.grace) input.overlap = options.H - 1;
    input.final_sync = FinalSync::kFull;
  }
  return input;
}

std::vector<PredictionInput> prediction_phases(std::string_view method, const OuterOptions& options,
                                               std::span<const Parameter> parameters, int workers,
                                               std::int64_t steps) {
  if (method == "01-adam") {
    return zero_one_phases(options, parameters, workers, steps);
  }
  if (method != "1bit-adam") {
    return {prediction_input(method, options, parameters, workers, steps)};
  }
  const std::int64_t warm = std::min(steps, options.one_bit_adam.freeze.value_or(steps));
  std::vector<PredictionInput> phases = {
      prediction_input("ddp",
                       {.codec = options.one_bit_adam.warmup_codec,
                        .exchange = options.exchange,
                        .commit_every = options.commit_every,
                        .patience = options.patience},
                       parameters, workers, warm)};
  if (warm < steps) {
    phases.back().ends_the_run = false;
    phases.push_back(prediction_input(method, options, parameters, workers, steps - warm));
    phases.back().steps_before = warm;
  }
  return phases;
}

}  // namespace isthmus
