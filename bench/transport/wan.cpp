// SPDX-License-Identifier: Apache-2.0
// sim/wan.h as a program: a node's access line lies in each of several network namespaces.
//
//   node's up line  ->  packets that are too large, and loss  ->  delay of both nodes  ->  other
//                                                                              node's down line
//
// A SIGTERM or SIGINT ends it: the devices go, and one JSON line says what passed; `late_us` is its
// own lateness.
//   bench_wan --node NAMESPACE[,up_mbit=R][,down_mbit=R][,delay_ms=T][,loss=P][,queue_bytes=N]
//                    [,largest=BYTES] ...
#include "sim/wan.h"

#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "core/base/system_runtime.h"
#include "isthmus/errors.h"

namespace isthmus {
namespace {

struct NodeOptions {
  std::string name;  // of its namespace
  double up_mbit = 100;
  double down_mbit = 100;
  double delay_ms =
      12.5;         // one way, between the node and the middle: two such nodes have RTT 50 ms
  double loss = 0;  // of what the node sends
  std::int64_t largest = 0;      // bytes of a packet that passes, of what it sends; 0: any
  std::int64_t queue_bytes = 0;  // of each of its lines; 0: rate times RTT to a node like itself
};

std::int64_t queue_of(const NodeOptions& node, double mbit) {
  return node.queue_bytes > 0 ? node.queue_bytes : bandwidth_delay_product(mbit, 4 * node.delay_ms);
}

/// Makes the devices, one in each namespace.
Wan make_wan(const Clock& clock, const std::vector<NodeOptions>& options, const std::string& subnet,
             const WanOptions& wan) {
  std::vector<WanNode> nodes;
  std::vector<WanPath> paths;
  for (const NodeOptions& node : options) {
    enter_network_namespace(node.name);
    const std::string address = fmt::format("{}.{}", subnet, nodes.size() + 1);
    nodes.push_back({.address = address,
                     .packets = open_tun_device(address),
                     .up = {node.up_mbit, queue_of(node, node.up_mbit)},
                     .down = {node.down_mbit, queue_of(node, node.down_mbit)}});
    for (const NodeOptions& other : options) {
      paths.push_back({.delay_ms = node.delay_ms + other.delay_ms,
                       .loss = node.loss,
                       .largest = static_cast<std::size_t>(node.largest)});
    }
  }
  return {clock, std::move(nodes), std::move(paths), wan};
}

void print_counters(const Wan& wan, const std::vector<NodeOptions>& nodes,
                    const WanOptions& options, double seconds) {
  const WanLateness late = wan.lateness();
  fmt::print(
      R"({{"bench":"wan","seconds":{:.1f},"seed":{},"tick_us":{},"burst_us":{},"realtime":{},)"
      R"("late_us":{{"mean":{:.0f},"max":{}}},"late_over_1ms":{:.4f},)"
      R"("late_over_10ms":{:.4f},"foreign":{},"nodes":[)",
      seconds, options.seed, options.tick_us, options.burst_us, wan.realtime(), late.mean_us,
      late.max_us, late.over_1ms, late.over_10ms, wan.foreign());
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    const NodeOptions& its = nodes[i];
    const WanCounters& count = wan.counters(i);
    fmt::print(R"({}{{"name":"{}","up_mbit":{},"down_mbit":{},"delay_ms":{},"loss":{},)"
               R"("largest":{},"up_queue_bytes":{},"down_queue_bytes":{},"sent":{},)"
               R"("sent_bytes":{},"dropped_up":{},"lost":{},"too_large":{},"dropped_down":{},)"
               R"("delivered":{},)"
               R"("delivered_bytes":{}}})",
               i == 0 ? "" : ",", its.name, its.up_mbit, its.down_mbit, its.delay_ms, its.loss,
               its.largest, queue_of(its, its.up_mbit), queue_of(its, its.down_mbit), count.sent,
               count.sent_bytes, count.dropped_up, count.lost, count.too_large, count.dropped_down,
               count.delivered, count.delivered_bytes);
  }
  fmt::print("]}}\n");
}

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
    else if (key == "largest")
      node.largest = static_cast<std::int64_t>(value);
    else
      throw ConfigError(fmt::format(
          "--node {}: unknown key {}; known: up_mbit, down_mbit, delay_ms, loss, queue_bytes, "
          "largest",
          text, key));
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
  std::vector<std::string> texts;
  std::vector<NodeOptions> nodes;
  std::string subnet = "10.0.0";
  WanOptions options;
  app.add_option("--node", texts,
                 "NAMESPACE[,up_mbit=][,down_mbit=][,delay_ms=][,loss=][,queue_bytes=][,largest=]")
      ->required()
      ->expected(1, 200);
  app.add_option("--subnet", subnet, "first three numbers of the addresses");
  app.add_option("--seed", options.seed, "of the losses");
  app.add_option("--tick-us", options.tick_us)->check(CLI::Range(1, 100'000));
  app.add_option("--burst-us", options.burst_us)->check(CLI::Range(0, 100'000));
  app.add_flag("--realtime,!--no-realtime", options.realtime,
               "run before every ordinary process, where that is allowed (default)");
  try {
    app.parse(argc, argv);
    for (const std::string& text : texts) nodes.push_back(parse_node(text));
    if (::geteuid() != 0) {
      throw SystemError("bench_wan makes devices in network namespaces and needs root: use sudo");
    }
    struct sigaction action {};
    action.sa_handler = [](int) { g_stop = 1; };
    ::sigaction(SIGTERM, &action, nullptr);
    ::sigaction(SIGINT, &action, nullptr);
    SystemRuntime runtime;
    const TimePoint begin = runtime.clock().now();
    Wan wan = make_wan(runtime.clock(), nodes, subnet, options);
    fmt::print("{{\"bench\":\"wan\",\"ready\":true}}\n");
    std::fflush(stdout);
    wan.run([] { return g_stop != 0; });
    print_counters(wan, nodes, options,
                   std::chrono::duration<double>(runtime.clock().now() - begin).count());
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : static_cast<int>(ExitCode::kUsage);
  } catch (const Error& error) {
    fmt::print(stderr, "error: {}\n", error.what());
    return static_cast<int>(error.exit_code());
  }
}
