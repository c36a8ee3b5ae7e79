// SPDX-License-Identifier: Apache-2.0
// The two ends of one directed link: frames numbered from 0 as they go, which is the order of
// FrameQueue, spread over parallel connections, put back in order, acknowledged when the receiver's
// owner has taken them. What is not acknowledged is kept, counts against the receiver's window and
// is sent again when its connection breaks. Pure state; the caller brings the bytes across. One
// task.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <set>
#include <vector>

#include "transport/links/frame_queue.h"
#include "transport/wire/transport.h"

namespace isthmus {

/// What a frame counts against a window: its bytes and what keeping track of it takes.
[[nodiscard]] inline std::size_t link_charge(std::size_t frame_bytes) { return frame_bytes + 256; }

/// Frames on their way to one peer.
class LinkSender {
 public:
  struct Item {
    std::uint64_t number = 0;
    FrameBytes frame;
  };

  void submit(FrameBytes frame) { waiting_.push(std::move(frame)); }
  /// Bytes that may be unacknowledged, as the receiver announced; 0 until it has.
  void set_window(std::uint64_t bytes) { window_ = bytes; }
  /// The frame that may go now, or null: nothing is waiting, or it has to wait for the receiver.
  [[nodiscard]] const FrameBytes* next() const;
  /// Number of `next()`. REQUIRES: next() != nullptr.
  [[nodiscard]] std::uint64_t next_number() const;
  /// `next()` went out over `stream`.
  void sent(int stream);
  /// The receiver has taken all frames below `number`. RETURNS: false for a number never sent.
  [[nodiscard]] bool acknowledge(std::uint64_t number);
  /// A connection broke: what it carried and is not acknowledged goes again, first.
  void stream_lost(int stream);
  /// The peer is gone.
  void clear();

  /// Frames numbered so far: sent at least once.
  [[nodiscard]] std::uint64_t numbered() const { return first_ + in_flight_.size(); }
  [[nodiscard]] std::uint64_t acknowledged() const { return first_; }
  /// True when every frame has been given to a connection that is still there.
  [[nodiscard]] bool all_sent() const { return waiting_.empty() && again_.empty(); }
  [[nodiscard]] std::size_t bytes_in_flight() const { return bytes_in_flight_; }
  /// Something waits to be sent another time, after its connection has broken.
  [[nodiscard]] bool repeats() const { return !again_.empty(); }

 private:
  struct InFlight {
    FrameBytes frame;
    int stream = 0;
  };
  FrameQueue waiting_;              // for their number
  std::deque<InFlight> in_flight_;  // numbers first_, first_ + 1, ...
  std::uint64_t first_ = 0;
  std::set<std::uint64_t> again_;
  std::uint64_t window_ = 0;
  std::size_t bytes_in_flight_ = 0;
};

/// Frames coming from one peer.
class LinkReceiver {
 public:
  explicit LinkReceiver(std::size_t window) : window_(window) {}

  enum class Verdict { kTaken, kRepeated, kBeyondWindow };
  /// Takes frame `number`. Appends to `in_order` what can now be handed out.
  [[nodiscard]] Verdict receive(std::uint64_t number, FrameBytes frame,
                                std::vector<FrameBytes>& in_order);
  /// The owner took the oldest frame handed out, of so many bytes.
  void taken(std::size_t frame_bytes);
  /// The owner will take nothing more: everything handed out counts as taken.
  void drop_held();
  /// Frames taken, to be acknowledged.
  [[nodiscard]] std::uint64_t taken_frames() const { return taken_; }
  /// True when so much has been taken since the last acknowledgement that the sender should know.
  [[nodiscard]] bool owes_acknowledgement() const { return since_ack_ >= window_ / 8; }
  void acknowledged() { since_ack_ = 0; }
  /// All frames below this have come.
  [[nodiscard]] std::uint64_t arrived() const { return next_; }
  [[nodiscard]] std::size_t bytes_held() const { return held_; }

 private:
  std::size_t window_;
  std::map<std::uint64_t, FrameBytes> early_;  // came before one they follow
  std::uint64_t next_ = 0;
  std::uint64_t taken_ = 0;
  std::size_t held_ = 0;  // charges of what has come and is not taken
  std::size_t since_ack_ = 0;
};

}  // namespace isthmus
