// SPDX-License-Identifier: Apache-2.0
// Merges (isthmus/merges.h) at one member of an exchange whose transport loses no frame. Every
// member's worker sends its offers to member 0, the coordinator, where a task decides
// (merge_pool.h), computes the mean and sends it to all. Owned by PeerExchange, whose task hands in
// the notes and the losses. The arithmetic is that of rounds (reduction.h): the mean in worker
// order, encoded once more unless the codec is sparse, in which case it travels as fp32; every
// worker, the coordinator's included, uses the decoded bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "isthmus/merges.h"
#include "isthmus/runtime.h"
#include "transport/exchange/merge_pool.h"
#include "transport/wire/merge_message.h"
#include "transport/wire/note_stream.h"

namespace isthmus {

class Merging final : public Merges {
 public:
  struct Parts {
    WorkerId self;
    int members = 1;
    std::uint64_t run_key = 0;
    Runtime& runtime;
    /// Sends a note of which `payload` bytes are encoded values. Any task.
    std::function<void(WorkerId to, std::span<const std::byte> bytes, std::uint64_t payload)> send;
    /// The worker's thread has waited from `begin` until now.
    std::function<void(TimePoint begin)> on_wait;
  };
  explicit Merging(Parts parts);
  /// Ends the coordinator's task.
  ~Merging() override;
  Merging(const Merging&) = delete;
  Merging& operator=(const Merging&) = delete;

  /// The worker takes part: at the coordinator this starts its task. Any number of calls.
  void begin();
  [[nodiscard]] bool begun() const { return begun_; }
  /// The worker takes no further part. Worker's thread.
  void leave();

  // By the task that takes in frames.
  /// RETURNS: false when the note is none of merges.
  [[nodiscard]] bool receive(WorkerId from, std::span<const std::byte> note);
  void lose(WorkerId peer, const std::string& why);
  /// This member can go on no more.
  void fail(const std::string& why);

  void offer(Offer offer) override;
  [[nodiscard]] std::vector<Merge> take() override;
  Duration wait(Duration patience) override;
  void stop_training() override { tell(MergeMessage::kStopped); }
  void finish() override { tell(MergeMessage::kFinished); }
  [[nodiscard]] bool ended() override;

 private:
  [[nodiscard]] bool coordinates() const { return parts_.self == WorkerId(0); }
  /// What `from` has said about itself. Under the queue's lock.
  void hear(WorkerId from, MergeMessage message);
  void tell(MergeMessage message);
  void send(WorkerId to, MergeMessage message, std::span<const std::byte> bytes,
            std::uint64_t payload);
  void take_message(WorkerId from, const NoteStream& message);
  void arrived(Merge merge);
  // The coordinator's task.
  void serve();
  [[nodiscard]] std::optional<PickedOffers> next_to_merge();
  void merge(const PickedOffers& picked);

  Parts parts_;
  std::unique_ptr<WaitQueue> queue_;
  bool begun_ = false;
  // One sender a destination: the coordinator's task, elsewhere the worker's thread.
  std::vector<std::uint32_t> streams_;
  std::vector<NoteStreamAssembler> from_;  // by sender; of the task that takes in frames
  std::vector<TimePoint> offered_;         // by fragment: the worker's last offer
  TimePoint begun_at_;
  // Under queue_'s lock:
  MergePool pool_;
  std::vector<Merge> arrived_;
  bool end_ = false;
  bool closing_ = false;
  std::optional<std::string> failure_;
  std::unique_ptr<Task> task_;
};

}  // namespace isthmus
