// SPDX-License-Identifier: Apache-2.0
// What one synchronization of a vector takes on given links, and the share of its time that a run
// computes which stops for each of them. It is the model behind a run's prediction
// (plan/exchange_model.h), asked about one round, so that runs of other programs can be held to it:
// an all-reduce of NCCL is a ring over the members' links. Pure functions; any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "isthmus/codec.h"
#include "sim/link.h"

namespace isthmus {

enum class SyncWay {
  kRing,    // 2 (M - 1) hops of 1/M of the vector each, from each member to the next
  kReduce,  // as runs exchange: every member owns a share; until all know it committed
};

/// "ring", "reduce", in the order of SyncWay.
[[nodiscard]] std::span<const std::string_view> sync_way_names();

struct SyncQuestion {
  std::int64_t values = 0;
  std::shared_ptr<const Codec> codec;  // co-owned by whoever asks; sizes only
  int members = 2;
  std::vector<DirectedLink> links;  // members x members, row-major [from][to]
  LinkOptions link;
  SyncWay way = SyncWay::kRing;
  /// As PredictionInput::processor_bits_per_s; of kReduce alone.
  double processor_bits_per_s = 0;
};

/// Seconds until the last member has the mean, all of them beginning at once.
/// REQUIRES: members >= 2, values >= 1, a codec that is not sparse for kRing, which has no
/// processor.
[[nodiscard]] double sync_seconds(const SyncQuestion& question);

/// A run that stops for a sync after each H-th step. The first `skip` of its steps do not count.
struct BlockingRun {
  double step_s = 0;  // computing of a step
  std::int64_t H = 1;
  std::int64_t steps = 0;
  std::int64_t skip = 0;
};

struct ComputingShare {
  std::int64_t steps = 0;  // that count
  std::int64_t syncs = 0;  // among them: floor(steps / H) - floor(skip / H) of the whole run
  double compute_s = 0;
  double sync_s = 0;
  double share = 0;  // compute_s / (compute_s + sync_s)
};

/// REQUIRES: step_s > 0, H >= 1, 0 <= skip < steps, seconds >= 0.
[[nodiscard]] ComputingShare computing_share(const BlockingRun& run, double seconds);

}  // namespace isthmus
