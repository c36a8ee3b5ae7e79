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

/// The parameters of a round at this member. May outlive the call that returned it: the caller
/// builds the round from it while the engine continues.
struct RoundPlace {
  WorkerId self;
  int members = 1;
  std::uint32_t epoch = 0;
  std::int64_t closed_before = 0;          // stamped into the frames sent at launch
  std::vector<std::uint32_t> shares = {};  // of the owners; empty: even
  /// Two levels: the group number by member; empty: one level. Read at construction; an engine's
  /// groups never change.
  std::span<const std::uint32_t> groups = {};
  std::size_t chunk_bytes = kMaxPartBytes;  // largest part; the same on all members
  /// By member: whether it takes part; empty: all do. The others own nothing and have weight 0.
  std::vector<bool> live = {};
  std::uint64_t run_key = 0;   // seed of the means' encoding
  bool keeps_encoded = false;  // whether take_encoded returns the frames
  /// By member: Transport::most_unused; empty: no bounds.
  std::vector<std::size_t> most_unused = {};
  /// Echoes sent to each member so far; owned by the engine, which outlives its rounds.
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
  /// The member whose sum this member's contribution to a part enters. Only in a reduce.
  [[nodiscard]] WorkerId gatherer(std::size_t k) const;
  /// This member sums contributions to the part.
  [[nodiscard]] bool gathers(std::size_t k) const;
  /// Whether `member`'s contributions enter the sums of this member.
  [[nodiscard]] bool feeds(std::size_t member) const;
  /// Whether member `to` gets this member's contribution to the part.
  [[nodiscard]] bool contribution_goes(std::size_t k, WorkerId to) const;
  /// The member that sends the result of a part to this one. Only in a reduce.
  [[nodiscard]] WorkerId source(std::size_t k) const;
  /// The members to which this one sends the result of a part. Only in a reduce.
  [[nodiscard]] std::vector<WorkerId> receivers(std::size_t k) const;

  // Of two levels.
  [[nodiscard]] std::size_t group_of(WorkerId member) const;
  [[nodiscard]] std::size_t own_group() const { return group_of(self_); }
  /// Whether `member`, of another group, sends its group's mean to this member, the part's owner.
  [[nodiscard]] bool collects_for_own_part(std::size_t k, WorkerId member) const;
  /// The contribution stays in this member's group, since the part's owner belongs to it.
  [[nodiscard]] bool stays_in_group(std::size_t k) const;

 private:
  WorkerId self_;
  int members_;
  std::vector<bool> live_;  // by member; empty: all
  ReductionPlan plan_;
  std::vector<std::size_t> group_of_;  // by member; groups.size(): none; empty: one level
};

}  // namespace isthmus
