// SPDX-License-Identifier: Apache-2.0
// Tables of ways (net.shares = "table"): what is chosen for which size, that rounds take as long as
// the table says, and that no bit depends on it in memory, in simulation or over sockets.
#include "app/commands/bench/collective_table.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <map>
#include <string>

#include "app/commands/bench/simulated_algorithms.h"
#include "app/common/commands.h"
#include "core/base/system_runtime.h"
#include "isthmus/errors.h"
#include "plan/prediction.h"
#include "session/run/owner_shares.h"
#include "sim/run_simulated.h"
#include "sim/topology.h"
#include "transport/exchange/run_in_process.h"
#include "transport/naive_mean.h"
#include "transport/zmq_members.h"

namespace isthmus::app::this_file {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;
using namespace std::chrono_literals;

constexpr std::string_view kFile = R"(schema = 1
[model]
arch = "llama"
layers = 2
d_model = 256
heads = 2
[data]
source = "synth:zipf:tokens=9k"
[train]
steps = 10
global_batch = "512 tok"
context = 32
[outer]
method = "streaming-diloco"
H = 4
fragments = 2
overlap = 1
exchange = "reduce"
)";
const std::string kFour =
    "[[site]]\nname = \"a\"\n[[site]]\nname = \"b\"\n[[site]]\nname = \"c\"\n[[site]]\nname = "
    "\"d\"\n";

std::string link(const std::string& between, int mbit, int rtt_ms) {
  return fmt::format("[[link]]\nbetween = {}\nrate = \"{}Mbit/s\"\nrtt = \"{}ms\"\n", between, mbit,
                     rtt_ms);
}

const std::map<std::string, std::string> kLinks = {
    {"one slow site", link(R"(["*", "*"])", 40, 20) + link(R"(["c", "*"])", 10, 20)},
    {"pairs",
     link(R"(["*", "*"])", 20, 80) + link(R"(["a", "b"])", 200, 2) + link(R"(["c", "d"])", 200, 2)},
    {"equal", link(R"(["*", "*"])", 40, 20)}};

Config config(const std::string& more, const std::vector<std::string>& overrides = {}) {
  return load_config_text(std::string(kFile) + more, "run.toml", overrides, schema_context());
}

/// The same file with the table that its links give.
Config with_table(const Config& of, const CollectiveTable& ways) {
  Config config = of;
  config.net.shares = "table";
  for (const NotedWay& noted : ways.ways) config.net.ways.push_back(noted.way);
  return config;
}

const std::vector<std::int64_t> kSizes = {4096, 40'000, 1'500'000};

PeerExchangeOptions options_of(const Config& config) {
  return {.retry_interval = kNothingIsLost,
          .shares = owner_shares(config),
          .table = table_of_shares(config)};
}

/// Seconds of one round of so many values.
double played(const Config& config, std::int64_t values) {
  const Question question = question_of(config, values);
  const SimulationResult result =
      run_simulated({.workers = 4,
                     .links = question.round.links,
                     .network = {.link = question.round.link},
                     .exchange = options_of(config)},
                    [&](WorkerContext& context) {
                      const auto mean = context.exchange.wait(
                          context.exchange.begin(testing_support::contribution_of(
                              question.round.codec, context.rank, static_cast<std::size_t>(values),
                              {FragmentId(0), StepIndex(1)}, ReductionKind::kReduce)),
                          1h);
                      ASSERT_TRUE(mean.has_value()) << mean.error().what;
                    });
  return std::chrono::duration<double>(result.duration).count();
}

TEST(WaysTable, RoundsTakeAsLongAsItSaysAndNoLongerThanInEvenShares) {
  for (const auto& [name, links] : kLinks) {
    const Config even = config(kFour + links);
    const CollectiveTable ways = tuned_ways(even, kSizes);
    const Config tabled = with_table(even, ways);
    ASSERT_EQ(ways.ways.size(), kSizes.size());
    for (std::size_t i = 0; i < kSizes.size(); ++i) {
      const double seconds = played(tabled, kSizes[i]);
      const NotedWay& way = ways.ways[i];
      EXPECT_NEAR(seconds, way.played_s, 0.01 * way.played_s) << name << ", " << kSizes[i];
      EXPECT_NEAR(way.predicted_s, way.played_s, 0.05 * way.played_s) << name << ", " << kSizes[i];
      EXPECT_LE(seconds, 1.0001 * played(even, kSizes[i])) << name << ", " << kSizes[i];
    }
  }
}

TEST(WaysTable, ASlowSiteOwnsNothingOfALargeVector) {
  const Config slow = config(kFour + kLinks.at("one slow site"));
  const CollectiveTable ways = tuned_ways(slow, kSizes);
  EXPECT_THAT(ways.sites, ElementsAre("a", "b", "c", "d"));
  ASSERT_EQ(ways.ways.back().way.shares.size(), 4U);
  EXPECT_EQ(ways.ways.back().way.shares[2], 0U);
  EXPECT_LE(1.4 * ways.ways.back().played_s, ways.ways.back().even_s);
  const CollectiveTable alike = tuned_ways(config(kFour + kLinks.at("equal")), kSizes);
  EXPECT_THAT(alike.ways.back().way.shares, IsEmpty());
}

// A prediction of the whole run reckons with it, fragment by fragment.
TEST(WaysTable, PredictionsFollowIt) {
  const Config even = config(kFour + kLinks.at("one slow site"));
  const Config tabled = with_table(even, tuned_ways(even, kSizes));
  for (const std::int64_t values : kSizes) {
    PredictionInput input = question_of(tabled, values).round;
    input.exchange = ReductionKind::kReduce;
    input.table = table_of_shares(tabled);
    const double seconds = played(tabled, values);
    EXPECT_NEAR(predict(input).predicted_s, seconds, 0.05 * seconds) << values;
  }
}

// Two fragments of unlike sizes, both open at once, in unlike ways.
constexpr std::size_t kSmall = 3 * kTileValues;
constexpr std::size_t kLarge = 300'001;

std::function<void(WorkerContext&)> two_rounds(std::vector<std::vector<float>>& means,
                                               const std::string& codec) {
  means.assign(8, {});
  return [&means, codec](WorkerContext& context) {
    std::vector<Ticket> tickets;
    for (const std::size_t values : {kSmall, kLarge}) {
      const SyncId id{FragmentId(values == kSmall ? 0 : 1), StepIndex(1)};
      tickets.push_back(context.exchange.begin(testing_support::contribution_of(
          make_codec(codec), context.rank, values, id, ReductionKind::kReduce)));
    }
    for (std::size_t i = 0; i < tickets.size(); ++i) {
      const auto mean = context.exchange.wait(tickets[i], 1h);
      ASSERT_TRUE(mean.has_value()) << mean.error().what;
      means[2 * static_cast<std::size_t>(context.rank.value()) + i] = mean->values;
    }
  };
}

TEST(WaysTable, ChangesNoBitOfAResultInMemoryInSimulationOrOverSockets) {
  const Config even = config(kFour + kLinks.at("one slow site"));
  for (const std::string codec : {"fp32", "int8", "int4:64:rounding=stochastic"}) {
    Config tabled = even;
    tabled.net.shares = "table";
    const auto bytes = [&](std::size_t values) {
      return static_cast<std::int64_t>(encoded_bytes(*make_codec(codec), values));
    };
    tabled.net.ways = {{bytes(kSmall), {0, 1, 0, 2}}, {bytes(kLarge), {1365, 1365, 0, 1365}}};
    std::vector<std::vector<float>> expected;
    run_in_process(4, options_of(even), two_rounds(expected, codec));
    ASSERT_THAT(expected, Each(::testing::Not(IsEmpty())));
    std::vector<std::vector<float>> means;
    run_in_process(4, options_of(tabled), two_rounds(means, codec));
    EXPECT_EQ(means, expected) << codec << " in memory";
    (void)run_simulated({.workers = 4,
                         .links = link_matrix(tabled.links, {"a", "b", "c", "d"}),
                         .exchange = options_of(tabled)},
                        two_rounds(means, codec));
    EXPECT_EQ(means, expected) << codec << " simulated";
    if (zmq_version().empty()) continue;
    SystemRuntime runtime;
    std::vector<std::unique_ptr<Transport>> ends;
    for (auto& end : testing_support::joined_members(runtime, 4)) ends.push_back(std::move(end));
    run_over(runtime, ends, options_of(tabled), two_rounds(means, codec));
    EXPECT_EQ(means, expected) << codec << " over sockets";
  }
}

TEST(WaysTable, ManySizesBecomePowersOfTwoOfTiles) {
  const std::vector<std::int64_t> few = {7, 4096, 50'000};
  EXPECT_EQ(size_classes(few), few);
  std::vector<std::int64_t> many;
  for (std::int64_t n = 1; n <= 17; ++n) many.push_back(1000 * n);
  EXPECT_THAT(size_classes(many), ElementsAre(4096, 8192, 16384, 17000));
}

TEST(WaysTable, IsWhatSitesMustHaveAlike) {
  const auto common = [](const Config& of) {
    std::vector<std::pair<std::string, std::string>> values;
    append_shares(of, values);
    std::erase_if(
        values, [](const auto& each) { return each.first.find("net.table") == std::string::npos; });
    return values;
  };
  const Config even = config(kFour + kLinks.at("one slow site"));
  Config one = even;
  one.net.shares = "table";
  one.net.ways = {{4096, {1, 1, 0, 1}}};
  Config other = one;
  other.net.ways[0].shares[2] = 1;
  EXPECT_THAT(common(even), ElementsAre(Pair(HasSubstr("same file at all sites"), "nothing")));
  EXPECT_THAT(common(one), ElementsAre(Pair(HasSubstr("net.table"), HasSubstr("1 size, digest"))));
  EXPECT_NE(common(one), common(other));
}

TEST(WaysTable, WhereNobodyOwnsAShareThereIsNone) {
  const auto refusal = [](const std::string& more, const std::vector<std::string>& overrides) {
    try {
      (void)tuned_ways(config(more, overrides), kSizes);
    } catch (const ConfigError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  const std::string links = kLinks.at("equal");
  const std::string two = "[[site]]\nname = \"a\"\n[[site]]\nname = \"b\"\n";
  EXPECT_THAT(refusal(kFour + links, {"outer.exchange=gather"}), HasSubstr("sends all to all"));
  EXPECT_THAT(refusal(kFour + links, {"outer.exchange=auto", "outer.codec=topk"}),
              AllOf(HasSubstr("net.shares = \"table\""), HasSubstr("all is sent to all")));
  EXPECT_THAT(refusal(two + links, {}), HasSubstr("of 2 site(s)"));
  const std::string three =
      "[[site]]\nname = \"a\"\naddress = \"a.example.org:1\"\n"
      "[[site]]\nname = \"b\"\n[[site]]\nname = \"c\"\n";
  EXPECT_THAT(refusal(three + links, {"train.global_batch=480 tok"}),
              HasSubstr("one site alone has an address"));
}

}  // namespace
}  // namespace isthmus::app::this_file
