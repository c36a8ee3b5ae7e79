// SPDX-License-Identifier: Apache-2.0
// late = "slip": training goes on without a result that is due and not there.
#include "outer/parts/late_rounds.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <map>
#include <mutex>

#include "outer/late_exchange.h"
#include "outer/toy_loops.h"
#include "sim/run_simulated.h"

namespace isthmus::this_file {
namespace {

using namespace std::chrono_literals;
using testing_support::anchors_of;
using testing_support::LateExchange;
using testing_support::MemoryState;
using testing_support::QuadraticLoop;

constexpr int kWorkers = 3;
constexpr int kSteps = 30;
constexpr std::int64_t kH = 6;
constexpr std::int64_t kOverlap = 1;
constexpr std::int64_t kFragments = 3;  // two of layers, one of what is in none

OuterOptions streaming(LateRound late) {
  return {.H = kH, .fragments = 2, .overlap = kOverlap, .late = late};
}

QuadraticLoop::Options small_model(int worker) {
  QuadraticLoop::Options options;
  options.tensors = {{kNoLayer, 500}, {0, 900}, {1, 700}, {2, 1}};
  options.center = 0.25f * static_cast<float>(worker);
  options.noise = 0.5f;
  options.worker = worker;
  return options;
}

struct Outcome {
  std::vector<std::vector<float>> anchors = std::vector<std::vector<float>>(kWorkers);
  std::vector<std::vector<float>> locals = std::vector<std::vector<float>>(kWorkers);
  std::vector<std::vector<RoundReport>> rounds = std::vector<std::vector<RoundReport>>(kWorkers);
  SimulationResult result;
};

/// Steps of 100 ms over links of 10 Mbit/s and 5 ms, whose frames take up to `jitter` longer.
Outcome simulate(LateRound late, Duration jitter, std::uint64_t seed = 1) {
  Outcome run;
  SimulationOptions options{.workers = kWorkers, .seed = seed};
  options.links =
      uniform_links(kWorkers, {.bits_per_s = 10'000'000, .one_way = 5ms, .jitter = jitter});
  run.result = run_simulated(options, [&](WorkerContext& context) {
    const auto w = static_cast<std::size_t>(context.rank.value());
    QuadraticLoop inner(small_model(context.rank.value()));
    const auto strategy =
        make_outer_strategy("streaming-diloco", streaming(late), inner, context.exchange);
    const auto keep = [&](const std::vector<RoundReport>& rounds) {
      run.rounds[w].insert(run.rounds[w].end(), rounds.begin(), rounds.end());
    };
    for (int t = 1; t <= kSteps; ++t) {
      context.runtime.compute(100ms, [] {});
      keep(strategy->step().rounds);
    }
    keep(strategy->finish());
    run.anchors[w] = anchors_of(*strategy, inner);
    run.locals[w] = inner.all();
  });
  return run;
}

/// (fragment, send step, apply step)
using Applied = std::array<std::int64_t, 3>;
std::vector<Applied> applied(const std::vector<RoundReport>& rounds) {
  std::vector<Applied> all;
  for (const RoundReport& each : rounds) {
    all.push_back({each.fragment.value(), each.sent.value(), each.applied.value()});
  }
  return all;
}

TEST(LateRounds, WhereNothingIsLateSlippingIsWaiting) {
  const Outcome waits = simulate(LateRound::kWait, 0ms);
  const Outcome slips = simulate(LateRound::kSlip, 0ms);
  EXPECT_EQ(slips.anchors, waits.anchors);
  EXPECT_EQ(slips.locals, waits.locals);
  EXPECT_EQ(slips.result.duration, waits.result.duration);
  for (std::size_t w = 0; w < kWorkers; ++w) {
    EXPECT_EQ(applied(slips.rounds[w]), applied(waits.rounds[w])) << w;
  }
}

// The steps alone take 3 s. A round takes four frames one after another, each up to four
// steps late.
TEST(LateRounds, AJitteryLinkCostsLessTimeThanWaitingForIt) {
  for (std::uint64_t seed = 1; seed <= 5; ++seed) {
    const Outcome waits = simulate(LateRound::kWait, 400ms, seed);
    const Outcome slips = simulate(LateRound::kSlip, 400ms, seed);
    RecordProperty("wait_ms_" + std::to_string(seed),
                   static_cast<int>(waits.result.duration / 1ms));
    RecordProperty("slip_ms_" + std::to_string(seed),
                   static_cast<int>(slips.result.duration / 1ms));
    EXPECT_LT(slips.result.duration, waits.result.duration - 1s) << "seed " << seed;
  }
}

TEST(LateRounds, EveryMemberAppliesEveryRoundOnceAndInOrder) {
  int slipped = 0, unlike = 0;
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    const Outcome run = simulate(LateRound::kSlip, 400ms, seed);
    EXPECT_EQ(run.anchors[1], run.anchors[0]) << "seed " << seed;
    EXPECT_EQ(run.anchors[2], run.anchors[0]) << "seed " << seed;
    for (std::size_t w = 0; w < kWorkers; ++w) {
      std::map<int, std::vector<std::int64_t>> sends;  // by fragment
      for (const RoundReport& each : run.rounds[w]) {
        const std::int64_t age = each.applied.value() - each.sent.value();
        sends[each.fragment.value()].push_back(each.sent.value());
        EXPECT_LE(age, kH);
        EXPECT_TRUE(age >= kOverlap || each.applied.value() == kSteps) << age;
        EXPECT_EQ(each.members, kWorkers);
        slipped += age > kOverlap ? 1 : 0;
      }
      for (int p = 0; p < kFragments; ++p) {
        std::vector<std::int64_t> due;  // by the schedule: t = floor(p H / F) (mod H)
        for (std::int64_t t = 1; t <= kSteps; ++t) {
          if (t % kH == p * kH / kFragments) due.push_back(t);
        }
        if (due.back() != kSteps) due.push_back(kSteps);  // the closing round
        EXPECT_EQ(sends[p], due) << "seed " << seed << " worker " << w << " fragment " << p;
      }
    }
    unlike += applied(run.rounds[0]) != applied(run.rounds[1]) ? 1 : 0;
  }
  EXPECT_GT(slipped, 0);
  EXPECT_GT(unlike, 0) << "members apply at steps of their own";
}

TEST(LateRounds, InVirtualTimeTheSameSeedGivesTheSameSlips) {
  const Outcome one = simulate(LateRound::kSlip, 400ms, 7);
  const Outcome two = simulate(LateRound::kSlip, 400ms, 7);
  EXPECT_EQ(one.result.trace_hash, two.result.trace_hash);
  EXPECT_EQ(one.anchors, two.anchors);
  EXPECT_EQ(one.locals, two.locals);
  for (std::size_t w = 0; w < kWorkers; ++w) {
    EXPECT_EQ(applied(one.rounds[w]), applied(two.rounds[w]));
  }
}

/// How many steps after its send worker `w` finds a result there; up to more than H.
std::int64_t lateness(int worker, const SyncId& id) {
  return (id.sent.value() * 7 + id.fragment.value() * 3 + worker * 5) % (kH + 3);
}

/// A run of two workers whose results are late by `lateness`, and what became of it, by worker.
struct Scripted {
  int steps = 26;
  int meet_every = 0;              // steps after which nothing may be late; 0: never
  bool alike = false;              // both workers as worker 0
  bool ends = true;                // with finish()
  const Scripted* from = nullptr;  // its checkpoint goes on
  std::array<std::vector<RoundReport>, 2> rounds = {};
  std::array<std::map<int, std::vector<float>>, 2> seen = {};   // anchors after each step
  std::array<std::vector<float>, 2> anchors = {}, locals = {};  // at the end
  mutable std::array<MemoryState, 2> saved = {};                // the same
};

void run(Scripted& script, const std::function<QuadraticLoop::Options(int)>& loop) {
  run_in_process(2, [&](WorkerContext& context) {
    const int worker = context.rank.value();
    const auto w = static_cast<std::size_t>(worker);
    std::int64_t now = 0;
    LateExchange exchange(context.exchange, [&](const SyncId& id) {
      return now >= id.sent.value() + lateness(script.alike ? 0 : worker, id);
    });
    QuadraticLoop inner(loop(worker));
    const auto strategy =
        make_outer_strategy("streaming-diloco", streaming(LateRound::kSlip), inner, exchange);
    if (script.from != nullptr) {
      inner.set(script.from->locals[w]);
      strategy->load(script.from->saved[w]);
    }
    const auto keep = [&](const std::vector<RoundReport>& rounds) {
      script.rounds[w].insert(script.rounds[w].end(), rounds.begin(), rounds.end());
    };
    for (now = strategy->steps().value() + 1; now <= script.steps; ++now) {
      keep(strategy->step().rounds);
      if (script.meet_every > 0 && now % script.meet_every == 0) {
        keep(outer::apply_late(*strategy));
      }
      script.seen[w][static_cast<int>(now)] = anchors_of(*strategy, inner);
    }
    if (script.ends) keep(strategy->finish());
    script.anchors[w] = anchors_of(*strategy, inner);
    script.locals[w] = inner.all();
    if (!script.ends) strategy->save(script.saved[w]);
  });
}

// The algorithm by hand in fp64, a scalar a fragment; when what is applied is taken from the run.
TEST(LateRounds, ASlippedRoundMovesWhatThePaperSaysLater) {
  constexpr double kCenters[] = {1, -3};
  constexpr double kRate = 0.1, kEta = 0.4, kMu = 0.9, kAlpha = 0.5;
  Scripted script;
  run(script, [&](int worker) {
    QuadraticLoop::Options options;
    options.tensors = {{0, 1}, {1, 1}, {kNoLayer, 1}};
    options.center = static_cast<float>(kCenters[worker]);
    options.worker = worker;
    return options;
  });
  struct Fragment {
    double theta = 0, anchor = 0, momentum = 0;
  };
  std::array<std::array<Fragment, kFragments>, 2> all{};
  for (auto& fragments : all) {
    for (std::size_t p = 0; p < kFragments; ++p) {
      const double start = 2 + static_cast<double>(p) / 64;
      fragments[p] = {.theta = start, .anchor = start};
    }
  }
  std::map<std::pair<std::int64_t, std::int64_t>, double> sums;  // of (fragment, send step)
  // Rounds are sent by both before either applies them, so worker by worker within a step will do.
  for (std::int64_t t = 1; t <= script.steps; ++t) {
    const auto apply = [&](std::size_t w, bool before_sends) {
      for (const Applied& each : applied(script.rounds[w])) {
        const auto [p, sent, at] = each;
        const bool sends_again = t % kH == p * kH / kFragments && sent < t;
        if (at != t || sent + kOverlap > t || sends_again != before_sends) continue;
        Fragment& f = all[w][static_cast<std::size_t>(p)];
        const double d = sums.at({p, sent}) / 2;
        f.momentum = kMu * f.momentum + d;
        f.anchor -= kEta * (d + kMu * f.momentum);
        f.theta = kAlpha * f.theta + (1 - kAlpha) * f.anchor;
      }
    };
    for (std::size_t w = 0; w < 2; ++w) {
      for (Fragment& f : all[w]) f.theta -= kRate * (f.theta - kCenters[w]);
      apply(w, true);
      for (std::int64_t p = 0; p < kFragments; ++p) {
        if (t % kH != p * kH / kFragments) continue;
        const Fragment& f = all[w][static_cast<std::size_t>(p)];
        sums[{p, t}] += f.anchor - f.theta;
      }
    }
    for (std::size_t w = 0; w < 2; ++w) {
      apply(w, false);
      if (t == script.steps) continue;  // the end applies more
      for (std::size_t p = 0; p < kFragments; ++p) {
        EXPECT_NEAR(script.seen[w].at(static_cast<int>(t))[p], all[w][p].anchor, 1e-5)
            << "worker " << w << " step " << t << " fragment " << p;
      }
    }
  }
}

TEST(LateRounds, BeforeAFragmentIsSentAgainItsRoundIsWaitedFor) {
  Scripted script;
  run(script, small_model);
  int at_the_next_send = 0;
  for (std::size_t w = 0; w < 2; ++w) {
    for (const RoundReport& each : script.rounds[w]) {
      const std::int64_t wanted = std::min<std::int64_t>(
          {std::max(kOverlap, lateness(static_cast<int>(w), {each.fragment, each.sent})) +
               each.sent.value(),
           each.sent.value() + kH, script.steps});
      EXPECT_EQ(each.applied.value(), wanted);
      at_the_next_send += each.applied.value() == each.sent.value() + kH ? 1 : 0;
    }
  }
  EXPECT_GT(at_the_next_send, 0);
  EXPECT_EQ(script.anchors[0], script.anchors[1]);
}

TEST(LateRounds, WhereWorkersMeetNothingIsLate) {
  constexpr int kMeet = 4;
  Scripted script;
  script.meet_every = kMeet;
  run(script, small_model);
  bool differed = false;
  for (int t = 1; t <= script.steps; ++t) {
    const bool same = script.seen[0].at(t) == script.seen[1].at(t);
    EXPECT_TRUE(same || t % kMeet != 0) << "step " << t;
    differed = differed || !same;
  }
  EXPECT_TRUE(differed);
  for (const RoundReport& each : script.rounds[0]) {
    const std::int64_t due = each.sent.value() + kOverlap;
    const std::int64_t meeting = (due + kMeet - 1) / kMeet * kMeet;
    EXPECT_LE(each.applied.value(), meeting);
  }
}

TEST(LateRounds, OthersHaveNoneThatIsLate) {
  run_in_process(2, [](WorkerContext& context) {
    QuadraticLoop inner(small_model(context.rank.value()));
    const auto strategy = make_outer_strategy("delayed", {.H = 2}, inner, context.exchange);
    for (int t = 1; t <= 3; ++t) (void)strategy->step();
    EXPECT_TRUE(outer::apply_late(*strategy).empty());
    (void)strategy->finish();
  });
}

// Saved after every step. Late by the same steps at both, so that they have the same rounds under
// way, as a checkpoint needs it; those that are late too.
TEST(LateRounds, ACheckpointHoldsThoseThatAreLate) {
  Scripted whole{.alike = true};
  run(whole, small_model);
  int late = 0;
  for (int at = 1; at < whole.steps; ++at) {
    Scripted part{.steps = at, .alike = true, .ends = false};
    run(part, small_model);
    late += static_cast<int>(std::ranges::count_if(whole.rounds[0], [&](const RoundReport& each) {
      return each.sent.value() + kOverlap <= at && each.applied.value() > at;
    }));
    Scripted rest{.alike = true, .from = &part};
    run(rest, small_model);
    EXPECT_EQ(rest.anchors, whole.anchors) << "saved after step " << at;
    EXPECT_EQ(rest.locals, whole.locals) << "saved after step " << at;
  }
  EXPECT_GT(late, 0);
}

TEST(LateRounds, AreRefusedWhereTheyMakeNoSense) {
  const auto refusal = [](const std::string& method, const OuterOptions& outer) -> std::string {
    std::string text;
    run_in_process(1, [&](WorkerContext& context) {
      QuadraticLoop inner(small_model(0));
      try {
        (void)make_outer_strategy(method, outer, inner, context.exchange);
      } catch (const ConfigError& error) {
        text = error.what();
      }
    });
    return text;
  };
  EXPECT_THAT(refusal("streaming-diloco", {.H = 4, .late = LateRound::kSlip}),
              testing::StartsWith("outer.late = slip: must be wait without overlap"));
  for (const char* method : {"diloco", "delayed", "eager", "co2", "ddp", "spsa", "sparseloco"}) {
    EXPECT_THAT(refusal(method, {.late = LateRound::kSlip}),
                testing::StartsWith("outer.late = slip: method"))
        << method;
  }
}

}  // namespace
}  // namespace isthmus::this_file
