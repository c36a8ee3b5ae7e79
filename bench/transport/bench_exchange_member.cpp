// SPDX-License-Identifier: Apache-2.0
// One member of an exchange, a process of its own, for links that are no loopback (wan.py starts
// one in each of several network namespaces). All members are given the same endpoints and options.
// What it prints: exchange_trials.h.
//   bench_exchange_member --member 0 --endpoints tcp://10.0.0.1:4000,tcp://10.0.0.2:4000 ...
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>
#include <vector>

#include "core/base/freed_memory.h"
#include "core/base/system_runtime.h"
#include "exchange_trials.h"
#include "transport/exchange/peer_exchange.h"
#include "transport/exchange/ring/ring_exchange.h"
#include "transport/links/link_keys.h"
#include "transport/links/zmq/zmq_transport.h"

namespace isthmus {
namespace {

/// Keys that all members can make: they cost what other keys cost, and keep no secret.
LinkKeys keys_of(int member) {
  KeyProof seed{};
  seed[0] = static_cast<std::uint8_t>(member + 1);
  return keys_from_seed(seed);
}

void run(TrialOptions& bench, const std::vector<std::string>& endpoints, bool elastic, bool keys) {
  bench.members = static_cast<int>(endpoints.size());
  if (bench.member < 0 || bench.member >= bench.members) {
    throw ConfigError(fmt::format("--member {}: there are {} endpoints, numbered from 0",
                                  bench.member, bench.members));
  }
  if (bench.line_mbit.size() > 1 && bench.line_mbit.size() != endpoints.size()) {
    throw ConfigError(
        fmt::format("--line-mbit has {} values for {} endpoints: want one, or one a "
                    "member",
                    bench.line_mbit.size(), bench.members));
  }
  SystemRuntime runtime;
  MemberOptions options;
  options.self = WorkerId(bench.member);
  options.members = bench.members;
  options.bind = endpoints[static_cast<std::size_t>(bench.member)];
  set_streams(options, bench.streams);
  options.plaintext = true;  // a private network of namespaces
  for (int member = 0; keys && member < bench.members; ++member) {
    options.member_keys.push_back(keys_of(member).public_key);
    if (member == bench.member) options.keys = keys_of(member);
  }
  const auto transport = make_zmq_transport(runtime, options);
  transport->join(endpoints);
  if (const auto all = transport->await_members(runtime.clock().now() + std::chrono::minutes(1));
      !all) {
    throw PeerError(all.error().what);
  }
  if (!bench.along.empty()) {
    RingExchange exchange(*transport, runtime, {});
    return Trials(bench, runtime, exchange).run();
  }
  PeerExchange exchange(*transport, runtime, {.shares = bench.shares, .elastic = elastic});
  Trials(bench, runtime, exchange).run();
  exchange.leave(std::chrono::minutes(1));
}

}  // namespace
}  // namespace isthmus

int main(int argc, char** argv) {
  using namespace isthmus;
  keep_freed_memory();  // as the program does
  TrialOptions bench;
  bench.streams = 0;  // as runs do
  std::vector<std::string> endpoints;
  bool elastic = false;
  bool keys = false;
  CLI::App app("one member of an exchange over ZeroMQ, a process of its own");
  app.add_option("--member", bench.member, "which of the endpoints is this one")->required();
  app.add_option("--endpoints", endpoints, "tcp://HOST:PORT of all, in member order")
      ->required()
      ->delimiter(',');
  app.add_flag("--elastic", elastic, "as sites run: rounds can begin again when a member is lost");
  app.add_flag("--keys", keys, "encrypt what goes over the links");
  add_trial_options(app, bench);
  try {
    app.parse(argc, argv);
    run(bench, endpoints, elastic, keys);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : static_cast<int>(ExitCode::kUsage);
  } catch (const Error& error) {
    fmt::print(stderr, "error: member {}: {}\n", bench.member, error.what());
    return static_cast<int>(error.exit_code());
  }
}
