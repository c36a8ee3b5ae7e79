// SPDX-License-Identifier: Apache-2.0
// Shares of a run's reduction as its configuration has them, and what they do to time and bits.
#include "session/run/owner_shares.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>

#include "app/common/commands.h"
#include "core/base/system_runtime.h"
#include "isthmus/errors.h"
#include "plan/prediction.h"
#include "sim/run_simulated.h"
#include "sim/topology.h"
#include "transport/exchange/run_in_process.h"
#include "transport/naive_mean.h"
#include "transport/zmq_members.h"

namespace isthmus::app::this_file {
namespace {

using ::testing::_;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
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
method = "diloco"
H = 5
)";
const std::string kFour =
    "[[site]]\nname = \"a\"\n[[site]]\nname = \"b\"\n[[site]]\nname = \"c\"\n[[site]]\nname = "
    "\"d\"\n";

std::string link(const std::string& between, int mbit) {
  return fmt::format("[[link]]\nbetween = {}\nrate = \"{}Mbit/s\"\nrtt = \"20ms\"\n", between,
                     mbit);
}
/// c has a quarter of the others' rate.
const std::string kSlowC = link(R"(["*", "*"])", 40) + link(R"(["c", "*"])", 10);

Config config(const std::string& more, const std::vector<std::string>& overrides = {}) {
  return load_config_text(std::string(kFile) + more, "run.toml", overrides, schema_context());
}

std::vector<DirectedLink> links_of(const Config& config) {
  return link_matrix(config.links, {"a", "b", "c", "d"});
}

const std::vector<std::string> kByLinks = {"net.shares=links"};

TEST(OwnerShares, FollowTheLinksWhereTheKeySaysSo) {
  EXPECT_THAT(owner_shares(config(kFour + kSlowC, kByLinks)), ElementsAre(1365, 1365, 0, 1365));
  EXPECT_THAT(owner_shares(config(kFour + kSlowC)), IsEmpty());
  EXPECT_THAT(owner_shares(config(kFour + kSlowC, {"net.shares=auto"})), IsEmpty());
  const std::string alike = kFour + link(R"(["*", "*"])", 40);
  EXPECT_THAT(owner_shares(config(alike, kByLinks)), IsEmpty());
}

TEST(OwnerShares, LeaveHiddenSitesOut) {
  std::string sites;
  for (const std::string name : {"a", "b", "c", "d"}) {
    sites += fmt::format("[[site]]\nname = \"{}\"\n", name);
    if (name != "b") sites += "address = \"" + name + ".example.org:48200\"\n";
  }
  EXPECT_THAT(even_shares(config(sites)), ElementsAre(1, 0, 1, 1));
  EXPECT_THAT(owner_shares(config(sites)), IsEmpty()) << "runs in one process know no addresses";
  EXPECT_THAT(owner_shares(config(sites + kSlowC, kByLinks)), ElementsAre(2048, 0, 0, 2048));
  const std::string alike = sites + link(R"(["*", "*"])", 40);
  EXPECT_THAT(even_shares(config(alike)), ElementsAre(1, 0, 1, 1));
  const std::vector<std::uint32_t> shares = owner_shares(config(alike, kByLinks));
  ASSERT_EQ(shares.size(), 4U);
  EXPECT_EQ(shares[1], 0U);
  EXPECT_EQ(shares[0], shares[2]);
  EXPECT_EQ(shares[0], shares[3]);
}

TEST(OwnerShares, AreWhatSitesMustHaveAlikeWhereTheKeySaysSo) {
  const auto common = [](const std::string& more, const std::vector<std::string>& overrides) {
    std::vector<std::pair<std::string, std::string>> values;
    append_shares(config(more, overrides), values);
    return values;
  };
  const auto names_the_key =
      ::testing::AllOf(HasSubstr("net.shares"), HasSubstr("[[link]]"), HasSubstr("--links"));
  EXPECT_THAT(common(kFour + kSlowC, kByLinks),
              ElementsAre(_, _, ::testing::Pair(names_the_key, "1365:1365:0:1365")));
  EXPECT_THAT(common(kFour + link(R"(["*", "*"])", 40), kByLinks),
              ElementsAre(_, _, ::testing::Pair(names_the_key, "even")));
  // A hub leaves out what its own file does not tell, so each file tells it: sites of an earlier
  // program differ here where their shares move or follow a table.
  const auto as_ever = ElementsAre(::testing::Pair(HasSubstr("net.shares = \"measured\""), "no"),
                                   ::testing::Pair(HasSubstr("net.table"), "nothing"));
  EXPECT_THAT(common(kFour + kSlowC, {}), as_ever);
  EXPECT_THAT(common(kFour, {"net.shares=measured"}), as_ever);
}

TEST(OwnerShares, ByLinksNeedLinksAndOwners) {
  const auto refusal = [](const std::string& more, const std::vector<std::string>& overrides) {
    std::vector<std::string> all = kByLinks;
    all.insert(all.end(), overrides.begin(), overrides.end());
    try {
      static_cast<void>(owner_shares(config(more, all)));
    } catch (const ConfigError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  const std::string two = "[[site]]\nname = \"a\"\n[[site]]\nname = \"b\"\n";
  EXPECT_EQ(refusal(kFour + kSlowC, {}), "");
  EXPECT_THAT(refusal(kFour, {}), HasSubstr("there is no [[link]]"));
  EXPECT_THAT(refusal(kFour + link(R"(["a", "b"])", 10), {}), HasSubstr("no [[link]] joins"));
  EXPECT_THAT(refusal(kFour + kSlowC, {"outer.codec=topk"}), HasSubstr("all is sent to all"));
  EXPECT_THAT(refusal(two + link(R"(["a", "b"])", 10), {"outer.exchange=reduce"}),
              HasSubstr("of 2 site(s)"));
  // Both of these have an address, and one of them a slow line.
  const std::string three =
      "[[site]]\nname = \"a\"\naddress = \"a.example.org:1\"\n"
      "[[site]]\nname = \"b\"\n"
      "[[site]]\nname = \"c\"\naddress = \"c.example.org:1\"\n";
  EXPECT_THAT(refusal(three + link(R"(["*", "*"])", 40) + link(R"(["c", "*"])", 10),
                      {"train.global_batch=480 tok"}),
              HasSubstr("site 'a' would own all"));
}

TEST(OwnerShares, AHubsLogOfAnEarlierProgramWhoseSharesMoveIsRefused) {
  const auto refusal = [](const std::string& moves) {
    std::vector<std::pair<std::string, std::string>> common;
    if (!moves.empty()) {
      append_shares(config(kFour), common);
      common.front().second = moves;
    }
    try {
      check_log_shares(common);
    } catch (const ConfigError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_EQ(refusal("no"), "");
  EXPECT_EQ(refusal(""), "");
  EXPECT_THAT(refusal("yes"), AllOf(HasSubstr("net.shares"), HasSubstr("--out")));
}

constexpr std::size_t kValues = std::size_t{1} << 22;
const SyncId kRound{FragmentId(0), StepIndex(1)};

/// One round of a run, and its result at each worker.
struct Played {
  double seconds = 0;
  std::vector<std::vector<float>> means;
};

std::function<void(WorkerContext&)> one_round(std::vector<std::vector<float>>& means,
                                              const std::string& codec, std::size_t values) {
  means.resize(4);
  return [&means, codec, values](WorkerContext& context) {
    const auto mean = context.exchange.wait(
        context.exchange.begin(testing_support::contribution_of(
            make_codec(codec), context.rank, values, kRound, ReductionKind::kReduce)),
        1h);
    ASSERT_TRUE(mean.has_value()) << mean.error().what;
    means[static_cast<std::size_t>(context.rank.value())] = mean->values;
  };
}

PeerExchangeOptions options_of(const Config& config) {
  return {.retry_interval = kNothingIsLost, .shares = owner_shares(config)};
}

Played simulated(const Config& config, const std::string& codec, std::size_t values) {
  Played played;
  const SimulationResult result =
      run_simulated({.workers = 4, .links = links_of(config), .exchange = options_of(config)},
                    one_round(played.means, codec, values));
  played.seconds = std::chrono::duration<double>(result.duration).count();
  return played;
}

double predicted(const Config& config) {
  PredictionInput input{.workers = 4,
                        .steps = 1,
                        .fragments = {{.elements = kValues}},
                        .shares = owner_shares(config),
                        .codec = make_codec("fp32"),
                        .step_time = [](WorkerId, StepIndex) { return Duration(0); }};
  input.links = links_of(config);
  return predict(input).predicted_s;
}

// Every link of c has b = 10 Mbit/s, the others 4 b. A link carries what either end owns, f_i + f_j
// of the vector: evenly half of it, 2 V / 4b at c; by links a third at c, V / 3b, and two thirds of
// it between the others, V / 6b. As lines of 3 b and 12 b that is the closed form, too:
// V (1 + 2/4) / 3b and V / 3b. What comes on top are two delays for the parts and one round trip
// for the commit, headers, and the last part.
TEST(OwnerShares, MakeARoundWithASlowSiteOneAndAHalfTimesAsFast) {
  const Config by_links = config(kFour + kSlowC, kByLinks);
  const Config even = config(kFour + kSlowC);
  const double vector_s = 4.0 * kValues * 8 / 10e6;
  constexpr double kDelays = 4 * 0.01;
  const double even_s = simulated(even, "fp32", kValues).seconds;
  const double links_s = simulated(by_links, "fp32", kValues).seconds;
  EXPECT_GE(even_s, vector_s / 2);
  EXPECT_GE(links_s, vector_s / 3);
  EXPECT_LE(even_s, 1.03 * vector_s / 2 + kDelays);
  EXPECT_LE(links_s, 1.03 * vector_s / 3 + kDelays);
  EXPECT_GE(even_s, 1.4 * links_s);
  EXPECT_NEAR(predicted(even), even_s, 0.03 * even_s);
  EXPECT_NEAR(predicted(by_links), links_s, 0.03 * links_s);
}

constexpr std::size_t kFew = 300'001;

TEST(OwnerShares, ChangeNoBitOfAResultInMemoryInSimulationOrOverSockets) {
  for (const std::string codec : {"fp32", "int8", "int4:64:rounding=stochastic"}) {
    const std::vector<float> expected =
        testing_support::naive_mean(*make_codec(codec), 4, kFew, ReductionKind::kReduce, kRound);
    for (const std::string shares : {"auto", "links"}) {
      const Config each = config(kFour + kSlowC, {"net.shares=" + shares});
      for (const std::vector<float>& mean : simulated(each, codec, kFew).means) {
        EXPECT_EQ(mean, expected) << codec << " simulated, " << shares;
      }
      std::vector<std::vector<float>> means;
      run_in_process(4, options_of(each), one_round(means, codec, kFew));
      for (const std::vector<float>& mean : means) {
        EXPECT_EQ(mean, expected) << codec << " in memory, " << shares;
      }
      if (zmq_version().empty()) continue;
      SystemRuntime runtime;
      std::vector<std::unique_ptr<Transport>> ends;
      for (auto& end : testing_support::joined_members(runtime, 4)) ends.push_back(std::move(end));
      run_over(runtime, ends, options_of(each), one_round(means, codec, kFew));
      for (const std::vector<float>& mean : means) {
        EXPECT_EQ(mean, expected) << codec << " over sockets, " << shares;
      }
    }
  }
}

}  // namespace
}  // namespace isthmus::app::this_file
