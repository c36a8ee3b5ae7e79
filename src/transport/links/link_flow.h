// SPDX-License-Identifier: Apache-2.0
// The two ends of one directed link. The sender numbers frames from 0, in the order of FrameQueue,
// and spreads them over parallel connections; the receiver puts them in order again, and
// acknowledges them when its owner has taken them. An unacknowledged frame is kept, counts against
// the receiver's window and is retransmitted when its connection breaks. Pure state; the caller
// transports the bytes. One task.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <set>
#include <vector>

#include "transport/links/frame_queue.h"
#include "transport/wire/transport.h"

namespace isthmus {

/// A frame's charge against a window: its bytes and the memory for its bookkeeping.
[[nodiscard]] inline std::size_t link_charge(std::size_t frame_bytes) { return frame_bytes + 256; }

/// Under way to a near peer, at most. A window has to hold what a link delivers in a round trip,
/// which of a near one (MemberOptions::far, 1 ms) is 4 MiB at 33 Gbit/s; more would only lie in
/// memory, and keep what the frames were sent from. Both directions of a link hold 8 MiB.
inline constexpr std::size_t kNearWindow = std::size_t{4} << 20;
/// Transport::most_unused of a near peer. Contributions that the peer has taken, but cannot use
/// before those of a third member are there, count too.
inline constexpr std::size_t kNearUnused = kNearWindow / 2;
/// Charges after which an acknowledgement is owed: what a sender that keeps to a small window can
/// do without.
[[nodiscard]] inline std::size_t acknowledged_at_once(std::size_t window) {
  return std::min(window, kNearWindow) / 8;
}
/// A smaller frame is a word of the protocol. A word to a peer (DONE, COMMIT) ends what was taken
/// from that peer: a round, of which the peer keeps what it was sent from as long as frames of it
/// are not acknowledged. So the word has them acknowledged at once.
inline constexpr std::size_t kLeastValues = std::size_t{4} << 10;

/// Frames in flight to one peer.
class LinkSender {
 public:
  struct Item {
    std::uint64_t number = 0;
    FrameBytes frame;
  };

  void submit(FrameBytes frame) { waiting_.push(std::move(frame)); }
  /// The most unacknowledged bytes, as announced by the receiver; 0 before that.
  void set_window(std::uint64_t bytes) { window_ = bytes; }
  /// Keeps to this many, if the window is larger.
  void keep_to(std::uint64_t bytes) { own_bound_ = bytes; }
  /// The frame to send now; null: no frame waits, or the window is full.
  [[nodiscard]] const FrameBytes* next() const;
  /// Number of `next()`. REQUIRES: next() != nullptr.
  [[nodiscard]] std::uint64_t next_number() const;
  /// `next()` went out over `stream`.
  void sent(int stream);
  /// The receiver has taken all frames below `number`. RETURNS: false for a number never sent.
  [[nodiscard]] bool acknowledge(std::uint64_t number);
  /// A connection broke: its unacknowledged frames are retransmitted first.
  void stream_lost(int stream);
  /// The peer is lost.
  void clear();

  /// Frames numbered so far: each was sent at least once.
  [[nodiscard]] std::uint64_t numbered() const { return first_ + in_flight_.size(); }
  [[nodiscard]] std::uint64_t acknowledged() const { return first_; }
  /// True when every frame was given to a connection that is still open.
  [[nodiscard]] bool all_sent() const { return waiting_.empty() && again_.empty(); }
  [[nodiscard]] std::size_t bytes_in_flight() const { return bytes_in_flight_; }
  /// Whether frames wait for a retransmission after their connection broke.
  [[nodiscard]] bool repeats() const { return !again_.empty(); }

 private:
  struct InFlight {
    FrameBytes frame;
    int stream = 0;
  };
  FrameQueue waiting_;              // not numbered yet
  std::deque<InFlight> in_flight_;  // numbers first_, first_ + 1, ...
  std::uint64_t first_ = 0;
  std::set<std::uint64_t> again_;
  std::uint64_t window_ = 0;
  std::uint64_t own_bound_ = ~std::uint64_t{0};
  std::size_t bytes_in_flight_ = 0;
};

/// Frames from one peer.
class LinkReceiver {
 public:
  explicit LinkReceiver(std::size_t window) : window_(window) {}

  enum class Verdict { kTaken, kRepeated, kBeyondWindow };
  /// Takes frame `number`. Appends to `in_order` the frames that can be handed out now.
  [[nodiscard]] Verdict receive(std::uint64_t number, FrameBytes frame,
                                std::vector<FrameBytes>& in_order);
  /// The owner took the oldest frame handed out; `frame_bytes`: its size.
  void taken(std::size_t frame_bytes);
  /// The owner takes no more frames: everything handed out counts as taken.
  void drop_held();
  /// Number of frames taken, for the acknowledgement.
  [[nodiscard]] std::uint64_t taken_frames() const { return taken_; }
  /// True when acknowledged_at_once() was taken since the last acknowledgement.
  [[nodiscard]] bool owes_acknowledgement() const {
    return since_ack_ >= acknowledged_at_once(window_);
  }
  /// True when the next word, to any member, is to have the peer told what was taken.
  [[nodiscard]] bool owes_with_a_word() const { return since_ack_ >= kLeastValues; }
  void acknowledged() { since_ack_ = 0; }
  /// All frames below this number have arrived.
  [[nodiscard]] std::uint64_t arrived() const { return next_; }
  [[nodiscard]] std::size_t bytes_held() const { return held_; }

 private:
  std::size_t window_;
  std::map<std::uint64_t, FrameBytes> early_;  // arrived before an earlier frame
  std::uint64_t next_ = 0;
  std::uint64_t taken_ = 0;
  std::size_t held_ = 0;  // charges of frames arrived and not taken
  std::size_t since_ack_ = 0;
};

}  // namespace isthmus
