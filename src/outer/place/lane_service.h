// SPDX-License-Identifier: Apache-2.0
// One rank's part of a site's outer state that is sharded over its ranks (outer.placement =
// "ranks"): its lanes of all fragments, and the service of requests of the first rank. The first
// rank runs the method and communicates with other sites; the others serve.
// Memory: for each lane that of a FragmentState. During a request 4 bytes a value of the fragment's
// lane for local values and 4 more for a mean, which return to the system; while a checkpoint is
// read, all ranks except the first hold the lane's received values twice. One thread, that of the
// rank. DETERMINISM: the bits of whole fragments (lane_fragment.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "core/state/own_pages.h"
#include "core/state/state_memory.h"
#include "isthmus/outer.h"
#include "outer/parts/outer_fragment.h"
#include "outer/parts/settings.h"
#include "outer/place/lane.h"
#include "outer/place/lane_exchange.h"
#include "transport/collectives/communicator.h"

namespace isthmus::outer {

enum class LaneAsk : std::int64_t {
  kMake,
  kGradient,
  kTakeBack,
  kKeepResidual,
  kForgetKeptResidual,
  kRecallResidual,
  kForgetOwnWork,
  kStep,
  kMerge,
  kStepAndRebase,
  kAnchor,
  kGatherTensor,  // the number-th tensor that the lane saves
  kBeginLoad,
  kTellNumber,  // to lanes that load a checkpoint
  kTellTensor,
  kEndLoad
};

/// A request of the first rank to all ranks.
struct LaneRequest {
  LaneAsk ask = LaneAsk::kMake;
  FragmentId fragment;
  float alpha = 0;  // of a merge
  EncodeKey key = {};
  std::int64_t number = 0;
};

/// The data of a request on the first rank, and its results; empty on the others. Large memory is
/// allocated before ranks are asked, since a request that fails ends the site.
struct LaneData {
  std::vector<std::span<float>> local;  // the fragment's values in the inner loop's memory
  std::span<const float> mean;
  std::span<const std::byte> sent;
  const OuterFragment::Accepts* accepts = nullptr;
  OuterGradient* gradient = nullptr;
  std::span<float> whole;  // a tensor of the fragment: an anchor, or of a checkpoint
  std::span<float> part;   // this rank's lane of a tensor that is sent to the ranks
  bool* recalled = nullptr;
};

class Lanes {
 public:
  explicit Lanes(FragmentedSettings settings);

  /// Takes part in one request, which the first rank passes in `request` and `first`. Collective.
  void take_part(const LaneRequest& request, Communicator& ranks, LaneData& first);
  /// The part of the other ranks.
  void serve(Communicator& ranks);

  [[nodiscard]] const FragmentedSettings& settings() const { return settings_; }
  /// This rank's lane; REQUIRES: it has been made.
  [[nodiscard]] Lane& lane(FragmentId fragment) const;

 private:
  /// A contiguous range of a fragment's values in the first rank's memory; null on the others.
  struct Stretch {
    LaneRange window;
    float* values;
  };
  void tell_stretches(std::size_t count, LaneExchange& exchange, const LaneData& first);
  void fetch(LaneExchange& exchange, std::span<float> local);
  void give(LaneExchange& exchange, std::span<const float> local);
  void run(const LaneRequest& request, LaneExchange& exchange, LaneData& first);
  void make(const Fragment& fragment, LaneExchange& exchange, std::span<float> local);
  void encode(Lane& lane, const EncodeKey& key, LaneExchange& exchange, const LaneData& first);
  void take_back(Lane& lane, LaneExchange& exchange, std::span<const std::byte> sent);
  void gather_tensor(const Lane& lane, std::int64_t number, LaneExchange& exchange,
                     std::span<float> whole);
  void take_tensor(LaneExchange& exchange, const LaneData& first);
  void load_told(Lane& lane);
  /// The lane's share of the mean.
  [[nodiscard]] OwnPages mean_of(LaneExchange& exchange, std::span<const float> mean);

  FragmentedSettings settings_;
  std::vector<std::unique_ptr<Lane>> lanes_;  // by fragment
  std::vector<Stretch> stretches_;            // of a request
  /// Values that the ranks except the first got from the reader of a checkpoint, in order.
  std::vector<std::int64_t> told_numbers_;
  std::vector<StateArray> told_tensors_;
};

}  // namespace isthmus::outer
