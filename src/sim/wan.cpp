// SPDX-License-Identifier: Apache-2.0
#include "sim/wan.h"

#include <poll.h>
#include <sched.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <ctime>
#include <limits>
#include <utility>

#include "core/base/check.h"

namespace isthmus {

std::int64_t bandwidth_delay_product(double mbit, double rtt_ms) {
  return std::max(std::int64_t{32} * kMtu, static_cast<std::int64_t>(mbit * 1e3 / 8 * rtt_ms));
}

Wan::Line::Line(const WanLine& line, Nanoseconds burst)
    : nanoseconds_per_byte_(line.mbit > 0 ? 8e3 / line.mbit : 0),
      queue_bytes_(line.queue_bytes),
      burst_(burst) {}

std::optional<Wan::Nanoseconds> Wan::Line::pass(Nanoseconds at, std::size_t bytes) {
  if (nanoseconds_per_byte_ == 0) return at;
  const Nanoseconds begin = std::max(at - burst_, free_at_);
  const double waiting = static_cast<double>(begin - at) / nanoseconds_per_byte_;
  if (waiting + static_cast<double>(bytes) > static_cast<double>(queue_bytes_)) return {};
  free_at_ = begin + static_cast<Nanoseconds>(static_cast<double>(bytes) * nanoseconds_per_byte_);
  return std::max(at, free_at_);
}

Wan::Wan(const Clock& clock, std::vector<WanNode> nodes, std::vector<WanPath> paths,
         const WanOptions& options)
    : clock_(clock),
      options_(options),
      rng_(options.seed, Stream::kSim),
      nodes_(std::move(nodes)),
      counters_(nodes_.size()) {
  ISTHMUS_CHECK(paths.size() == nodes_.size() * nodes_.size(), paths.size(), nodes_.size());
  const Nanoseconds burst = options.burst_us * 1000;
  for (const WanNode& node : nodes_) {
    up_.emplace_back(node.up, burst);
    down_.emplace_back(node.down, 0);
  }
  for (std::size_t i = 0; i < paths.size(); ++i) {
    const bool first = nodes_[i / nodes_.size()].up.mbit == 0;
    paths_.push_back({Line(paths[i].line, first ? burst : 0), paths[i]});
  }
}

void Wan::run(const std::function<bool()>& stop) {
  const sched_param lowest{.sched_priority = 1};
  realtime_ = options_.realtime && ::sched_setscheduler(0, SCHED_FIFO, &lowest) == 0;
  ::prctl(PR_SET_TIMERSLACK, 1000);
  std::vector<pollfd> readable;
  for (const WanNode& node : nodes_) readable.push_back({node.packets.get(), POLLIN, 0});
  constexpr Nanoseconds kLookForStop = 100'000'000;
  while (!stop()) {
    for (std::size_t from = 0; from < nodes_.size(); ++from) read_all(from);
    while (!events_.empty() && events_.top().at <= now()) handle_next();
    // With packets under way the next tick looks at everything anyway.
    const Nanoseconds wait = events_.empty() ? kLookForStop : options_.tick_us * 1000;
    const timespec timeout{.tv_sec = 0, .tv_nsec = wait};
    ::ppoll(readable.data(), events_.empty() ? readable.size() : 0, &timeout, nullptr);
  }
}

void Wan::read_all(std::size_t from) {
  std::array<char, kMtu + 100> bytes;
  constexpr int kAtATime = 256;  // then the others have their turn
  for (int i = 0; i < kAtATime; ++i) {
    const ssize_t size = ::read(nodes_[from].packets.get(), bytes.data(), bytes.size());
    if (size <= 0) return;
    const auto to = destination(bytes.data(), static_cast<std::size_t>(size));
    if (!to) {
      ++foreign_;
      continue;
    }
    take(from, *to, std::vector<char>(bytes.data(), bytes.data() + size));
  }
}

// The node an IPv4 packet is for; nothing for others, such as IPv6's own messages.
std::optional<std::size_t> Wan::destination(const char* packet, std::size_t size) const {
  constexpr std::size_t kHeader = 20;
  constexpr std::size_t kLastOfAddress = 19;
  if (size < kHeader || (packet[0] >> 4) != 4) return {};
  const std::size_t number = static_cast<unsigned char>(packet[kLastOfAddress]);
  if (number < 1 || number > nodes_.size()) return {};
  return number - 1;
}

void Wan::take(std::size_t from, std::size_t to, std::vector<char> packet) {
  WanCounters& count = counters_[from];
  Path& path = paths_[from * nodes_.size() + to];
  const std::uint64_t number = count.sent++;
  count.sent_bytes += packet.size();
  const auto up = up_[from].pass(now(), packet.size());
  const auto left = up ? path.line.pass(*up, packet.size()) : up;
  if (!left) {
    ++count.dropped_up;
    return;
  }
  if (path.its.largest > 0 && packet.size() > path.its.largest) {
    ++count.too_large;
    return;
  }
  const auto node = static_cast<std::uint32_t>(from);
  if (path.its.loss > 0 && rng_.uniform(number, node) < path.its.loss) {
    ++count.lost;
    return;
  }
  const auto others = static_cast<std::uint32_t>(nodes_.size());  // numbers of their own for jitter
  const double jitter_ms =
      path.its.jitter_ms > 0 ? path.its.jitter_ms * rng_.uniform(number, others + node) : 0;
  const auto delay = static_cast<Nanoseconds>((path.its.delay_ms + jitter_ms) * 1e6);
  path.last_at = std::max(path.last_at, *left + delay);
  events_.push({.at = path.last_at,
                .order = ++order_,
                .arrives = false,
                .to = to,
                .packet = std::move(packet)});
}

void Wan::handle_next() {
  Event event = std::move(const_cast<Event&>(events_.top()));  // popped at once
  events_.pop();
  WanCounters& count = counters_[event.to];
  if (!event.arrives) {
    const auto left = down_[event.to].pass(event.at, event.packet.size());
    if (!left) {
      ++count.dropped_down;
      return;
    }
    event.at = *left;
    event.arrives = true;
    event.order = ++order_;
    events_.push(std::move(event));
    return;
  }
  note_late(now() - event.at);
  if (::write(nodes_[event.to].packets.get(), event.packet.data(), event.packet.size()) < 0) {
    ++count.dropped_down;
    return;
  }
  ++count.delivered;
  count.delivered_bytes += event.packet.size();
}

void Wan::note_late(Nanoseconds late) {
  ++handled_;
  late_max_ = std::max(late_max_, late);
  late_sum_us_ += static_cast<double>(late) / 1e3;
  late_1ms_ += late > 1'000'000 ? 1 : 0;
  late_10ms_ += late > 10'000'000 ? 1 : 0;
}

WanLateness Wan::lateness() const {
  const auto events = static_cast<double>(std::max<std::uint64_t>(1, handled_));
  return {.mean_us = late_sum_us_ / events,
          .max_us = late_max_ / 1000,
          .over_1ms = static_cast<double>(late_1ms_) / events,
          .over_10ms = static_cast<double>(late_10ms_) / events};
}

}  // namespace isthmus
