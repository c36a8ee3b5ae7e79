// SPDX-License-Identifier: Apache-2.0
// The meeting point of ranks that are threads of one process: a seat for each rank, a rendezvous
// for collectives, an inbox for messages, and one word that decides whether a collective takes
// place.
//
// A collective: every rank writes its call into its seat and enters; when all have, each rank may
// read all seats and the memory that they point to; leave() ends that, also in a group that has
// been aborted meanwhile. So no rank returns while another still accesses its memory. Small values
// are copied into the seats and need no leave(): each seat has two copies, used alternately, and no
// rank is two calls ahead of another.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "isthmus/runtime.h"
#include "transport/collectives/communicator_call.h"
#include "transport/collectives/core_contention.h"
#include "transport/wire/rank_names.h"

namespace isthmus {

/// Waits for a change of atomics: polls a few times, then sleeps.
class Gate {
 public:
  explicit Gate(Runtime& runtime) : clock_(runtime.clock()), queue_(runtime.make_wait_queue()) {}
  /// Blocks until `ready()`, for at most `patience`. `ready` may lock; it is called many times.
  /// RETURNS: the last value of `ready()`.
  bool await(const std::function<bool()>& ready, Duration patience);
  /// Call after each change that a waiting thread may need.
  void wake();

 private:
  const Clock& clock_;
  std::unique_ptr<WaitQueue> queue_;
  std::atomic<int> sleepers_{0};
  CoreContention contention_;
};

/// The arguments that a rank shows the others in a collective.
struct Posted {
  Call call;
  const void* input = nullptr;
  void* output = nullptr;
  std::span<const std::int64_t> send_counts;
  std::span<const std::int64_t> receive_counts;
};

class ThreadGroup {
 public:
  static constexpr std::size_t kInlineBytes = 4096;

  ThreadGroup(std::shared_ptr<Runtime> runtime, Duration deadline, RankNames names);

  [[nodiscard]] int size() const { return names_.size(); }
  [[nodiscard]] std::string name_of(int rank) const { return names_.of(rank); }
  [[nodiscard]] const std::shared_ptr<Runtime>& runtime() const { return runtime_; }

  /// Blocks until all ranks have entered with the same call. `copied`: at most kInlineBytes that
  /// the others can read in inlined(). THROWS: CommunicatorError at the deadline, for ranks in
  /// unlike calls, and once the group has ended; each of these ends the group.
  void enter(int rank, const Posted& posted, std::span<const std::byte> copied = {});
  /// What `peer` posted for the collective that `rank` is in.
  [[nodiscard]] const Posted& posted(int rank, int peer) const;
  [[nodiscard]] const std::byte* inlined(int rank, int peer) const;
  /// Blocks until no rank accesses the memory of the collective any more, without a deadline.
  void leave();

  /// `send` copies a message that nobody waits for yet, and returns at once; `receive` blocks until
  /// its message is here. THROWS: CommunicatorError as `enter`.
  void send(int rank, const Call& call, const void* data);
  void receive(int rank, const Call& call, void* data);

  /// The group of `rank` after a split of this one; `places`: its ranks' places in this group. Each
  /// of its ranks calls it once.
  [[nodiscard]] std::shared_ptr<ThreadGroup> child(int rank, int color,
                                                   const std::vector<int>& places);

  void abort(const std::string& cause) noexcept;
  /// Empty while the group lives.
  [[nodiscard]] std::string end_cause();
  /// Ends the group, and this call of `rank`. THROWS: CommunicatorError with the cause.
  [[noreturn]] void fail(int rank, const Call& call, const std::string& cause);
  /// No thread drives this rank any more.
  void go(int rank) { seat(rank).doing.store(Operation::kGone, std::memory_order_relaxed); }

 private:
  /// A message that arrived before its receiver.
  struct Parcel {
    int from;
    Call call;
    std::vector<std::byte> bytes;
  };
  /// A receiver that arrived before its message; on the receiver's stack.
  struct Wanted {
    const Call* call;
    void* data;
    std::atomic<bool> filled{false};
  };
  struct alignas(64) Seat {
    std::array<Posted, 2> posted;
    alignas(64) std::array<std::array<std::byte, kInlineBytes>, 2> inlined;
    alignas(64) std::uint64_t entered = 0;      // number of collectives; of this rank
    std::atomic<std::uint64_t> collectives{0};  // the same, for other ranks' error messages
    std::atomic<Operation> doing{Operation::kNothing};
    std::unique_ptr<Gate> gate;  // for messages
    std::mutex mutex;
    std::deque<Parcel> parcels;  // under mutex
    Wanted* wanted = nullptr;    // under mutex
  };
  struct Child {
    std::shared_ptr<ThreadGroup> group;  // until all its ranks have fetched it
    int missing;
  };

  [[nodiscard]] Seat& seat(int rank) { return seats_[static_cast<std::size_t>(rank)]; }
  [[nodiscard]] const Seat& seat(int rank) const { return seats_[static_cast<std::size_t>(rank)]; }
  [[nodiscard]] bool ended() const;
  [[noreturn]] void throw_cause(int rank, const Call& call);
  void check_agreement(int rank);
  [[nodiscard]] std::string missing_ranks(std::uint64_t entered) const;
  /// Ends the group when a message and its receiver do not agree.
  void check_message(int rank, const Call& call, const Call& sent, int from, const Call& wanted,
                     int to);
  /// RETURNS: whether the message had arrived.
  [[nodiscard]] bool take_parcel(int rank, const Call& call, void* data);

  const std::shared_ptr<Runtime> runtime_;  // shared with all groups split from this one
  const Duration deadline_;
  const RankNames names_;
  std::vector<Seat> seats_;
  Gate gate_;                                             // for collectives
  alignas(64) std::atomic<std::uint32_t> arrivals_{0};    // generation | ended | ranks inside
  alignas(64) std::atomic<std::uint32_t> departures_{0};  // generation | ranks that have left
  std::mutex mutex_;
  std::string cause_;                                        // under mutex_
  std::vector<std::weak_ptr<ThreadGroup>> children_;         // under mutex_
  std::map<std::pair<std::uint64_t, int>, Child> expected_;  // under mutex_, by split and color
};

}  // namespace isthmus
