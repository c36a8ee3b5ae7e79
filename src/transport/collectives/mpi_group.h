// SPDX-License-Identifier: Apache-2.0
// One rank's end of a group of MPI processes: waits with a deadline, the meeting before a
// collective, messages, and the control messages that carry an abort to the others.
//
// A call can end with an error in meet(), which sends at most 4 KiB from the group's memory. After
// it all ranks are in the same call and transfer the callers' memory, which only the deadline
// interrupts. So a request that refers to memory of an ended call stays behind only after a
// deadline in the transfer, if MPI does not end it within a second of its cancellation.
//
// Every call that uses MPI also THROWS: SystemError with MPI's error text.
#pragma once

#include <mpi.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "isthmus/runtime.h"
#include "transport/collectives/communicator_call.h"
#include "transport/collectives/core_contention.h"
#include "transport/wire/rank_names.h"

namespace isthmus {

class MpiGroup {
 public:
  static constexpr std::size_t kInlineBytes = 4096;

  /// Takes ownership of `comm`.
  MpiGroup(std::shared_ptr<Runtime> runtime, std::shared_ptr<MpiGroup> parent, MPI_Comm comm,
           Duration deadline, RankNames names);
  /// Waits until its messages are out, for at most the deadline. The MPI communicator of a group
  /// that has ended, or has unfinished requests, is not freed.
  ~MpiGroup();
  MpiGroup(const MpiGroup&) = delete;
  MpiGroup& operator=(const MpiGroup&) = delete;

  [[nodiscard]] int rank() const { return rank_; }
  [[nodiscard]] int size() const { return names_.size(); }
  [[nodiscard]] std::string name_of(int rank) const { return names_.of(rank); }
  [[nodiscard]] const std::shared_ptr<Runtime>& runtime() const { return runtime_; }
  [[nodiscard]] Duration deadline() const { return deadline_; }
  [[nodiscard]] MPI_Comm comm() const { return comm_; }
  [[nodiscard]] const RankNames& names() const { return names_; }

  /// Returns once all ranks have arrived with the same call. `copied`: at most kInlineBytes, which
  /// the others can read in inlined() until the next meeting. THROWS: CommunicatorError when the
  /// group has ended, at the deadline, or when a rank is in another call; it ends the group.
  void meet(const Call& call, std::span<const std::byte> copied = {});
  [[nodiscard]] const std::byte* inlined(int peer) const;

  /// Requests of the current collective; the memory is the caller's, valid until wait_all().
  void post_send(const void* data, std::size_t bytes, int to);
  void post_receive(void* data, std::size_t bytes, int from);
  /// Wait for the first `count` requests posted since the last wait, or for all. THROW:
  /// CommunicatorError at the deadline, after cancelling the rest.
  void wait_all(const Call& call) { wait_first(call, requests_.size()); }
  void wait_first(const Call& call, std::size_t count);
  [[nodiscard]] std::size_t posted() const { return requests_.size(); }

  /// Sends call.count values to rank call.root. Copies `data` and does not wait for the receiver: a
  /// task keeps large messages moving. THROWS: CommunicatorError when the group has ended.
  void send(const Call& call, const void* data);
  /// Blocks for the message of rank call.root with call.tag, which must have the same count and
  /// type. THROWS: CommunicatorError when the group has ended or ends, or at the deadline.
  void receive(const Call& call, void* data);

  /// Ends the group on all ranks; the first cause, cut to 1,000 bytes, stays. Does not wait.
  void abort(const std::string& cause) noexcept;
  /// Empty while the group lives.
  [[nodiscard]] std::string end_cause();
  /// Ends the group, and this call. THROWS: CommunicatorError with the cause.
  [[noreturn]] void fail(const Call& call, const std::string& cause);

 private:
  // One MPI communicator a group; the tag tells the kind of message.
  enum Tag : int { kControl = 1, kMeeting = 2, kValues = 3, kFirstMessage = 16 };
  static constexpr std::size_t kMostBytes = std::size_t{1} << 30;  // a request: MPI counts in int

  struct Packet {  // a meeting's message, or the head of one rank's message to another
    Call call;
    std::byte bytes[kInlineBytes];
  };
  struct Outgoing {  // a message whose values were copied
    std::vector<std::byte> bytes;
    MPI_Request request = MPI_REQUEST_NULL;
  };

  /// Polls `done` (under mpi_mutex) until it is true. RETURNS: kEnded if control messages are read
  /// and the group has ended, kLate at the deadline.
  enum class Waited { kDone, kLate, kEnded };
  Waited wait_until(const std::function<bool()>& done, bool hear);
  void hear_control();  // under mpi_mutex
  [[nodiscard]] std::string cause();
  void throw_if_ended(const Call& call);
  void post_out(std::vector<std::byte> bytes, int to, int tag);
  [[nodiscard]] bool all_out();  // under mpi_mutex
  void keep_moving();
  void call_back(std::vector<MPI_Request>& requests);
  void check_agreement(const Call& call);
  [[nodiscard]] std::string waited_text(const Call& call) const;
  void bury();

  const std::shared_ptr<Runtime> runtime_;  // shared with all groups of the process
  const std::shared_ptr<MpiGroup> parent_;  // when it ends, this group ends
  const MPI_Comm comm_;
  const Duration deadline_;
  const RankNames names_;
  int rank_ = 0;
  CoreContention contention_;
  bool left_behind_ = false;  // unfinished requests refer to this group's memory
  std::vector<MPI_Request> requests_;
  // Of each rank, its packet of the last meeting (this rank's: the sent one); then the head of the
  // message being received.
  std::vector<Packet> packets_;
  std::vector<MPI_Request> meeting_;  // receives, then sends, without this rank
  std::mutex mutex_;
  std::string cause_;             // under mutex_
  std::list<Outgoing> outgoing_;  // under mpi_mutex
  std::list<Outgoing> control_;   // under mpi_mutex
  std::unique_ptr<WaitQueue> moving_;
  bool closing_ = false;  // under moving_'s lock
  bool sending_ = false;  // under moving_'s lock
  std::unique_ptr<Task> mover_;
};

}  // namespace isthmus
