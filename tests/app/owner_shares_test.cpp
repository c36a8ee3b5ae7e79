// SPDX-License-Identifier: Apache-2.0
// Shares of a run's reduction as its configuration has them, and what they do to time and bits.
#include "app/owner_shares.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>

#include "app/commands.h"
#include "core/system_runtime.h"
#include "isthmus/errors.h"
#include "plan/prediction.h"
#include "sim/run_simulated.h"
#include "sim/topology.h"
#include "transport/naive_mean.h"
#include "transport/run_in_process.h"
#include "transport/zmq_members.h"

namespace isthmus::app {
namespace {

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

TEST(OwnerShares, FollowTheKeyAndTheLinks) {
  const auto shares = [](const std::string& more, const std::string& how) {
    return owner_shares(config(more, {"net.shares=" + how}));
  };
  const std::string slower = kFour + kSlowC;
  EXPECT_THAT(shares(slower, "auto"), ElementsAre(1365, 1365, 0, 1365));
  EXPECT_THAT(shares(slower, "links"), ElementsAre(1365, 1365, 0, 1365));
  EXPECT_THAT(shares(slower, "even"), IsEmpty());
  // By 7 % one does not run with other shares, unless told to.
  const std::string nearly = kFour + link(R"(["*", "*"])", 40) + link(R"(["c", "*"])", 36);
  EXPECT_THAT(shares(nearly, "auto"), IsEmpty());
  EXPECT_THAT(shares(nearly, "links"), ::testing::Not(IsEmpty()));
  EXPECT_THAT(shares(kFour, "auto"), IsEmpty()) << "nothing is known of the links";
  // Nine tiles are two or three an owner, or three and none: what three of them reduce goes out
  // when it has all come in, so the round takes longer.
  const Config few = config(kFour + link(R"(["*", "*"])", 4) + link(R"(["c", "*"])", 1),
                            {"model.d_model=32", "outer.codec=int8", "sim.link_model=ideal"});
  EXPECT_THAT(owner_shares(few), IsEmpty());
  // Some pairs are not declared: nothing follows, unless it has to.
  const std::string some = kFour + link(R"(["a", "b"])", 10);
  EXPECT_THAT(shares(some, "auto"), IsEmpty());
  EXPECT_THROW((void)shares(some, "links"), ConfigError);
}

TEST(OwnerShares, AreNothingToWhatHasNoOwners) {
  for (const std::string how : {"outer.exchange=gather", "outer.codec=topk"}) {
    const Config each = config(kFour + kSlowC, {how});
    EXPECT_THAT(owner_shares(each), IsEmpty()) << how;
    std::vector<std::pair<std::string, std::string>> common;
    append_shares(each, common);
    EXPECT_THAT(common, IsEmpty()) << how;
  }
  EXPECT_THAT(owner_shares(config("[[site]]\nname = \"a\"\n[[site]]\nname = \"b\"\n" +
                                  link(R"(["a", "b"])", 10))),
              IsEmpty());
}

TEST(OwnerShares, LeaveHiddenSitesOut) {
  std::string sites;
  for (const std::string name : {"a", "b", "c", "d"}) {
    sites += fmt::format("[[site]]\nname = \"{}\"\n", name);
    if (name != "b") sites += "address = \"" + name + ".example.org:48200\"\n";
  }
  EXPECT_THAT(owner_shares(config(sites)), ElementsAre(1, 0, 1, 1));
  EXPECT_THAT(owner_shares(config(sites + kSlowC, {"net.shares=even"})), ElementsAre(1, 0, 1, 1));
  EXPECT_THAT(owner_shares(config(sites + kSlowC)), ElementsAre(2048, 0, 0, 2048));
}

TEST(OwnerShares, AreWhatSitesMustHaveAlike) {
  const auto common = [](const std::string& more, const std::vector<std::string>& overrides) {
    std::vector<std::pair<std::string, std::string>> values;
    append_shares(config(more, overrides), values);
    return values;
  };
  const auto slower = common(kFour + kSlowC, {});
  EXPECT_THAT(slower, ElementsAre(::testing::Pair(HasSubstr("net.shares"), "1365:1365:0:1365")));
  EXPECT_EQ(slower, common(kFour + kSlowC, {"net.shares=links"})) << "said in another way";
  EXPECT_NE(slower, common(kFour + kSlowC, {"net.shares=even"}));
  EXPECT_NE(slower, common(kFour, {}));
}

TEST(OwnerShares, ByLinksNeedLinksAndOwners) {
  const auto refusal = [](const std::string& more, const std::vector<std::string>& overrides) {
    try {
      check_shares(config(more, overrides));
    } catch (const ConfigError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_EQ(refusal(kFour + kSlowC, {"net.shares=links"}), "");
  EXPECT_THAT(refusal(kFour, {"net.shares=links"}), HasSubstr("there is no [[link]]"));
  EXPECT_THAT(refusal(kFour + link(R"(["a", "b"])", 10), {"net.shares=links"}),
              HasSubstr("no [[link]] joins"));
  EXPECT_THAT(refusal(kFour + kSlowC, {"net.shares=links", "outer.codec=topk"}),
              HasSubstr("all is sent to all"));
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
                        .step_time = [](Rank, StepIndex) { return Duration(0); }};
  input.links = links_of(config);
  return predict(input).predicted_s;
}

// Every link of c has b = 10 Mbit/s, the others 4 b. A link carries what either end owns, f_i + f_j
// of the vector: evenly half of it, 2 V / 4b at c; by links a third at c, V / 3b, and two thirds of
// it between the others, V / 6b. As lines of 3 b and 12 b that is the closed form, too:
// V (1 + 2/4) / 3b and V / 3b. What comes on top are two delays for the parts and one round trip
// for the commit, headers, and the last part.
TEST(OwnerShares, MakeARoundWithASlowSiteOneAndAHalfTimesAsFast) {
  const Config by_links = config(kFour + kSlowC);
  const Config even = config(kFour + kSlowC, {"net.shares=even"});
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
    for (const std::string shares : {"even", "links"}) {
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
      for (auto& end : testing::joined_members(runtime, 4)) ends.push_back(std::move(end));
      run_over(runtime, ends, options_of(each), one_round(means, codec, kFew));
      for (const std::vector<float>& mean : means) {
        EXPECT_EQ(mean, expected) << codec << " over sockets, " << shares;
      }
    }
  }
}

}  // namespace
}  // namespace isthmus::app
