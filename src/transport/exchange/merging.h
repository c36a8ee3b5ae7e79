// SPDX-License-Identifier: Apache-2.0
// Merges (isthmus/merges.h) at one member of an exchange: its worker's offers go to the coordinator
// (merge_server.h), which is member 0 of a process or simulation, or a hub. Owned by PeerExchange,
// whose task hands in notes and losses.
//
// A hub may be lost and come back. The worker trains on meanwhile; afterwards it says again which
// merges it has, what it has said about itself, and what it has offered that no merge holds.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "isthmus/merges.h"
#include "isthmus/runtime.h"
#include "transport/exchange/merge_server.h"
#include "transport/wire/merge_message.h"
#include "transport/wire/merge_notes.h"

namespace isthmus {

class Merging final : public Merges {
 public:
  struct Parts {
    WorkerId self;
    int members = 1;
    WorkerId coordinator{0};        // a hub: after the members
    MergeServer* server = nullptr;  // the coordinator, if this member is; borrowed
    Runtime& runtime;
    /// Sends a note to the coordinator of which `payload` bytes are encoded values. Any task.
    std::function<void(std::span<const std::byte> note, std::uint64_t payload)> send;
    /// The worker of a run with a hub takes part from now on. May be empty.
    std::function<void()> on_follow = {};
    /// The worker's thread has waited from `begin` until now.
    std::function<void(TimePoint begin)> on_wait;
  };
  explicit Merging(Parts parts);
  Merging(const Merging&) = delete;
  Merging& operator=(const Merging&) = delete;

  /// The worker takes part: at the coordinator this starts its task. Any number of calls.
  void begin();
  /// The worker takes no further part. Worker's thread.
  void leave();

  // By the task that takes in frames.
  /// RETURNS: false when the note is none of merges.
  [[nodiscard]] bool receive(WorkerId from, std::span<const std::byte> note);
  void lose(WorkerId peer, const std::string& why);
  /// The hub's next process knows this run.
  void tell_again();

  // Any task.
  /// This member can go on no more.
  void fail(const std::string& why);
  /// What failed was of an earlier process of this member.
  void revive();
  /// The next merge, or the end of all: from the coordinator of this process.
  void arrived(Merge merge);
  void end();

  void follow(std::int64_t last) override;
  void offer(Offer offer) override;
  [[nodiscard]] std::vector<Merge> take() override;
  Duration wait(Duration patience) override;
  void stop_training() override { tell(MergeMessage::kStopped); }
  void finish() override { tell(MergeMessage::kFinished); }
  [[nodiscard]] bool ended() override;

 private:
  [[nodiscard]] bool has_hub() const { return parts_.coordinator.value() >= parts_.members; }
  void tell(MergeMessage message);
  void send(MergeMessage message, std::span<const std::byte> bytes, std::uint64_t payload);
  void take_message(const NoteStream& message);
  void say_again();

  /// An offer to a hub that no merge holds, as it was sent.
  struct Unmerged {
    StepIndex sent;
    std::vector<std::byte> message;
    std::uint64_t payload = 0;
  };

  Parts parts_;
  std::unique_ptr<WaitQueue> queue_;
  bool begun_ = false;
  MergeNoteAssembler from_;  // of the coordinator; of the task that takes in frames
  // Of the worker's thread:
  std::uint32_t streams_ = 0;       // sent
  std::vector<TimePoint> offered_;  // by fragment: the worker's last offer
  TimePoint begun_at_;
  bool follows_ = false;
  std::vector<MergeMessage> told_;           // to a hub
  std::map<FragmentId, Unmerged> unmerged_;  // of a run with a hub
  // Under queue_'s lock:
  std::int64_t last_ = 0;  // of a run with a hub: the last merge that is here
  std::vector<Merge> arrived_;
  bool end_ = false;
  bool again_ = false;  // all is to be said again
  std::optional<std::string> failure_;
};

}  // namespace isthmus
