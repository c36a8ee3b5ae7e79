// SPDX-License-Identifier: Apache-2.0
// Who takes part in which rounds, after all comings and goings so far, and how member 0 tells it.
// A loss holds for every round that is not committed; a join and a leave for rounds sent after an
// agreed step, so those under way end among the members that opened them. Pure.
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
  /// All are there; or, as a joiner sees it before it is told, nobody.
  Membership(int members, std::uint32_t epoch, bool all_live);

  [[nodiscard]] std::uint32_t number() const { return number_; }
  [[nodiscard]] bool live(WorkerId member) const { return live_[index(member)]; }
  [[nodiscard]] const std::vector<bool>& live() const { return live_; }
  /// Live members that do not take leave.
  [[nodiscard]] int count() const;

  /// Of rounds sent after step `sent`: the epoch their frames name, and who takes part.
  [[nodiscard]] std::uint32_t epoch_of(StepIndex sent) const;
  [[nodiscard]] bool takes_part(WorkerId member, StepIndex sent) const;
  [[nodiscard]] std::vector<bool> members_of(StepIndex sent) const;
  /// The epoch in which a live member came; 0: it was there from the start.
  [[nodiscard]] std::uint32_t came_in(WorkerId member) const { return came_in_[index(member)]; }

  /// A member takes part in rounds sent after this step,
  [[nodiscard]] std::int64_t since(WorkerId member) const { return since_[index(member)]; }
  /// and by this one; kStays while it takes no leave, -1 once it was lost.
  [[nodiscard]] std::int64_t until(WorkerId member) const { return until_[index(member)]; }
  static constexpr std::int64_t kStays = std::numeric_limits<std::int64_t>::max();
  /// Live, and gone once the rounds that it takes part in have ended.
  [[nodiscard]] bool leaves(WorkerId member) const {
    return live(member) && until(member) != kStays;
  }
  /// It has gone so.
  [[nodiscard]] bool has_left(WorkerId member) const { return !live(member) && until(member) >= 0; }
  /// The last epoch that began all open rounds again.
  [[nodiscard]] std::uint32_t whole() const { return whole_; }

  /// The next epoch. REQUIRES: `member` is live, but for `with`.
  [[nodiscard]] Membership without(WorkerId member) const;
  [[nodiscard]] Membership with(WorkerId member, std::int64_t after) const;
  /// Rounds sent after `after` are without it. REQUIRES: it does not leave yet.
  [[nodiscard]] Membership leaving(WorkerId member, std::int64_t after) const;
  /// It leaves, and its rounds have ended: no round begins again. REQUIRES: leaves(member).
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
  std::uint32_t whole_;                 // the last epoch that held for all open rounds
  std::vector<Change> changes_;         // since then, in order
  std::vector<bool> live_;              // by member
  std::vector<std::int64_t> since_;     // by member: rounds sent after this step are its too
  std::vector<std::int64_t> until_;     // by member: up to those sent after this one
  std::vector<std::uint32_t> came_in_;  // by member
};

/// Payload of an EPOCH frame: the whole membership, so that one that was missed does not matter.
struct EpochNews {
  explicit EpochNews(Membership all) : membership(std::move(all)) {
    epoch.number = membership.number();
    epoch.live = membership.live();
  }
  Membership membership;
  Epoch epoch;                    // the same for people
  std::vector<SyncId> committed;  // rounds that somebody may not know to be committed

  [[nodiscard]] std::vector<std::byte> write() const;
  /// RETURNS: why the bytes are none of a run of `members`.
  [[nodiscard]] static Expected<EpochNews, std::string> read(std::span<const std::byte> bytes,
                                                             int members);
};

}  // namespace isthmus
