// SPDX-License-Identifier: Apache-2.0
// From a method and its options to the schedule that is predicted, by the method's own tables.
#include <algorithm>

#include "isthmus/errors.h"
#include "outer/buckets.h"
#include "outer/ddp.h"
#include "outer/schedule.h"
#include "plan/prediction.h"

namespace isthmus {
namespace {

/// Forward takes a third of a step; gradients become final in backward order, in time proportional
/// to their number (as app/timed_inner_loop.cpp announces them).
constexpr double kForwardShare = 1.0 / 3.0;

std::vector<PlannedFragment> buckets_of(std::span<const Parameter> parameters) {
  std::int64_t total = 0;
  for (const Parameter& parameter : parameters) {
    total += parameter.elements.size();
  }
  std::vector<PlannedFragment> fragments;
  for (const outer::Bucket& bucket : outer::make_buckets(parameters, outer::kBucketValues)) {
    std::size_t first = parameters.size();
    for (const outer::Slice& slice : bucket.slices) {
      first = std::min(first, slice.parameter);
    }
    // A bucket waits for the whole of its last tensor, and backward goes from the end to it.
    const std::int64_t done = total - parameters[first].elements.begin;
    const double share = static_cast<double>(done) / static_cast<double>(total);
    fragments.push_back({.elements = static_cast<std::int64_t>(bucket.values),
                         .offset = 0,
                         .ready = kForwardShare + (1 - kForwardShare) * share});
  }
  return fragments;
}

}  // namespace

PredictionInput prediction_input(std::string_view method, const OuterOptions& options,
                                 std::span<const Parameter> parameters, int workers,
                                 std::int64_t steps) {
  const std::vector<MethodInfo> known = methods();
  const bool found = std::any_of(known.begin(), known.end(),
                                 [&](const MethodInfo& info) { return info.name == method; });
  if (!found) {
    throw ConfigError(std::string{"outer.method = \""}.append(method).append(
        "\": no such method, so nothing can be predicted"));
  }
  const auto pairs = static_cast<std::size_t>(workers) * static_cast<std::size_t>(workers);
  PredictionInput input{.workers = workers,
                        .steps = steps,
                        .exchange = options.exchange,
                        .codec = make_codec(options.codec),
                        .links = std::vector<LinkDirection>(pairs)};
  if (method == "ddp") {
    input.fragments = buckets_of(parameters);
    input.commit_every = outer::Ddp::kCommitEvery;
    return input;
  }
  const std::vector<Fragment> fragments =
      make_fragments(parameters, options.fragments, options.pattern, options.embeddings_own);
  const std::vector<std::int64_t> offsets = outer::resolve_offsets(
      options.offsets, options.H, static_cast<std::int64_t>(fragments.size()));
  for (std::size_t p = 0; p < fragments.size(); ++p) {
    input.fragments.push_back({.elements = fragments[p].elements, .offset = offsets[p]});
  }
  input.H = options.H;
  input.overlap = options.overlap;
  input.final_sync = options.final_sync;
  return input;
}

}  // namespace isthmus
