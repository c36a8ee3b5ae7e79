// SPDX-License-Identifier: Apache-2.0
// The members of each round after all joins, leaves and losses so far, and the news with which
// member 0 announces them. A loss holds for every round that is not committed; a join or a leave
// holds for rounds sent after an agreed step, so open rounds end among the members that began them.
// Pure.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "isthmus/expected.h"
#include "isthmus/transport.h"
#include "transport/wire/epoch.h"

namespace isthmus {

class Membership {
 public:
  /// All members are live; or none, as at a joiner before it is admitted.
  Membership(int members, std::uint32_t epoch, bool all_live);

  [[nodiscard]] std::uint32_t number() const { return number_; }
  [[nodiscard]] bool live(WorkerId member) const { return live_[index(member)]; }
  [[nodiscard]] const std::vector<bool>& live() const { return live_; }
  /// Live members that are not leaving.
  [[nodiscard]] int count() const;

  /// For rounds sent after step `sent`: the membership number in their frames, and their members.
  [[nodiscard]] std::uint32_t epoch_of(StepIndex sent) const;
  [[nodiscard]] bool takes_part(WorkerId member, StepIndex sent) const;
  [[nodiscard]] std::vector<bool> members_of(StepIndex sent) const;
  /// The membership number with which a live member joined; 0: a member from the start.
  [[nodiscard]] std::uint32_t came_in(WorkerId member) const { return came_in_[index(member)]; }

  /// The member takes part in rounds sent after this step,
  [[nodiscard]] std::int64_t since(WorkerId member) const { return since_[index(member)]; }
  /// and up to this step; kStays while it is not leaving, -1 once it was lost.
  [[nodiscard]] std::int64_t until(WorkerId member) const { return until_[index(member)]; }
  static constexpr std::int64_t kStays = std::numeric_limits<std::int64_t>::max();
  /// Live, and a non-member once the rounds that it takes part in have ended.
  [[nodiscard]] bool leaves(WorkerId member) const {
    return live(member) && until(member) != kStays;
  }
  /// It has left in order (was not lost).
  [[nodiscard]] bool has_left(WorkerId member) const { return !live(member) && until(member) >= 0; }
  /// The last membership number with which all open rounds began again.
  [[nodiscard]] std::uint32_t whole() const { return whole_; }

  /// The next membership. REQUIRES: `member` is live; for `with`: it is not.
  [[nodiscard]] Membership without(WorkerId member) const;
  [[nodiscard]] Membership with(WorkerId member, std::int64_t after) const;
  /// Rounds sent after `after` are without it. REQUIRES: it is not leaving yet.
  [[nodiscard]] Membership leaving(WorkerId member, std::int64_t after) const;
  /// A leaving member has ended its rounds: no round begins again. REQUIRES: leaves(member).
  [[nodiscard]] Membership parted(WorkerId member) const;

 private:
  friend struct EpochNews;
  [[nodiscard]] static std::size_t index(WorkerId member) {
    return static_cast<std::size_t>(member.value());
  }
  /// Epoch `number` holds for rounds sent after a step.
  struct Change {
    std::uint32_t number = 0;
    std::int64_t after = 0;
  };
  void change_after(std::int64_t after);
  std::uint32_t number_;
  std::uint32_t whole_;                 // the last number with which open rounds began again
  std::vector<Change> changes_;         // since then, in order
  std::vector<bool> live_;              // by member
  std::vector<std::int64_t> since_;     // by member: takes part in rounds sent after this step
  std::vector<std::int64_t> until_;     // by member: and up to this step
  std::vector<std::uint32_t> came_in_;  // by member
};

/// Payload of an EPOCH frame: the whole membership, so that a missed frame does no harm.
struct EpochNews {
  explicit EpochNews(Membership all) : membership(std::move(all)) {
    epoch.number = membership.number();
    epoch.live = membership.live();
  }
  Membership membership;
  Epoch epoch;                    // the same for people
  std::vector<SyncId> committed;  // rounds that some member may not know to be committed

  [[nodiscard]] std::vector<std::byte> write() const;
  /// RETURNS: the reason if the bytes are not the news of a run with `members` members.
  [[nodiscard]] static Expected<EpochNews, std::string> read(std::span<const std::byte> bytes,
                                                             int members);
};

}  // namespace isthmus
