// SPDX-License-Identifier: Apache-2.0
// The exchange protocol on a hostile network: engines joined by a seeded event queue that drops,
// repeats, delays, reorders and damages frames. Whatever happens, every member ends with the bits
// of the naive mean, or learns who is gone.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <functional>
#include <map>

#include "sweep_seeds.h"
#include "transport/engine_net.h"
#include "transport/naive_mean.h"

namespace isthmus::this_file {
namespace {

using namespace std::chrono_literals;
using testing_support::contribution_of;
using testing_support::EngineNet;
using testing_support::Faults;
using testing_support::naive_mean;
using testing_support::result_of;
using testing_support::sweep_seeds;
using testing_support::SweptSchedule;

constexpr std::array kKinds = {ReductionKind::kReduce, ReductionKind::kGather,
                               ReductionKind::kCollect};

struct Plan {
  int members = 3;
  ReductionKind kind = ReductionKind::kReduce;
  std::string codec = "fp32";
  int rounds = 4;
  std::size_t values = 9000;
  bool every_step = false;  // like ddp: one commit at the end
};

// Every member begins the rounds one by one at random moments; all results are checked.
void run_rounds(EngineNet& net, const Plan& plan, std::uint64_t seed) {
  const std::shared_ptr<const Codec> codec = make_codec(plan.codec);
  std::map<std::size_t, std::vector<float>> expected;
  const auto size_of = [&](int round) {
    return plan.values + static_cast<std::size_t>(round % 3) * 4000;
  };
  for (int round = 0; round < plan.rounds; ++round) {
    expected.try_emplace(size_of(round),
                         naive_mean(*codec, plan.members, size_of(round), plan.kind));
  }
  std::vector<int> begun(static_cast<std::size_t>(plan.members));
  std::vector<int> taken(static_cast<std::size_t>(plan.members));
  const auto id_of = [](int round) {
    return SyncId{FragmentId(round % 2), StepIndex(1 + round / 2)};
  };
  for (int guard = 0; guard < 200000; ++guard) {
    bool finished = true;
    for (int m = 0; m < plan.members; ++m) {
      int& b = begun[static_cast<std::size_t>(m)];
      int& t = taken[static_cast<std::size_t>(m)];
      if (b < plan.rounds && b < t + 3 && net.uniform() < 0.2) {
        Contribution mine = contribution_of(codec, WorkerId(m), size_of(b), id_of(b), plan.kind);
        mine.commit = !plan.every_step || b + 1 == plan.rounds;
        net.begin(m, std::move(mine));
        ++b;
      }
      if (t < b && net.engine(m).ready(id_of(t))) {
        const auto result = net.engine(m).take(id_of(t));
        ASSERT_TRUE(result.has_value()) << "seed " << seed << ": " << result.error().what;
        ASSERT_EQ(result_of(*codec, *result), expected.at(size_of(t)))
            << "seed " << seed << " member " << m << " round " << t;
        ++t;
      }
      finished = finished && t == plan.rounds;
    }
    if (finished) {
      return;
    }
    (void)net.advance();
  }
  FAIL() << "seed " << seed << ": no end after "
         << std::chrono::duration<double>(net.now().time_since_epoch()).count() << " s";
}

constexpr int kSeeds = 60;

/// Rounds over networks that lose, repeat, damage and delay. `most_unused(seed)`: see EngineNet.
void sweep_networks(const std::function<std::size_t(std::uint64_t seed)>& most_unused) {
  const Faults faults{.drop = 0.2, .repeat = 0.2, .damage = 0.1, .delay = 5ms, .jitter = 300ms};
  for (const std::uint64_t seed : sweep_seeds(kSeeds)) {
    const SweptSchedule schedule(seed);
    const Plan plan{.members = 2 + static_cast<int>(seed % 4),
                    .kind = kKinds[seed % 3],
                    .codec = seed % 4 == 0 ? "int8:256" : "fp32",
                    .every_step = seed % 5 == 0};
    EngineNet net(plan.members, seed, faults, false, 1, 100ms, false, {}, {}, {}, false,
                  most_unused(seed));
    run_rounds(net, plan, seed);
  }
}

TEST(ExchangeEngine, EveryMemberGetsTheSameBitsWhateverTheNetworkDoes) {
  sweep_networks([](std::uint64_t) { return kNoBound; });
}

TEST(ExchangeEngine, EveryMemberGetsTheSameBitsWhereContributionsWait) {
  sweep_networks([](std::uint64_t seed) -> std::size_t { return seed % 2 == 0 ? 1 : 40000; });
}

// A member waits for a third one: of the second one's contribution no more than the bound comes
// meanwhile, also where the member asks for what is missing.
TEST(ExchangeEngine, OfARoundThatWaitsForALateMemberNoMoreThanTheBoundIsSent) {
  const std::shared_ptr<const Codec> codec = make_codec("fp32");
  constexpr std::size_t kTile = kTileValues * sizeof(float);
  constexpr std::size_t kValues = 50 * kTileValues - 7;
  const SyncId id{FragmentId(0), StepIndex(1)};
  for (const ReductionKind kind : kKinds) {
    EngineNet net(3, 1, {}, false, 1, 100ms, false, {}, {}, {}, false, 3 * kTile);
    std::map<int, std::size_t> contributed;  // bytes, by sender
    net.forge = [&](int from, const FrameBytes& frame) {
      const bool counts = parse_frame(*frame)->header.kind == FrameKind::kContribution;
      contributed[from] += counts ? payload_of(frame).size() : 0;
      return frame;
    };
    for (int m = 0; m < 2; ++m)
      net.begin(m, contribution_of(codec, WorkerId(m), kValues, id, kind));
    for (int k = 0; k < 500; ++k) (void)net.advance();
    EXPECT_EQ(contributed[0], 2 * 3 * kTile);
    EXPECT_EQ(contributed[1], 2 * 3 * kTile);
    net.begin(2, contribution_of(codec, WorkerId(2), kValues, id, kind));
    for (int k = 0; k < 2000 && !net.engine(2).ready(id); ++k) (void)net.advance();
    ASSERT_TRUE(net.engine(2).ready(id));
    EXPECT_EQ(result_of(*codec, *net.engine(2).take(id)), naive_mean(*codec, 3, kValues, kind));
  }
}

struct FaultCase {
  std::string name;
  Faults faults;
};
class OneFault : public ::testing::TestWithParam<FaultCase> {};
TEST_P(OneFault, IsSurvived) {
  for (std::uint64_t seed = 100; seed < 112; ++seed) {
    const Plan plan{.members = 3, .kind = kKinds[seed % 3]};
    EngineNet net(plan.members, seed, GetParam().faults);
    run_rounds(net, plan, seed);
  }
}
INSTANTIATE_TEST_SUITE_P(Kinds, OneFault,
                         ::testing::Values(FaultCase{"Drop", {.drop = 0.5}},
                                           FaultCase{"Repeat", {.repeat = 1}},
                                           FaultCase{"Damage", {.damage = 0.5}},
                                           FaultCase{"Reorder", {.jitter = 2s}},
                                           FaultCase{"Delay", {.delay = 5s}}),
                         [](const auto& fault) { return fault.param.name; });

// A link so slow that every frame takes many retry intervals: late is not lost, nothing goes twice.
TEST(ExchangeEngine, ASlowLinkCausesNoRepetition) {
  for (const ReductionKind kind : kKinds) {
    const Plan plan{.members = 3, .kind = kind, .rounds = 6, .values = 1000000};
    EngineNet net(plan.members, 7, {.delay = 1s, .per_kilobyte = 6ms});
    run_rounds(net, plan, 7);
    EXPECT_EQ(net.most_repeated_data_frame(), 1);
  }
}

// A request names an echo that was never sent: what is under way is not sent again for it.
TEST(ExchangeEngine, AClaimedEchoCausesNoRepetition) {
  EngineNet net(2, 1, {.delay = 10s});
  const SyncId id{FragmentId(0), StepIndex(1)};
  net.begin(0, contribution_of(std::shared_ptr<const Codec>(make_codec("fp32")), WorkerId(0), 20000,
                               id, ReductionKind::kGather));
  net.deliver(1, 0,
              make_frame({.kind = FrameKind::kRequest, .id = id, .part = 0xffffffff},
                         write_request(std::array{RequestEntry{FrameKind::kContribution, 0, 1}})));
  EXPECT_EQ(net.most_repeated_data_frame(), 1);
}

// What comes before the own begin is kept, not asked for again.
TEST(ExchangeEngine, FramesOfRoundsNotYetBegunAreKept) {
  const std::shared_ptr<const Codec> codec = make_codec("fp32");
  for (const ReductionKind kind : kKinds) {
    EngineNet net(3, 1, {});
    const SyncId id{FragmentId(0), StepIndex(1)};
    for (int m = 0; m < 3; ++m) {
      net.begin(m, contribution_of(codec, WorkerId(m), 20000, id, kind));
      for (int k = 0; k < 30 && !net.engine(m).ready(id); ++k) {
        (void)net.advance();
      }
    }
    for (int m = 0; m < 3; ++m) {
      ASSERT_TRUE(net.engine(m).ready(id));
    }
    EXPECT_EQ(net.most_repeated_data_frame(), 1);
  }
}

/// What `from` would send to `to` if it contributed `rank`'s vector in `codec`.
std::vector<FrameBytes> forged_frames(EngineNet& net, WorkerId from, WorkerId to, WorkerId rank,
                                      const std::shared_ptr<const Codec>& codec, SyncId id,
                                      ReductionKind kind) {
  Round forgery(contribution_of(codec, rank, 100, id, kind),
                net.engine(from.value()).rounds().place(id));
  Outbox out;
  EXPECT_TRUE(forgery.launch(out).has_value());
  std::vector<FrameBytes> frames;
  for (const Outgoing& frame : out) {
    if (frame.to == to) {
      frames.push_back(frame.frame);
    }
  }
  return frames;
}

/// Member 2 is given forged frames of member 1; then all go on. Everyone must get the same error.
void expect_everyone_gets(const std::shared_ptr<const Codec>& forged_codec,
                          const std::vector<std::string>& texts, ReductionKind kind) {
  const std::shared_ptr<const Codec> codec = make_codec("fp32");
  const SyncId id{FragmentId(0), StepIndex(1)};
  EngineNet net(3, 1, {});
  net.begin(2, contribution_of(codec, WorkerId(2), 100, id, kind));
  for (const FrameBytes& frame :
       forged_frames(net, WorkerId(1), WorkerId(2), WorkerId(0), forged_codec, id, kind)) {
    net.deliver(1, 2, frame);
  }
  for (int m = 0; m < 2; ++m) {
    net.begin(m, contribution_of(codec, WorkerId(m), 100, id, kind));
  }
  for (int k = 0; k < 1000 && net.advance(); ++k) {
  }
  for (int m = 0; m < 3; ++m) {
    ASSERT_TRUE(net.engine(m).ready(id)) << "member " << m;
    const auto result = net.engine(m).take(id);
    ASSERT_FALSE(result.has_value());
    EXPECT_EQ(result.error().kind, ExchangeError::Kind::kDiverged);
    for (const std::string& text : texts) {
      EXPECT_THAT(result.error().what, ::testing::HasSubstr(text));
    }
  }
}

TEST(ExchangeEngine, AnUnlikeResultIsNamedToAll) {
  for (const ReductionKind kind : {ReductionKind::kGather, ReductionKind::kCollect}) {
    expect_everyone_gets(make_codec("fp32"), {"results of fragment 0 of step 1 differ", "worker 2"},
                         kind);
  }
}

TEST(ExchangeEngine, WhoCannotGoOnTellsAll) {
  for (const ReductionKind kind : {ReductionKind::kGather, ReductionKind::kCollect}) {
    expect_everyone_gets(make_codec("bf16"), {"worker 1 sent it in another layout"}, kind);
  }
}

// Killed at any moment, a member leaves the others with a result or with an error, never waiting.
TEST(ExchangeEngine, ADeathAtAnyMomentEndsEveryWait) {
  const std::shared_ptr<const Codec> codec = make_codec("fp32");
  const SyncId id{FragmentId(0), StepIndex(1)};
  for (int victim = 0; victim < 3; ++victim) {
    for (int moment = 0; moment < 30; ++moment) {
      EngineNet net(3, static_cast<std::uint64_t>(moment), {.jitter = 3ms});
      for (int m = 0; m < 3; ++m) {
        net.begin(m, contribution_of(codec, WorkerId(m), 20000, id, kKinds[moment % 3]));
      }
      for (int k = 0; k < moment; ++k) {
        (void)net.advance();
      }
      net.kill(victim);
      for (int k = 0; k < 1000 && net.advance(); ++k) {
      }
      int results = 0;
      for (int m = 0; m < 3; ++m) {
        if (m == victim) {
          continue;
        }
        ASSERT_TRUE(net.engine(m).ready(id)) << "victim " << victim << " moment " << moment;
        const auto result = net.engine(m).take(id);
        results += result.has_value() ? 1 : 0;
        if (!result) {
          EXPECT_EQ(result.error().kind, ExchangeError::Kind::kPeerLost);
          EXPECT_EQ(result.error().peer, WorkerId(victim));
        }
      }
      // Only the death of member 0, who holds the verdict, can split the others.
      if (victim != 0) {
        EXPECT_TRUE(results == 0 || results == 2) << "victim " << victim << " moment " << moment;
      }
    }
  }
}

TEST(ExchangeEngine, ForeignEpochsAndRubbishAreIgnored) {
  const std::shared_ptr<const Codec> codec = make_codec("fp32");
  EngineNet net(2, 1, {});
  const SyncId id{FragmentId(0), StepIndex(1)};
  net.begin(0, contribution_of(codec, WorkerId(0), 100, id, ReductionKind::kGather));
  Outbox out;
  const FrameBytes foreign = make_frame({.kind = FrameKind::kCommit, .epoch = 9, .id = id});
  net.engine(0).receive(WorkerId(1), foreign, net.now(), out);
  net.engine(0).receive(WorkerId(1), std::make_shared<const std::vector<std::byte>>(300), net.now(),
                        out);
  net.engine(0).receive(WorkerId(1), make_frame({.kind = FrameKind::kCommit, .id = id}), net.now(),
                        out);
  EXPECT_FALSE(net.engine(0).ready(id));
  EXPECT_TRUE(out.empty());
}

}  // namespace
}  // namespace isthmus::this_file
