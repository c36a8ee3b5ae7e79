// SPDX-License-Identifier: Apache-2.0
// The offers that no merge holds yet, at the coordinator, and the decision which of them are merged
// when. The offers of a fragment are merged
//   at once where no other worker can still make one: each has one here, trains no more, or is
//   gone; else once `quorum` workers have made one and the shortest grace window of the offers has
//   passed since. Of fewer workers that can still make one, fewer are the quorum.
// An offer that comes later is for the next merge. So an offer is in one merge alone, and none is
// dropped. A worker that was gone and comes back is waited for from its first offer on. Pure: the
// result is a function of the calls in their order and of their times.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "isthmus/merges.h"

namespace isthmus {

/// Offers to be merged now.
struct PickedOffers {
  std::int64_t number = 0;  // of the merge
  FragmentId fragment;
  StepIndex step;                                  // the latest of the offers
  std::vector<std::pair<WorkerId, Offer>> offers;  // in worker order
};

/// The worker under which the merge's mean is encoded. Two merges of a fragment may be of one step,
/// so it tells them apart: by the first worker whose offer is of that step, of which there is one
/// offer in one merge, over a resume too. The merge of all workers' offers of one step is encoded
/// as a round's mean.
[[nodiscard]] std::uint32_t mean_encoder(const PickedOffers& picked);

class MergePool {
 public:
  /// `merges`: so far, in earlier sessions of the run.
  explicit MergePool(int workers, std::int64_t merges = 0)
      : workers_(static_cast<std::size_t>(workers)), merges_(merges) {}

  /// RETURNS: false, and drops the offer, where the worker has one of the fragment here already.
  [[nodiscard]] bool take(WorkerId from, Offer offer, TimePoint now);
  /// The step of the worker's offer of the fragment that is here.
  [[nodiscard]] std::optional<StepIndex> held(WorkerId from, FragmentId fragment) const;
  /// Whether the offers of the fragment are merged without waiting for others.
  [[nodiscard]] bool is_closed(FragmentId fragment) const;
  // Of a worker that is gone nothing is awaited, whatever a new process says before it has joined.
  void stop(WorkerId worker) {
    if (state(worker) != State::kGone) state(worker) = State::kStopped;
  }
  void finish(WorkerId worker) {
    if (state(worker) != State::kGone) state(worker) = State::kFinished;
  }
  /// The worker is lost or has left. What it has offered is merged like any other offer.
  void leave(WorkerId worker) { state(worker) = State::kGone; }
  /// Of a worker that was gone another process takes in merges. It makes offers too, so what the
  /// former one had offered is merged at once.
  void close_offers_of_former(WorkerId worker);
  /// A worker that was gone has joined as that process.
  void come_back(WorkerId worker);

  /// The next merge that is due. Absent: none is.
  [[nodiscard]] std::optional<PickedOffers> pick(TimePoint now);
  /// When the next merge is due without a further call; kNever while it depends on one.
  [[nodiscard]] TimePoint due() const;
  /// Every worker has finished or is gone, and every offer is merged.
  [[nodiscard]] bool ended() const;
  /// The next merge follows merge `merges`, of an earlier session.
  void go_on_after(std::int64_t merges) { merges_ = merges; }
  /// Merges so far.
  [[nodiscard]] std::int64_t merges() const { return merges_; }

 private:
  enum class State {
    kTrains,
    kBack,  // ... and has made no offer yet
    kStopped,
    kFinished,
    kGone,
  };
  struct Held {
    Offer offer;
    TimePoint came;
  };
  struct Offers {
    std::map<WorkerId, Held> by_worker;  // never empty
    bool closed = false;                 // merged at once
  };

  [[nodiscard]] State& state(WorkerId worker) { return workers_.at(index(worker)); }
  [[nodiscard]] TimePoint due(const Offers& offers) const;

  std::vector<State> workers_;
  std::map<FragmentId, Offers> offers_;
  std::int64_t merges_;
};

}  // namespace isthmus
