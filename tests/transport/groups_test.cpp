// SPDX-License-Identifier: Apache-2.0
// A reduce in two levels: the bits of its naive loop, whoever sums what and whatever the network
// does; what is cut where; what no member may send.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include "sweep_seeds.h"
#include "transport/engine_net.h"
#include "transport/exchange/peer_exchange.h"
#include "transport/exchange/reduction.h"
#include "transport/exchange/run_in_process.h"
#include "transport/naive_mean.h"

namespace isthmus::this_file {
namespace {

using namespace std::chrono_literals;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using namespace testing_support;
using Groups = std::vector<std::uint32_t>;

const SyncId kRound{FragmentId(2), StepIndex(5)};

std::vector<WorkerId> all_of(std::size_t members) {
  std::vector<WorkerId> ranks;
  for (std::size_t m = 0; m < members; ++m) ranks.emplace_back(static_cast<int>(m));
  return ranks;
}

struct Case {
  std::string name;
  Groups groups;
  std::string codec;
};
class GroupsTest : public ::testing::TestWithParam<Case> {};

TEST_P(GroupsTest, EveryMemberGetsTheBitsOfTheNaiveLoop) {
  const Groups& groups = GetParam().groups;
  const std::shared_ptr<const Codec> codec = make_codec(GetParam().codec);
  for (const std::size_t n : {1u, 4096u, 20001u, 300000u}) {
    const std::vector<float> expected =
        naive_mean_in_groups(*codec, all_of(groups.size()), groups, n, kRound);
    for (const bool shares : {false, true}) {
      PeerExchangeOptions options{.groups = groups};
      for (std::uint32_t m = 0; shares && m < groups.size(); ++m) options.shares.push_back(m);
      run_in_process(static_cast<int>(groups.size()), options, [&](WorkerContext& context) {
        const auto result =
            context.exchange.wait(context.exchange.begin(contribution_of(
                                      codec, context.rank, n, kRound, ReductionKind::kReduce)),
                                  60s);
        ASSERT_TRUE(result.has_value()) << result.error().what;
        EXPECT_EQ(result->values, expected) << "worker " << context.rank.value() << " n " << n;
        EXPECT_EQ(result->contributors, all_of(groups.size()));
      });
    }
  }
}

std::vector<Case> cases() {
  std::vector<Case> result;
  for (const std::string codec : {"fp32", "bf16", "int8:256", "int4:64:rounding=stochastic"}) {
    for (const auto& [name, groups] :
         std::map<std::string, Groups>{{"TwoPairs", {0, 0, 1, 1}},
                                       {"Interleaved", {0, 1, 0, 1, 0}},
                                       {"PairAndTwoAlone", {7, 3, 3, 9}},
                                       {"ThreeGroups", {0, 0, 0, 1, 1, 2}},
                                       {"OneGroup", {4, 4, 4}},
                                       {"AllAlone", {2, 1, 0}}}) {
      std::string plain = codec;
      std::ranges::replace_if(
          plain, [](char c) { return c == ':' || c == '='; }, '_');
      result.push_back({plain + name, groups, codec});
    }
  }
  return result;
}
INSTANTIATE_TEST_SUITE_P(GroupingsAndCodecs, GroupsTest, ::testing::ValuesIn(cases()),
                         [](const auto& each) { return each.param.name; });

// Means of means in fp64, by tokens; a group whose members all give nothing has no part in it.
TEST(Groups, WeightsAreThoseOfTheContributors) {
  const std::shared_ptr<const Codec> codec = make_codec("fp32");
  constexpr std::size_t kValues = 9000;
  const Groups groups = {0, 0, 1, 1, 2, 2};
  const std::vector<double> weights = {3, 1.5, 0, 2, 0, 0};
  std::vector<double> expected(kValues);
  for (std::size_t m = 0; m < weights.size(); ++m) {
    const std::vector<float> x = test_vector(WorkerId(static_cast<int>(m)), kValues);
    for (std::size_t i = 0; i < kValues; ++i) expected[i] += weights[m] * x[i] / 6.5;
  }
  std::vector<std::vector<float>> results(groups.size());
  run_in_process(6, PeerExchangeOptions{.groups = groups}, [&](WorkerContext& context) {
    const auto m = static_cast<std::size_t>(context.rank.value());
    Contribution mine =
        contribution_of(codec, context.rank, kValues, kRound, ReductionKind::kReduce);
    mine.weight = weights[m];
    const auto result = context.exchange.wait(context.exchange.begin(std::move(mine)), 60s);
    ASSERT_TRUE(result.has_value()) << result.error().what;
    EXPECT_THAT(result->contributors, ElementsAre(WorkerId(0), WorkerId(1), WorkerId(3)));
    results[m] = result->values;
  });
  for (const std::vector<float>& result : results) EXPECT_EQ(result, results.front());
  for (std::size_t i = 0; i < kValues; ++i) {
    ASSERT_NEAR(results.front()[i], expected[i], 8 * 0x1p-24)
        << i;  // a few roundings of values < 1
  }
}

TEST(Groups, NobodyContributingGivesZeros) {
  const std::shared_ptr<const Codec> codec = make_codec("int8:256");
  run_in_process(4, PeerExchangeOptions{.groups = {0, 0, 1, 1}}, [&](WorkerContext& context) {
    Contribution mine = contribution_of(codec, context.rank, 5000, kRound, ReductionKind::kReduce);
    mine.weight = 0;
    const auto result = context.exchange.wait(context.exchange.begin(std::move(mine)), 60s);
    ASSERT_TRUE(result.has_value()) << result.error().what;
    EXPECT_TRUE(result->contributors.empty());
    EXPECT_EQ(result->values, std::vector<float>(5000, 0.0f));
  });
}

// Between a group of s and the M - s others each member carries 1/s of their parts, as partials out
// and results back, and its own 1/M of the vector to and from each other group.
TEST(Groups, BytesFollowTheFormula) {
  const std::shared_ptr<const Codec> codec = make_codec("int4");
  const Groups groups = {0, 0, 1, 1, 1, 1};
  constexpr std::size_t kMembers = 6;
  constexpr std::size_t kTiles = kMembers * 4 * 40;
  const double whole = static_cast<double>(encoded_bytes(*codec, kTiles * kTileValues));
  run_in_process(kMembers, PeerExchangeOptions{.groups = groups}, [&](WorkerContext& context) {
    const auto result = context.exchange.wait(
        context.exchange.begin(contribution_of(codec, context.rank, kTiles * kTileValues, kRound,
                                               ReductionKind::kReduce)),
        60s);
    ASSERT_TRUE(result.has_value());
    const double s = context.rank.value() < 2 ? 2 : 4;
    const double owned = whole / kMembers;
    const double collected = (whole - s * owned) / s;        // for the other group's owners
    const double contributions = whole - owned - collected;  // of which it does not take care
    const double results = (s - 1) * (owned + collected);    // within its group
    const double between = collected + owned;                // partials out, results out
    // Collectors take turns by whole parts.
    EXPECT_NEAR(static_cast<double>(result->payload_bytes), contributions + results + between,
                4 * static_cast<double>(kMinPartBytes));
  });
}

TEST(Groups, LinksBetweenGroupsCarryEvenShares) {
  const std::shared_ptr<const Codec> codec = make_codec("fp32");
  constexpr std::size_t kValues = std::size_t{1} << 22;
  ReductionPlan plan = make_reduction_plan(*codec, kValues, 6, ReductionKind::kReduce);
  const std::uint32_t before = plan.layout;
  add_groups(plan, Groups{0, 1, 0, 1, 1, 0}, {}, {});
  ASSERT_TRUE(plan.two_levels());
  EXPECT_NE(plan.layout, before);
  std::map<std::pair<int, int>, std::size_t> bytes;  // collector, owner
  for (std::size_t k = 0; k < plan.parts.size(); ++k) {
    for (std::size_t g = 0; g < 2; ++g) {
      const WorkerId collector = plan.collector(k, g);
      EXPECT_NE(std::ranges::find(plan.groups[g], collector), plan.groups[g].end());
      bytes[{collector.value(), plan.parts[k].owner.value()}] += plan.parts[k].bytes;
    }
  }
  // Nine links each way between three and three, and each member's own parts.
  EXPECT_EQ(bytes.size(), 2u * 9 + 6);
  for (const auto& [link, carried] : bytes) {
    const double share = link.first == link.second ? 1.0 / 6 : 1.0 / 18;
    EXPECT_NEAR(static_cast<double>(carried), 4.0 * kValues * share, 2.0 * kMinPartBytes)
        << link.first << " " << link.second;
  }
}

TEST(Groups, WhoOwnsNothingCollectsForNobody) {
  const std::shared_ptr<const Codec> codec = make_codec("fp32");
  const std::vector<std::uint32_t> shares = {1, 0, 1, 0};
  ReductionPlan plan = make_reduction_plan(*codec, 400000, 4, ReductionKind::kReduce, shares);
  add_groups(plan, Groups{0, 0, 1, 1}, {}, shares);
  for (const WorkerId collector : plan.collectors) EXPECT_EQ(collector.value() % 2, 0);
}

// Members begin rounds at random moments on a network that drops, repeats, damages and reorders.
TEST(Groups, EveryMemberGetsTheSameBitsWhateverTheNetworkDoes) {
  const Faults faults{.drop = 0.2, .repeat = 0.2, .damage = 0.1, .delay = 5ms, .jitter = 300ms};
  for (const std::uint64_t seed : sweep_seeds(60)) {
    const SweptSchedule schedule(seed);
    const std::shared_ptr<const Codec> codec = make_codec(seed % 3 == 0 ? "int8:256" : "fp32");
    const Groups groups = seed % 2 == 0 ? Groups{0, 0, 1, 1} : Groups{0, 1, 1, 0, 2};
    const auto members = static_cast<int>(groups.size());
    const bool keeps_all = seed % 5 == 0;  // then nothing may have to be asked for again
    EngineNet net(members, seed, keeps_all ? Faults{.delay = 5ms, .per_kilobyte = 50us} : faults,
                  false, 1, keeps_all ? Duration(24h) : Duration(100ms), false, groups);
    constexpr int kRounds = 4;
    const auto id_of = [](int round) {
      return SyncId{FragmentId(round % 2), StepIndex(1 + round / 2)};
    };
    std::vector<int> begun(groups.size()), taken(groups.size());
    int left = members;
    for (int guard = 0; guard < 200000 && left > 0; ++guard) {
      for (int m = 0; m < members; ++m) {
        int& b = begun[static_cast<std::size_t>(m)];
        int& t = taken[static_cast<std::size_t>(m)];
        if (b < kRounds && net.uniform() < 0.2) {
          Contribution mine =
              contribution_of(codec, WorkerId(m), 30000, id_of(b), ReductionKind::kReduce);
          mine.commit = seed % 4 != 0 || b + 1 == kRounds;
          net.begin(m, std::move(mine));
          ++b;
        }
        if (t < b && net.engine(m).ready(id_of(t))) {
          const auto result = net.engine(m).take(id_of(t));
          ASSERT_TRUE(result.has_value()) << "seed " << seed << ": " << result.error().what;
          ASSERT_EQ(result->values,
                    naive_mean_in_groups(*codec, all_of(groups.size()), groups, 30000, {}))
              << "seed " << seed << " member " << m << " round " << t;
          left -= ++t == kRounds ? 1 : 0;
        }
      }
      if (!keeps_all || net.busy()) (void)net.advance();
    }
    ASSERT_EQ(left, 0) << "seed " << seed;
    EXPECT_TRUE(!keeps_all || net.most_repeated_data_frame() == 1) << "seed " << seed;
  }
}

TEST(Groups, UnlikeGroupsShowAtOnce) {
  const std::shared_ptr<const Codec> codec = make_codec("fp32");
  EngineNet one(4, 1, {}, false, 1, 100ms, false, {0, 0, 1, 1});
  EngineNet other(4, 1, {}, false, 1, 100ms, false, {0, 1, 1, 0});
  Outbox out;
  const auto begin = [&](EngineNet& net, int m, Outbox& into) {
    Contribution mine = contribution_of(codec, WorkerId(m), 9000, kRound, ReductionKind::kReduce);
    Round round(std::move(mine), net.engine(m).rounds().place(kRound));
    net.engine(m).begin(std::move(round), true, std::nullopt, net.now(), into);
  };
  begin(one, 0, out);
  Outbox frames;
  begin(other, 3, frames);
  for (const Outgoing& frame : frames) {
    if (frame.to == WorkerId(0)) one.engine(0).receive(WorkerId(3), frame.frame, one.now(), out);
  }
  ASSERT_TRUE(one.engine(0).ready(kRound));
  EXPECT_THAT(one.engine(0).take(kRound).error().what, HasSubstr("another layout"));
}

// What a group's member says of others, or of its weight, is not believed.
TEST(Groups, AForgedPartialEndsTheRound) {
  const std::shared_ptr<const Codec> codec = make_codec("fp32");
  for (const std::string lie : {"bits", "none", "weight", "size"}) {
    EngineNet net(4, 1, {}, false, 1, 100ms, false, {0, 0, 1, 1});
    int partials = 0;
    net.forge = [&](int from, const FrameBytes& frame) {
      const Frame parsed = *parse_frame(*frame);
      if (parsed.header.kind != FrameKind::kPartial || from != 2) return frame;
      FrameHeader head = parsed.header;
      std::vector<std::byte> payload(parsed.payload.begin(), parsed.payload.end());
      if (lie == "bits") payload[0] = std::byte{0b1101};
      if (lie == "none") payload[0] = std::byte{0};
      if (lie == "weight") head.weight = ++partials;
      if (lie == "size") payload.pop_back();
      return make_frame(head, payload);
    };
    for (int m = 0; m < 4; ++m) {
      net.begin(m, contribution_of(codec, WorkerId(m), 400000, kRound, ReductionKind::kReduce));
    }
    while (!net.engine(3).ready(kRound)) ASSERT_TRUE(net.advance());
    const auto result = net.engine(3).take(kRound);
    ASSERT_FALSE(result.has_value()) << lie;
    EXPECT_THAT(result.error().what, HasSubstr("worker 2")) << lie;
  }
}

// Three encodings instead of two: with vectors that have nothing in common each adds as much noise
// as the last, relative to what it encodes, so the error grows by sqrt(3 / 2).
TEST(Groups, TheThirdEncodingAddsAsMuchNoiseAsEachOfTheOthers) {
  const std::shared_ptr<const Codec> codec = make_codec("int4:64");
  constexpr std::size_t kValues = 400000;
  std::vector<float> exact(kValues);
  for (const WorkerId m : all_of(4)) {
    const std::vector<float> x = test_vector(m, kValues);
    for (std::size_t i = 0; i < kValues; ++i) exact[i] += x[i] / 4;
  }
  const auto error = [&](const std::vector<float>& mean) {
    double sum = 0;
    for (std::size_t i = 0; i < kValues; ++i) sum += std::pow(mean[i] - exact[i], 2);
    return std::sqrt(sum / kValues);
  };
  const double direct = error(naive_mean(*codec, 4, kValues, ReductionKind::kReduce));
  const double groups = error(naive_mean_in_groups(*codec, all_of(4), {0, 0, 1, 1}, kValues));
  RecordProperty("direct", fmt::format("{}", direct));
  RecordProperty("groups", fmt::format("{}", groups));
  EXPECT_NEAR(groups / direct, std::sqrt(1.5), 0.06);
}

}  // namespace
}  // namespace isthmus::this_file
