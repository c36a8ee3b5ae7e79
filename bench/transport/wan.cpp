// SPDX-License-Identifier: Apache-2.0
// A wide-area network in user space: one TUN device in each of several network namespaces, and this
// process as everything between them. It needs no kernel modules (netem is often missing), and what
// it does to a packet is written below:
//
//   node's up line  ->  loss  ->  delay of both nodes  ->  other node's down line
//
// A line is a token bucket with a tail-drop queue. All times are computed, not measured: a packet's
// next event depends on when its last one was due, so this process being late (`late_us` at the
// end) delays a packet once and never slows a line down. Loss is a function of (seed, node, number
// of the packet). A SIGTERM or SIGINT ends it: the devices go, and one JSON line says what passed.
//   bench_wan --node NAMESPACE[,up_mbit=R][,down_mbit=R][,delay_ms=T][,loss=P][,queue_bytes=N] ...
#include <fmt/format.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <ctime>
#include <optional>
#include <queue>
#include <string>
#include <utility>
#include <vector>

#include "core/rng.h"
#include "isthmus/errors.h"
#include "tun_device.h"

namespace isthmus {
namespace {

using Nanoseconds = std::int64_t;  // of the monotonic clock

struct NodeOptions {
  std::string name;  // of its namespace
  double up_mbit = 100;
  double down_mbit = 100;
  double delay_ms =
      12.5;         // one way, between the node and the middle: two such nodes have RTT 50 ms
  double loss = 0;  // of what the node sends
  std::int64_t queue_bytes = 0;  // of each of its lines; 0: rate times RTT to a node like itself
};

struct WanOptions {
  std::vector<NodeOptions> nodes;
  std::string subnet = "10.0.0";
  std::uint64_t seed = 1;
  int tick_us = 200;     // events wait for the next tick: a timer for each packet costs half a core
  int burst_us = 1000;   // depth of the up lines' buckets: what a late read may catch up with
  bool realtime = true;  // before every ordinary process
};

/// One direction of a node's access: a token bucket with a tail-drop queue.
class Line {
 public:
  Line(double mbit, std::int64_t queue_bytes, Nanoseconds burst)
      : nanoseconds_per_byte_(8e3 / mbit), queue_bytes_(queue_bytes), burst_(burst) {}

  /// RETURNS: when the packet's last bit has left; nothing when the queue is full.
  std::optional<Nanoseconds> pass(Nanoseconds at, std::size_t bytes) {
    const Nanoseconds begin = std::max(at - burst_, free_at_);
    const double waiting = static_cast<double>(begin - at) / nanoseconds_per_byte_;
    if (waiting + static_cast<double>(bytes) > static_cast<double>(queue_bytes_)) return {};
    free_at_ = begin + static_cast<Nanoseconds>(static_cast<double>(bytes) * nanoseconds_per_byte_);
    return std::max(at, free_at_);
  }

 private:
  double nanoseconds_per_byte_;
  std::int64_t queue_bytes_;
  Nanoseconds burst_;
  Nanoseconds free_at_ = 0;
};

std::int64_t queue_of(const NodeOptions& node, double mbit) {
  if (node.queue_bytes > 0) return node.queue_bytes;
  const double rtt_ms = 4 * node.delay_ms;
  return std::max(std::int64_t{32} * kMtu, static_cast<std::int64_t>(mbit * 1e3 / 8 * rtt_ms));
}

struct Node {
  Node(const NodeOptions& its, FileDescriptor its_packets, Nanoseconds burst)
      : options(its),
        packets(std::move(its_packets)),
        up(its.up_mbit, queue_of(its, its.up_mbit), burst),
        down(its.down_mbit, queue_of(its, its.down_mbit), 0) {}

  NodeOptions options;
  FileDescriptor packets;
  Line up;
  Line down;
  std::uint64_t sent = 0;
  std::uint64_t sent_bytes = 0;
  std::uint64_t dropped_up = 0;
  std::uint64_t lost = 0;
  std::uint64_t dropped_down = 0;
  std::uint64_t delivered = 0;
  std::uint64_t delivered_bytes = 0;
};

struct Event {
  Nanoseconds at = 0;
  std::uint64_t order = 0;  // among events of one instant
  bool arrives = false;     // has passed the down line; before: reaches it
  std::size_t to = 0;
  std::vector<char> packet;
};
struct Later {
  bool operator()(const Event& a, const Event& b) const {
    return std::pair(a.at, a.order) > std::pair(b.at, b.order);
  }
};

class Wan {
 public:
  explicit Wan(const WanOptions& options) : options_(options), rng_(options.seed, Stream::kSim) {
    for (const NodeOptions& node : options.nodes) {
      const std::string address = fmt::format("{}.{}", options.subnet, nodes_.size() + 1);
      nodes_.emplace_back(node, open_tun_device(node.name, address), options.burst_us * 1000);
    }
  }

  /// Blocks until `*stop`.
  void run(const volatile sig_atomic_t* stop) {
    started_ = now();
    const sched_param lowest{.sched_priority = 1};
    realtime_ = options_.realtime && ::sched_setscheduler(0, SCHED_FIFO, &lowest) == 0;
    ::prctl(PR_SET_TIMERSLACK, 1000);
    std::vector<pollfd> readable;
    for (const Node& node : nodes_) readable.push_back({node.packets.get(), POLLIN, 0});
    constexpr Nanoseconds kLookForSignals = 100'000'000;
    while (*stop == 0) {
      for (std::size_t from = 0; from < nodes_.size(); ++from) read_all(from);
      while (!events_.empty() && events_.top().at <= now()) handle_next();
      // With packets under way the next tick looks at everything anyway.
      const Nanoseconds wait = events_.empty() ? kLookForSignals : options_.tick_us * 1000;
      const timespec timeout{.tv_sec = 0, .tv_nsec = wait};
      ::ppoll(readable.data(), events_.empty() ? readable.size() : 0, &timeout, nullptr);
    }
  }

  void print_counters() const {
    const double events = static_cast<double>(std::max<std::uint64_t>(1, handled_));
    fmt::print(
        R"({{"bench":"wan","seconds":{:.1f},"seed":{},"tick_us":{},"burst_us":{},"realtime":{},)"
        R"("late_us":{{"mean":{:.0f},"max":{}}},"late_over_1ms":{:.4f},)"
        R"("late_over_10ms":{:.4f},"foreign":{},"nodes":[)",
        static_cast<double>(now() - started_) / 1e9, options_.seed, options_.tick_us,
        options_.burst_us, realtime_, late_sum_us_ / events, late_max_ / 1000,
        static_cast<double>(late_1ms_) / events, static_cast<double>(late_10ms_) / events,
        foreign_);
    for (const Node& node : nodes_) {
      const NodeOptions& its = node.options;
      fmt::print(R"({}{{"name":"{}","up_mbit":{},"down_mbit":{},"delay_ms":{},"loss":{},)"
                 R"("up_queue_bytes":{},"down_queue_bytes":{},"sent":{},"sent_bytes":{},)"
                 R"("dropped_up":{},"lost":{},"dropped_down":{},"delivered":{},)"
                 R"("delivered_bytes":{}}})",
                 &node == nodes_.data() ? "" : ",", its.name, its.up_mbit, its.down_mbit,
                 its.delay_ms, its.loss, queue_of(its, its.up_mbit), queue_of(its, its.down_mbit),
                 node.sent, node.sent_bytes, node.dropped_up, node.lost, node.dropped_down,
                 node.delivered, node.delivered_bytes);
    }
    fmt::print("]}}\n");
  }

 private:
  static Nanoseconds now() {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(
               std::chrono::steady_clock::now().time_since_epoch())
        .count();
  }

  void read_all(std::size_t from) {
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

  /// RETURNS: the node an IPv4 packet is for; nothing for others, such as IPv6's own messages.
  [[nodiscard]] std::optional<std::size_t> destination(const char* packet, std::size_t size) const {
    constexpr std::size_t kHeader = 20;
    constexpr std::size_t kLastOfAddress = 19;
    if (size < kHeader || (packet[0] >> 4) != 4) return {};
    const std::size_t number = static_cast<unsigned char>(packet[kLastOfAddress]);
    if (number < 1 || number > nodes_.size()) return {};
    return number - 1;
  }

  void take(std::size_t from, std::size_t to, std::vector<char> packet) {
    Node& node = nodes_[from];
    const std::uint64_t number = node.sent++;
    node.sent_bytes += packet.size();
    const auto left = node.up.pass(now(), packet.size());
    if (!left) {
      ++node.dropped_up;
      return;
    }
    if (node.options.loss > 0 &&
        rng_.uniform(number, static_cast<std::uint32_t>(from)) < node.options.loss) {
      ++node.lost;
      return;
    }
    const double delay_ms = node.options.delay_ms + nodes_[to].options.delay_ms;
    events_.push({.at = *left + static_cast<Nanoseconds>(delay_ms * 1e6),
                  .order = ++order_,
                  .arrives = false,
                  .to = to,
                  .packet = std::move(packet)});
  }

  void handle_next() {
    Event event = std::move(const_cast<Event&>(events_.top()));  // popped at once
    events_.pop();
    Node& node = nodes_[event.to];
    if (!event.arrives) {
      const auto left = node.down.pass(event.at, event.packet.size());
      if (!left) {
        ++node.dropped_down;
        return;
      }
      event.at = *left;
      event.arrives = true;
      event.order = ++order_;
      events_.push(std::move(event));
      return;
    }
    note_late(now() - event.at);
    if (::write(node.packets.get(), event.packet.data(), event.packet.size()) < 0) {
      ++node.dropped_down;
      return;
    }
    ++node.delivered;
    node.delivered_bytes += event.packet.size();
  }

  void note_late(Nanoseconds late) {
    ++handled_;
    late_max_ = std::max(late_max_, late);
    late_sum_us_ += static_cast<double>(late) / 1e3;
    late_1ms_ += late > 1'000'000 ? 1 : 0;
    late_10ms_ += late > 10'000'000 ? 1 : 0;
  }

  WanOptions options_;
  Rng rng_;
  std::vector<Node> nodes_;
  std::priority_queue<Event, std::vector<Event>, Later> events_;
  std::uint64_t order_ = 0;
  bool realtime_ = false;
  Nanoseconds started_ = 0;
  std::uint64_t foreign_ = 0;
  std::uint64_t handled_ = 0;
  std::uint64_t late_1ms_ = 0;
  std::uint64_t late_10ms_ = 0;
  double late_sum_us_ = 0;
  Nanoseconds late_max_ = 0;
};

/// THROWS: ConfigError naming what is wrong.
NodeOptions parse_node(const std::string& text) {
  NodeOptions node;
  const std::vector<std::string> fields = CLI::detail::split(text, ',');
  node.name = fields.at(0);
  for (std::size_t i = 1; i < fields.size(); ++i) {
    const std::size_t equals = fields[i].find('=');
    const std::string key = fields[i].substr(0, equals);
    double value = -1;
    if (equals == std::string::npos ||
        !CLI::detail::lexical_cast(fields[i].substr(equals + 1), value) || value < 0) {
      throw ConfigError(
          fmt::format("--node {}: {}: want key=number, not below 0", text, fields[i]));
    }
    if (key == "up_mbit")
      node.up_mbit = value;
    else if (key == "down_mbit")
      node.down_mbit = value;
    else if (key == "delay_ms")
      node.delay_ms = value;
    else if (key == "loss")
      node.loss = value;
    else if (key == "queue_bytes")
      node.queue_bytes = static_cast<std::int64_t>(value);
    else
      throw ConfigError(fmt::format(
          "--node {}: unknown key {}; known: up_mbit, down_mbit, delay_ms, loss, queue_bytes", text,
          key));
  }
  if (node.up_mbit <= 0 || node.down_mbit <= 0 || node.loss > 1) {
    throw ConfigError(fmt::format("--node {}: rates must be > 0 and loss at most 1", text));
  }
  return node;
}

volatile sig_atomic_t g_stop = 0;

}  // namespace
}  // namespace isthmus

int main(int argc, char** argv) {
  using namespace isthmus;
  CLI::App app("a wide-area network between network namespaces; addresses SUBNET.1, SUBNET.2, ...");
  std::vector<std::string> nodes;
  WanOptions options;
  app.add_option("--node", nodes,
                 "NAMESPACE[,up_mbit=][,down_mbit=][,delay_ms=][,loss=][,queue_bytes=]")
      ->required()
      ->expected(1, 200);
  app.add_option("--subnet", options.subnet, "first three numbers of the addresses");
  app.add_option("--seed", options.seed, "of the losses");
  app.add_option("--tick-us", options.tick_us)->check(CLI::Range(1, 100'000));
  app.add_option("--burst-us", options.burst_us)->check(CLI::Range(0, 100'000));
  app.add_flag("--realtime,!--no-realtime", options.realtime,
               "run before every ordinary process, where that is allowed (default)");
  try {
    app.parse(argc, argv);
    for (const std::string& node : nodes) options.nodes.push_back(parse_node(node));
    if (::geteuid() != 0) {
      throw SystemError("bench_wan makes devices in network namespaces and needs root: use sudo");
    }
    struct sigaction action {};
    action.sa_handler = [](int) { g_stop = 1; };
    ::sigaction(SIGTERM, &action, nullptr);
    ::sigaction(SIGINT, &action, nullptr);
    Wan wan(options);
    fmt::print("{{\"bench\":\"wan\",\"ready\":true}}\n");
    std::fflush(stdout);
    wan.run(&g_stop);
    wan.print_counters();
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : static_cast<int>(ExitCode::kUsage);
  } catch (const Error& error) {
    fmt::print(stderr, "error: {}\n", error.what());
    return static_cast<int>(error.exit_code());
  }
}
