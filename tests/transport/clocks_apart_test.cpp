// SPDX-License-Identifier: Apache-2.0
// Clocks of members that are a day apart: nothing depends on another machine's. A run with such
// clocks is held against the same run with equal ones.
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/base/rng.h"
#include "link_net.h"
#include "sim/run_simulated.h"
#include "transport/exchange/peer_exchange.h"
#include "transport/naive_mean.h"
#include "transport/skewed_clock.h"

namespace isthmus::this_file {
namespace {

using namespace std::chrono_literals;
using namespace testing_support;

constexpr Duration kDay = 24h;

// ---- links: connections that break, processes that die and come back, a member that is silent

/// What the owners of three members see of one another, and what links say, line by line.
std::vector<std::string> life_of_links(const std::map<int, Duration>& ahead, std::uint64_t seed) {
  const Rng rng{seed, Stream::kTestData};
  // All clocks show something large: what is 0 before anything was heard must not matter either.
  std::map<int, Duration> shown;
  for (int m = 0; m < 3; ++m) {
    const auto found = ahead.find(m);
    shown[m] = 30 * kDay + (found == ahead.end() ? Duration{0} : found->second);
  }
  link_test::Net net(
      3,
      [](MemberOptions& options) {
        options.readmits = true;
        options.dead_after = 10s;
        options.gone_after = 2s;
      },
      shown);
  std::vector<std::string> lines;
  const auto take = [&](int second) {
    for (const auto& node : net.nodes) {
      if (!node) continue;
      node->take_all();
      for (const auto& [peer, story] : std::exchange(node->story, {})) {
        for (const std::string& line : story) {
          lines.push_back(
              fmt::format("{} s: {} of {}: {}", second, node->self.value(), peer, line));
        }
      }
      for (const LinkEvent& event : std::exchange(node->events, {})) {
        lines.push_back(fmt::format("{} s: {}: {} {}", second, node->self.value(),
                                    static_cast<int>(event.kind), event.text));
      }
    }
  };
  std::uint32_t sent = 0;
  for (int second = 0; second < 120; ++second) {
    const auto words = rng.words(static_cast<std::uint64_t>(second));
    const int from = static_cast<int>(words[0] % 3);
    const int to = static_cast<int>((words[0] % 3 + 1 + words[1] % 2) % 3);
    if (second == 40) net.kill(2);
    if (second == 55) net.start(2);
    if (second == 80) net.kill(1);
    if (second == 81) net.start(1);  // before anybody counts it as gone
    if (net.lives(from) && net.lives(to)) {
      net.node(from).send(WorkerId(to), link_test::frame_of(sent++, words[2] % 100000));
      if (words[3] % 4 == 0) {
        const int stream = static_cast<int>(words[3] / 4 % 3);
        net.set_up(from, to, stream, false);
        net.set_up(from, to, stream, true);
      }
    }
    net.pass(1s);
    take(second);
  }
  return lines;
}

TEST(ClocksApart, LinksLiveAndDieAsWithEqualOnes) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    const std::vector<std::string> equal = life_of_links({}, seed);
    ASSERT_GT(equal.size(), 100u);
    EXPECT_EQ(life_of_links({{0, kDay}, {1, -kDay}}, seed), equal) << "seed " << seed;
    EXPECT_EQ(life_of_links({{2, kDay}}, seed), equal) << "seed " << seed;
  }
}

// ---- rounds: frames lost, doubled, late, damaged, and a member that dies

/// The exchange of a member with such a clock, and what it stands on.
class AheadExchange final : public Exchange {
 public:
  AheadExchange(Transport& below, Runtime& world, Duration ahead,
                const PeerExchangeOptions& options)
      : runtime_(world, ahead), transport_(below, runtime_) {
    exchange_.emplace(transport_, runtime_, options);
  }
  [[nodiscard]] WorkerId self() const override { return exchange_->self(); }
  [[nodiscard]] int members() const override { return exchange_->members(); }
  [[nodiscard]] EncodeKey key(const SyncId& id) const override { return exchange_->key(id); }
  Ticket begin(Contribution contribution) override {
    return exchange_->begin(std::move(contribution));
  }
  [[nodiscard]] bool poll(const Ticket& ticket) override { return exchange_->poll(ticket); }
  [[nodiscard]] Expected<Reduced, ExchangeError> wait(const Ticket& ticket,
                                                      Duration patience) override {
    return exchange_->wait(ticket, patience);
  }
  [[nodiscard]] ByteCounts bytes() const override { return exchange_->bytes(); }
  void leave() { exchange_->leave(24h); }

 private:
  SkewedRuntime runtime_;
  SkewedTransport transport_;
  std::optional<PeerExchange> exchange_;
};

struct Rounds {
  std::uint64_t trace = 0;
  Duration took{0};
  std::vector<std::vector<float>> values;  // of member 0, by round
  std::vector<std::vector<WorkerId>> contributors;
  bool operator==(const Rounds&) const = default;
};

Rounds rounds_with(const std::vector<Duration>& ahead, std::uint64_t seed) {
  constexpr int kMembers = 4, kRounds = 30;
  const DirectedLink link{.bits_per_s = 20'000'000, .one_way = 20ms, .jitter = 5ms};
  SimulationOptions options{
      .workers = kMembers, .links = uniform_links(kMembers, link), .seed = seed};
  options.network.faults = {
      .drop = 0.03, .delay = 0.05, .duplicate = 0.03, .reorder = 0.05, .corrupt = 0.02};
  options.network.faults.crashes = {{WorkerId(2), TimePoint{3s}}};
  options.make_exchange = [&](Transport& transport, Runtime& runtime) {
    const auto own = static_cast<std::size_t>(transport.self().value());
    return std::make_unique<AheadExchange>(
        transport, runtime, 30 * kDay + ahead[own],  // no clock shows what it began with
        PeerExchangeOptions{.retry_interval = 500ms, .elastic = true, .straggler = 30s});
  };
  Rounds rounds;
  const std::shared_ptr<const Codec> codec = make_codec("int8:256");
  const SimulationResult result = run_simulated(options, [&](WorkerContext& context) {
    for (int round = 0; round < kRounds; ++round) {
      context.runtime.compute(50ms, [] {});
      const SyncId id{FragmentId(0), StepIndex(1 + round)};
      const Ticket ticket = context.exchange.begin(
          contribution_of(codec, context.rank, 40000, id, ReductionKind::kReduce));
      auto reduced = context.exchange.wait(ticket, 1h);
      ASSERT_TRUE(reduced.has_value()) << reduced.error().what;
      if (context.rank == WorkerId(0)) {
        rounds.values.push_back(std::move(reduced->values));
        rounds.contributors.push_back(reduced->contributors);
      }
    }
    static_cast<AheadExchange&>(context.exchange).leave();
  });
  rounds.trace = result.trace_hash;
  rounds.took = result.duration;
  return rounds;
}

TEST(ClocksApart, RoundsGoAsWithEqualOnesToTheNanosecond) {
  for (std::uint64_t seed = 1; seed <= 3; ++seed) {
    const Rounds equal = rounds_with({0s, 0s, 0s, 0s}, seed);
    ASSERT_EQ(equal.contributors.back(),
              (std::vector<WorkerId>{WorkerId(0), WorkerId(1), WorkerId(3)}));
    const Rounds apart = rounds_with({kDay, 0s, -kDay, 2 * kDay}, seed);
    EXPECT_EQ(apart.values, equal.values);
    EXPECT_EQ(apart.contributors, equal.contributors);
    EXPECT_EQ(apart.took, equal.took);
    EXPECT_EQ(apart.trace, equal.trace) << "seed " << seed;
  }
}

}  // namespace
}  // namespace isthmus::this_file
