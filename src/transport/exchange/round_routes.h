// SPDX-License-Identifier: Apache-2.0
// The routes of a round's parts: which member sums a part, which members send it to this one, and
// to which members this one sends. A gather or collect sends every part to all members. A reduce in
// one level sends a part to its owner and back. A reduce in two levels (reduction.h) sends it to
// the collector of the own group, the group's mean to the part's owner, and the result back the
// same way. Fixed for the life of a round. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "isthmus/transport.h"
#include "transport/exchange/reduction.h"

namespace isthmus {

/// Where a round takes place. May outlive the call that gave it: a round is made of it while the
/// engine goes on.
struct RoundPlace {
  WorkerId self;
  int members = 1;
  std::uint32_t epoch = 0;
  std::int64_t closed_before = 0;          // stamped into the frames sent at launch
  std::vector<std::uint32_t> shares = {};  // of the owners; empty: even
  /// In their place, by the vector's size; empty: none. Read at construction, as `groups` below.
  std::span<const SharesOfSize> table = {};
  /// Of a reduce in two levels: by member, equal numbers are one group; empty: one level. Read at
  /// construction; those of an engine never change.
  std::span<const std::uint32_t> groups = {};
  std::size_t chunk_bytes = kMaxPartBytes;  // of a part, at most; the same on all members
  /// By member: who takes part; none: all. The others own nothing and count as weight 0.
  std::vector<bool> live = {};
  std::uint64_t run_key = 0;   // of the means' encoding
  bool keeps_encoded = false;  // take_encoded has something
  /// Echoes sent to each member so far; belongs to the engine, which outlives its rounds.
  const std::vector<std::uint32_t>* echoes = nullptr;
};

class RoundRoutes {
 public:
  /// Cuts a vector of `values` values that `codec` encodes. REQUIRES: kind != kAuto.
  RoundRoutes(const RoundPlace& place, const Codec& codec, std::size_t values, ReductionKind kind);

  [[nodiscard]] WorkerId self() const { return self_; }
  [[nodiscard]] int members() const { return members_; }
  [[nodiscard]] const ReductionPlan& plan() const { return plan_; }
  [[nodiscard]] const Part& part(std::size_t k) const { return plan_.parts[k]; }
  [[nodiscard]] std::size_t parts() const { return plan_.parts.size(); }

  [[nodiscard]] bool takes_part(std::size_t member) const { return live_.empty() || live_[member]; }
  /// This member owns the part: it computes the result and answers with it.
  [[nodiscard]] bool owns(std::size_t k) const { return plan_.parts[k].owner == self_; }
  /// The member whose sum this member's contribution to a part enters. Of a reduce.
  [[nodiscard]] WorkerId gatherer(std::size_t k) const;
  /// This member sums contributions to the part.
  [[nodiscard]] bool gathers(std::size_t k) const;
  /// Whether that member's contributions enter the sums of this one.
  [[nodiscard]] bool feeds(std::size_t member) const;
  /// The member that gets this member's contribution to the part.
  [[nodiscard]] bool contribution_goes(std::size_t k, WorkerId to) const;
  /// The member that sends the result of a part to this one. Of a reduce.
  [[nodiscard]] WorkerId source(std::size_t k) const;
  /// The members to which this one sends the result of a part. Of a reduce.
  [[nodiscard]] std::vector<WorkerId> receivers(std::size_t k) const;

  // Of two levels.
  [[nodiscard]] std::size_t group_of(WorkerId member) const;
  [[nodiscard]] std::size_t own_group() const { return group_of(self_); }
  /// `member`, of another group, sends the mean of its group to this one, which owns the part.
  [[nodiscard]] bool collects_for_own_part(std::size_t k, WorkerId member) const;
  /// The contribution stays in the own group, since the part's owner is one of it.
  [[nodiscard]] bool stays_in_group(std::size_t k) const;

 private:
  WorkerId self_;
  int members_;
  std::vector<bool> live_;  // by member; empty: all
  ReductionPlan plan_;
  std::vector<std::size_t> group_of_;  // by member; none: takes no part; empty: one level
};

}  // namespace isthmus
