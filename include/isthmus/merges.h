// SPDX-License-Identifier: Apache-2.0
// Merges: means of a fragment over those workers that have something to give, for methods whose
// workers do not wait for one another (method decoupled; arXiv:2604.21428). A worker offers a
// contribution and trains on. The coordinator merges the offers of a fragment once a quorum of
// workers has made one and a grace window has passed since, or as soon as no worker is left that
// could still make one. Every worker receives every merge, in the order of its number, with the
// same bytes, whenever it looks.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "isthmus/codec.h"
#include "isthmus/expected.h"
#include "isthmus/transport.h"
#include "isthmus/types.h"

namespace isthmus {

/// The rule of a run's merges. Equal on all workers.
struct MergeRule {
  int quorum = 1;  // offers of a fragment that begin the grace window; >= 1
  /// Absent: a quarter of the time in which the worker trained what it offers.
  std::optional<Duration> grace = std::nullopt;
};

/// A worker's contribution to the next merge of a fragment.
struct Offer {
  SyncId id;  // the fragment, and the worker's step
  Encoded encoded;
  std::shared_ptr<const Codec> codec;  // never null
  double weight = 1;                   // in the mean: 1e-30 to 1e30
  std::int64_t tokens = 0;             // told to all workers with the merge
  MergeRule rule = {};
};

/// An offer that a merge holds.
struct MergedOffer {
  WorkerId worker;
  StepIndex sent;
  std::int64_t tokens = 0;
  double weight = 0;
  bool operator==(const MergedOffer&) const = default;
};

struct Merge {
  std::int64_t number = 0;  // 1, 2, 3, ... over all fragments of a session; with a hub, of a run
  FragmentId fragment;
  StepIndex step;                   // the latest step of its offers
  std::vector<MergedOffer> offers;  // in worker order; each offer is in one merge alone
  std::vector<float> values;        // the weighted mean
  std::uint64_t bytes = 0;          // encoded
};

/// One worker's interface to merges. Called from the worker's thread only.
class Merges {
 public:
  virtual ~Merges() = default;
  /// Of a run with a hub: the worker's state holds the merges up to number `last`, and `take` gives
  /// the later ones. Call before the first offer.
  virtual void follow(std::int64_t last) = 0;
  /// Sends an offer and returns at once. REQUIRES: the worker's last offer of the fragment has been
  /// merged, and the merge has been taken.
  virtual void offer(Offer offer) = 0;
  /// The merges that have arrived since the last call, by number. THROWS: PeerError when the
  /// coordinator is lost.
  [[nodiscard]] virtual std::vector<Merge> take() = 0;
  /// Blocks until `take` has something, the merges have ended, or `patience` has passed. RETURNS:
  /// how long it has blocked. THROWS: as take.
  virtual Duration wait(Duration patience) = 0;
  /// The worker trains no more: nobody waits for an offer of it, though it may make one.
  virtual void stop_training() = 0;
  /// The worker makes no further offer and has none that is not merged.
  virtual void finish() = 0;
  /// All workers have finished or are gone, and every merge has been taken.
  [[nodiscard]] virtual bool ended() = 0;
};

}  // namespace isthmus
