// SPDX-License-Identifier: Apache-2.0
// The meeting point of ranks that are processes of one machine: a seat for each rank in memory that
// all have mapped, and one word (rendezvous_word.h) that decides whether a collective takes place.
//
// A collective is one or several crossings. Before a crossing each rank writes data for the others
// into its own room; after it, and until its next one, it may read all rooms. Each seat has two
// rooms, used alternately, and no rank is two crossings ahead of another, so nothing that is still
// being read is overwritten, and no acknowledgement is needed. Only the rank itself accesses a
// caller's memory, so a call may end at any crossing, by an abort or at the deadline.
//
// The ranks first meet over another communicator, which then carries messages and the aborts of
// parent groups. A dead process holds no lock: the others reach their deadline, and its launcher
// ends the job. One thread drives it; any thread may call abort() and end_cause().
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "isthmus/runtime.h"
#include "transport/collectives/communicator_call.h"
#include "transport/collectives/core_contention.h"
#include "transport/collectives/shared_segment.h"
#include "transport/wire/rank_names.h"

namespace isthmus {

class SharedGroup {
 public:
  /// Size of a room, small enough for the rooms of some ranks to stay in the caches of their cores.
  static constexpr std::size_t kRoomBytes = std::size_t{256} << 10;

  /// Collective over `ranks`. THROWS: SystemError when not all ranks can map the same memory.
  SharedGroup(std::shared_ptr<Runtime> runtime, std::unique_ptr<Communicator> ranks,
              Duration deadline, RankNames names, SegmentCalls segments);
  /// A part of `parent`; `ranks` is split from its communicator. Collective over the ranks of
  /// `parent`.
  SharedGroup(std::shared_ptr<SharedGroup> parent, std::unique_ptr<Communicator> ranks,
              RankNames names);
  ~SharedGroup();
  SharedGroup(const SharedGroup&) = delete;
  SharedGroup& operator=(const SharedGroup&) = delete;

  [[nodiscard]] int rank() const { return rank_; }
  [[nodiscard]] int size() const { return names_.size(); }
  [[nodiscard]] std::string name_of(int rank) const { return names_.of(rank); }
  [[nodiscard]] const RankNames& names() const { return names_; }
  /// The communicator over which the same ranks have met.
  [[nodiscard]] Communicator& ranks() { return *ranks_; }

  /// This rank's room for the next crossing: kRoomBytes.
  [[nodiscard]] std::byte* own_room();
  /// The first crossing of a call: returns once all ranks have arrived with the same one. THROWS:
  /// CommunicatorError.
  void meet(const Call& call);
  /// Further crossings of the call.
  void cross(const Call& call);
  /// The content of `peer`'s room at the last crossing.
  [[nodiscard]] const std::byte* room_of(int peer) const;

  void abort(const std::string& cause) noexcept;
  /// Empty while the group lives.
  [[nodiscard]] std::string end_cause();
  [[noreturn]] void fail(const Call& call, const std::string& cause);

 private:
  static constexpr std::size_t kMostCause = 1000;

  struct Room {
    Call call;
    alignas(64) std::array<std::byte, kRoomBytes> bytes;
  };
  struct alignas(64) Seat {
    std::atomic<std::uint64_t> crossings;  // for the others' error messages, like `doing`
    std::atomic<Operation> doing;
    alignas(64) std::array<Room, 2> rooms;
  };
  enum CauseState : std::uint32_t { kNone = 0, kBeingWritten = 1, kWritten = 2 };
  struct Table {        // at the segment's begin; the seats follow
    std::int64_t mark;  // tells this segment from segments of that name on other machines
    alignas(64) std::atomic<std::uint32_t> arrivals;
    alignas(64) std::atomic<std::uint32_t> cause_state;
    std::array<char, kMostCause + 1> cause;
  };
  static_assert(std::atomic<std::uint32_t>::is_always_lock_free);
  static_assert(std::atomic<std::uint64_t>::is_always_lock_free);
  static_assert(std::atomic<Operation>::is_always_lock_free);

  void share_memory();
  [[nodiscard]] Table& table() const;
  [[nodiscard]] Seat& seat(int rank) const;
  [[nodiscard]] bool ended() const;  // this group or a parent group
  /// The cause according to this group or its parents; empty while all live.
  [[nodiscard]] std::string told_cause() const;
  void pass(const Call& call);
  /// RETURNS: whether all ranks have arrived.
  [[nodiscard]] bool await(std::uint32_t generation, const Call& call);
  void check_agreement(const Call& call);
  [[nodiscard]] std::string missing_ranks() const;
  [[noreturn]] void throw_cause(const Call& call);

  const std::shared_ptr<Runtime> runtime_;  // shared with all groups of the process
  const std::unique_ptr<Communicator> ranks_;
  const std::shared_ptr<SharedGroup> parent_;  // when it ends, this group ends
  const Duration deadline_;
  const RankNames names_;
  const int rank_;
  const SegmentCalls segments_;
  SharedSegment segment_;
  std::uint64_t crossings_ = 0;
  CoreContention contention_;
};

}  // namespace isthmus
