// SPDX-License-Identifier: Apache-2.0
// The trials of bench_exchange_member in virtual time: what `simulate` says they take over a link
// between all members. predicted.py sets the two side by side. What it prints: exchange_trials.h,
// of member 0.
//   bench_exchange_simulated --members 2 --link 100Mbit/s,50ms,0.1% --congestion cubic ...
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <string>

#include "exchange_trials.h"
#include "isthmus/config.h"
#include "sim/run_simulated.h"
#include "sim/topology.h"
#include "transport/exchange/ring/ring_exchange.h"

namespace isthmus {
namespace {

void run(const TrialOptions& bench, const std::string& link_text, const std::string& congestion,
         bool ideal) {
  LinkConfig link = parse_link(link_text);
  link.streams = bench.streams;
  link.congestion = congestion;
  SimulationOptions options;
  options.workers = bench.members;
  options.links = uniform_links(bench.members, directed_link(link, true));
  options.network.link.model = ideal ? LinkModel::kPlain : LinkModel::kTcp;
  options.exchange.retry_interval = std::chrono::hours(24);  // nothing is lost
  options.exchange.shares = bench.shares;
  if (!bench.along.empty()) {
    options.make_exchange = [&](Transport& transport, Runtime& runtime) {
      return std::make_unique<RingExchange>(transport, runtime, std::vector<int>());
    };
  }
  run_simulated(options, [&](WorkerContext& context) {
    TrialOptions mine = bench;
    mine.member = context.rank.value();
    Trials(mine, context.runtime, context.exchange, mine.member == 0).run();
  });
}

}  // namespace
}  // namespace isthmus

int main(int argc, char** argv) {
  using namespace isthmus;
  TrialOptions bench{.members = 2};
  std::string link, congestion = "bbr";
  bool ideal = false;
  CLI::App app("an exchange in virtual time");
  app.add_option("--members", bench.members)->check(CLI::Range(1, 64));
  app.add_option("--link", link, "RATE,RTT[,LOSS] between all, each direction")->required();
  app.add_option("--congestion", congestion)->check(CLI::IsMember({"bbr", "cubic"}));
  app.add_flag("--ideal", ideal, "rate and round trip only, as sim.link_model = \"ideal\"");
  add_trial_options(app, bench);
  try {
    app.parse(argc, argv);
    run(bench, link, congestion, ideal);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : static_cast<int>(ExitCode::kUsage);
  } catch (const Error& error) {
    fmt::print(stderr, "error: {}\n", error.what());
    return static_cast<int>(error.exit_code());
  }
}
