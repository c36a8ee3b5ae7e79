// SPDX-License-Identifier: Apache-2.0
// A wide-area network in user space: a TUN device in each of several network namespaces, and one
// task that acts as the network between them, so that the kernel's own TCP runs over declared
// links. It needs no kernel modules (netem is often missing). A packet passes these stages:
//
//   node's up line  ->  the pair's line  ->  size limit and loss  ->  delay  ->
//                                                                        other node's down line
//
// A line is a token bucket with a tail-drop queue, or none. Only the time at which a packet is read
// is measured; each later event of the packet is computed from when the last one was due. A late
// task therefore delays a packet once (WanLateness), and slows the first line down only if a read
// is late by more than `burst_us`. Loss is a function of (seed, node, number of the packet).
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <queue>
#include <string>
#include <vector>

#include "core/base/rng.h"
#include "isthmus/runtime.h"
#include "sim/tun_device.h"

namespace isthmus {

/// One direction. Rate 0: no line, packets pass at once. A packet that does not fit into the queue
/// beside the bytes that wait is dropped: with a rate, a queue below one packet drops all packets.
struct WanLine {
  double mbit = 0;
  std::int64_t queue_bytes = 0;  // with the packet itself; see bandwidth_delay_product
};
/// Bytes in flight on a line in a round trip, at least 32 packets.
[[nodiscard]] std::int64_t bandwidth_delay_product(double mbit, double rtt_ms);

struct WanNode {
  /// For the caller alone. A packet goes to the node whose place, from 1, is the last number of the
  /// packet's destination address, so a node's address must end in its place.
  std::string address;
  FileDescriptor packets;  // of its TUN device
  WanLine up = {}, down = {};
};
/// The path from one node to another, in that direction.
struct WanPath {
  WanLine line = {};
  double delay_ms = 0;
  double jitter_ms = 0;     // extra delay of a packet, uniform up to this, in order
  double loss = 0;          // share of the packets
  std::size_t largest = 0;  // largest packet that passes; larger ones vanish silently; 0: any
};
struct WanOptions {
  std::uint64_t seed = 1;
  int tick_us = 200;     // events wait for the next tick: a timer for each packet costs half a core
  int burst_us = 1000;   // depth of the first line's bucket: how much a late read may catch up
  bool realtime = true;  // runs before every ordinary process
};

/// Of one node.
struct WanCounters {
  std::uint64_t sent = 0, sent_bytes = 0;
  std::uint64_t dropped_up = 0, lost = 0, dropped_down = 0, too_large = 0;
  std::uint64_t delivered = 0, delivered_bytes = 0;
};
/// Of this task's own lateness, in events.
struct WanLateness {
  double mean_us = 0;
  std::int64_t max_us = 0;
  double over_1ms = 0, over_10ms = 0;  // shares
};

class Wan {
 public:
  /// `paths`: from node i to node j at i * nodes + j. Borrows `clock`.
  Wan(const Clock& clock, std::vector<WanNode> nodes, std::vector<WanPath> paths,
      const WanOptions& options);

  /// Carries packets. Blocks until `stop` returns true; `stop` is called at least every 100 ms.
  void run(const std::function<bool()>& stop);

  [[nodiscard]] const WanCounters& counters(std::size_t node) const { return counters_[node]; }
  [[nodiscard]] WanLateness lateness() const;
  /// Packets for no node, such as IPv6's own messages; they are dropped.
  [[nodiscard]] std::uint64_t foreign() const { return foreign_; }
  /// Whether the system has granted WanOptions::realtime.
  [[nodiscard]] bool realtime() const { return realtime_; }

 private:
  using Nanoseconds = std::int64_t;

  /// A token bucket with a tail-drop queue.
  class Line {
   public:
    Line(const WanLine& line, Nanoseconds burst);
    /// RETURNS: when the packet's last bit has been sent; nothing when the queue is full.
    std::optional<Nanoseconds> pass(Nanoseconds at, std::size_t bytes);

   private:
    double nanoseconds_per_byte_;
    std::int64_t queue_bytes_;
    Nanoseconds burst_;
    Nanoseconds free_at_ = 0;
  };
  struct Path {
    Line line;
    WanPath its;
    Nanoseconds last_at = 0;  // when its last packet reaches the other node's line
  };
  struct Event {
    Nanoseconds at = 0;
    std::uint64_t order = 0;  // among events of one time
    bool arrives = false;     // has passed the down line; false: reaches it
    std::size_t to = 0;
    std::vector<char> packet;
  };
  struct Later {
    bool operator()(const Event& a, const Event& b) const {
      return a.at != b.at ? a.at > b.at : a.order > b.order;
    }
  };
  [[nodiscard]] Nanoseconds now() const { return clock_.now().time_since_epoch().count(); }
  void read_all(std::size_t from);
  [[nodiscard]] std::optional<std::size_t> destination(const char* packet, std::size_t size) const;
  void take(std::size_t from, std::size_t to, std::vector<char> packet);
  void handle_next();
  void note_late(Nanoseconds late);

  const Clock& clock_;
  const WanOptions options_;
  const Rng rng_;
  std::vector<WanNode> nodes_;
  std::vector<Path> paths_;
  std::vector<Line> up_, down_;
  std::vector<WanCounters> counters_;
  std::priority_queue<Event, std::vector<Event>, Later> events_;
  std::uint64_t order_ = 0;
  bool realtime_ = false;
  std::uint64_t foreign_ = 0;
  std::uint64_t handled_ = 0, late_1ms_ = 0, late_10ms_ = 0;
  double late_sum_us_ = 0;
  Nanoseconds late_max_ = 0;
};

}  // namespace isthmus
