// SPDX-License-Identifier: Apache-2.0
// A rank's part in a site's outer state that all its ranks share (outer.placement = "ranks"): its
// lanes of all fragments, and what it does with them when the first rank asks. The first rank runs
// the method and speaks to other sites; the others serve.
// Memory: of its lanes what FragmentState holds of a fragment. During a request 4 bytes a value of
// the fragment's lane for local values and 4 more for a mean, which go back to the system; while a
// checkpoint is read, ranks but the first have what they are told of that lane twice. One thread,
// that of the rank. DETERMINISM: the bits of whole fragments (lane_fragment.h).
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
  kGatherTensor,  // the number-th that the lane saves
  kBeginLoad,
  kTellNumber,  // to lanes that load
  kTellTensor,
  kEndLoad
};

/// What the first rank asks all for.
struct LaneRequest {
  LaneAsk ask = LaneAsk::kMake;
  FragmentId fragment;
  float alpha = 0;  // of a merge
  EncodeKey key = {};
  std::int64_t number = 0;
  float eta = 0, mu = 0;  // of an outer step
};

/// What the first rank has of a request's data, and what it is given; nothing on the others. What
/// is large is there before ranks are asked: a request that fails is the end of the site.
struct LaneData {
  std::vector<std::span<float>> local;  // the fragment's values where the inner loop has them
  std::span<const float> mean;
  std::span<const std::byte> sent;
  const OuterFragment::Accepts* accepts = nullptr;
  OuterGradient* gradient = nullptr;
  std::span<float> whole;  // a tensor of the fragment's: an anchor, or of a checkpoint
  std::span<float> part;   // of a tensor that is told, what is in this rank's lane
  bool* recalled = nullptr;
};

class Lanes {
 public:
  explicit Lanes(FragmentedSettings settings);

  /// One request, which the first rank hands over in `request` and `first`. Collective.
  void take_part(const LaneRequest& request, Communicator& ranks, LaneData& first);
  /// The other ranks' part of it.
  void serve(Communicator& ranks);

  [[nodiscard]] const FragmentedSettings& settings() const { return settings_; }
  /// This rank's, once it is made.
  [[nodiscard]] Lane& lane(FragmentId fragment) const;

 private:
  /// Neighbouring values of a fragment where the first rank has them; null on the others.
  struct Stretch {
    LaneRange window;
    float* values;
  };
  void tell_stretches(std::size_t count, LaneExchange& exchange, const LaneData& first);
  void fetch(LaneExchange& exchange, std::span<float> local);
  void give(LaneExchange& exchange, std::span<const float> local);
  void run(const LaneRequest& request, LaneExchange& exchange, LaneData& first);
  /// Of the request's outer step.
  void use_rates(const LaneRequest& request, Lane& lane) const;
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
  /// What the first rank's lane has been given by the reader of a checkpoint, in order; not there.
  std::vector<std::int64_t> told_numbers_;
  std::vector<StateArray> told_tensors_;
};

}  // namespace isthmus::outer
