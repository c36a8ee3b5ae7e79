// SPDX-License-Identifier: Apache-2.0
// The coordinator's side of merges (isthmus/merges.h): a task takes the members' offers, decides
// which are merged when (merge_pool.h), computes the mean and sends it to all. The arithmetic is
// that of rounds (reduction.h): the mean in worker order, encoded once more unless the codec is
// sparse, in which case it travels as fp32; every worker uses the decoded bytes.
//
// Without a history the coordinator is a worker of a process or simulation whose members lose no
// message: every member gets every merge. With a history it is a hub, and members and the hub come
// and go: a member says which merges it has (FOLLOW) and gets the later ones, from the disk where
// it is behind. What it offers again is merged once. Owned by PeerExchange, whose task hands in
// notes, losses and memberships.
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "isthmus/merges.h"
#include "isthmus/runtime.h"
#include "transport/exchange/merges/merge_history.h"
#include "transport/exchange/merges/merge_pool.h"
#include "transport/wire/merge_message.h"
#include "transport/wire/merge_notes.h"

namespace isthmus {

class MergeServer {
 public:
  struct Parts {
    WorkerId self;  // a hub: after the members
    int members = 1;
    std::uint64_t run_key = 0;
    Runtime& runtime;
    MergeHistory* history = nullptr;  // borrowed; null: not a hub
    /// Sends a note of which `payload` bytes are encoded values. Any task.
    std::function<void(WorkerId to, std::span<const std::byte> note, std::uint64_t payload)> send;
    /// For the worker of this process: the next merge; no merge follows. Empty at a hub.
    std::function<void(Merge)> on_merge = {};
    std::function<void()> on_end = {};
    /// The server can go on no more.
    std::function<void(const std::exception_ptr&)> on_failure;
  };
  /// At a hub: goes on after the last merge of the history. `live`: whether each member is in the
  /// run. THROWS: SystemError for a damaged history.
  MergeServer(Parts parts, const std::vector<bool>& live);
  /// Ends the task.
  ~MergeServer();
  MergeServer(const MergeServer&) = delete;
  MergeServer& operator=(const MergeServer&) = delete;

  /// Starts the task. Any number of calls.
  void begin();
  [[nodiscard]] bool is_hub() const { return parts_.history != nullptr; }

  // By the task that takes in frames.
  /// RETURNS: false when the note is none of merges.
  [[nodiscard]] bool receive(WorkerId from, std::span<const std::byte> note);
  /// The member's process is lost, or another one has taken its place: nothing is sent to it until
  /// it follows again.
  void lose(WorkerId member);

  // Any task.
  void take(WorkerId from, Offer offer);
  /// What the worker has said about itself.
  void hear(WorkerId from, MergeMessage message);
  /// The member is in the run no more. Its offers are merged like any others.
  void leave(WorkerId member);
  /// The member is in the run again, as another process: it is waited for from its first offer on.
  void come_back(WorkerId member);
  /// At a hub: a run begins, with an empty history. Blocks while a merge is being made.
  void begin_anew();

 private:
  struct Follower {
    bool follows = false;
    std::int64_t has = 0;  // every merge up to this one has been sent
    bool ended = false;    // has been told so
    std::uint32_t streams = 0;
  };
  struct Next {
    std::optional<PickedOffers> picked;
    std::optional<WorkerId> behind;  // is to get a merge from the history
    bool end = false;                // the members are to hear that no merge follows
    bool over = false;
  };

  void take_message(WorkerId from, const NoteStream& message);
  void fail(const std::string& why);
  void fail(const std::exception_ptr& failure);
  /// Under the queue's lock. RETURNS: what is wrong.
  [[nodiscard]] std::string follow(WorkerId from, std::int64_t last);
  [[nodiscard]] bool take_locked(WorkerId from, Offer& offer);
  [[nodiscard]] Next next_locked();
  // The task.
  void serve();
  [[nodiscard]] Next await_next();
  void merge(const PickedOffers& picked);
  void give_from_history(WorkerId to);
  void tell_end();
  void send(WorkerId to, MergeMessage message, std::span<const std::byte> bytes,
            std::uint64_t payload);

  Parts parts_;
  std::unique_ptr<WaitQueue> queue_;
  std::vector<MergeNoteAssembler> from_;  // by member; of the task that takes in frames
  // Under queue_'s lock:
  MergePool pool_;
  std::vector<Follower> followers_;                              // by member
  std::map<std::pair<WorkerId, FragmentId>, StepIndex> merged_;  // the latest offer in a merge
  std::vector<std::pair<WorkerId, Offer>> early_;  // of members whose former offer is merged first
  std::exception_ptr failure_;
  bool busy_ = false;  // the task makes or sends something
  bool closing_ = false;
  std::unique_ptr<Task> task_;
};

}  // namespace isthmus
