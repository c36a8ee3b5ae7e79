// SPDX-License-Identifier: Apache-2.0
// Outer state that the ranks of a site share out: the bits of state that is whole at one process.
#include "outer/parts/lanes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "core/base/all_elements.h"
#include "outer/lane_ranks.h"
#include "outer/losing_exchange.h"
#include "outer/mirrored_loop.h"
#include "outer/parts/fragment_state.h"
#include "outer/parts/settings.h"
#include "outer/place/lane_fragment.h"
#include "outer/toy_loops.h"

namespace isthmus::this_file {
namespace {

using outer::lane_of;
using outer::LaneRange;
using outer::OuterFragment;
using outer::OuterGradient;
using testing_support::anchors_of;
using testing_support::LaneRanks;
using testing_support::LosingExchange;
using testing_support::MemoryState;
using testing_support::MirroredLoop;
using testing_support::QuadraticLoop;

constexpr int kRankCounts[] = {1, 2, 3, 8};  // of six tiles: with empty lanes, too

TEST(Lanes, HaveEachTileOnceInOrder) {
  for (const std::size_t n : {0UL, 1UL, 4095UL, 4096UL, 4097UL, 20000UL, 40960UL, 1000003UL}) {
    for (int ranks = 1; ranks <= 9; ++ranks) {
      std::size_t end = 0, most = 0, least = outer::tiles_of(n);
      for (int r = 0; r < ranks; ++r) {
        const LaneRange lane = lane_of(n, ranks, r);
        EXPECT_EQ(lane.begin, end) << n << " " << ranks << " " << r;
        EXPECT_GE(lane.end, lane.begin);
        EXPECT_TRUE(lane.end == n || lane.end % kTileValues == 0) << n << " " << ranks << " " << r;
        most = std::max(most, outer::tiles_of(lane.size()));
        least = std::min(least, outer::tiles_of(lane.size()));
        end = lane.end;
      }
      EXPECT_EQ(end, n);
      EXPECT_LE(most - least, 1U) << n << " " << ranks;
    }
  }
}

TEST(Lanes, OfFewerTilesThanRanksSomeAreEmpty) {
  EXPECT_EQ(lane_of(100, 3, 0).size(), 0U);
  EXPECT_EQ(lane_of(100, 3, 1).size(), 0U);
  EXPECT_EQ(lane_of(100, 3, 2), (LaneRange{0, 100}));
}

QuadraticLoop::Options small_model(int worker) {
  QuadraticLoop::Options options;
  options.tensors = {{kNoLayer, 5000}, {0, 300}, {0, 14100}, {1, 700},
                     {2, 1},           {3, 64},  {3, 900},   {kNoLayer, 33}};
  options.center = 0.25f * static_cast<float>(worker);
  options.noise = 0.5f;
  options.worker = worker;
  return options;
}

std::vector<std::string> spellings() {
  std::vector<std::string> all;
  for (const CodecInfo& info : codecs()) {
    for (const std::string more : {"", ":ef"}) {
      try {
        static_cast<void>(make_codec(info.name + more));
        all.push_back(info.name + more);
      } catch (const ConfigError&) {  // one that loses nothing
      }
    }
  }
  for (const char* const random : {"int8:rounding=stochastic", "int4:rounding=stochastic:ef"}) {
    all.emplace_back(random);
  }
  return all;
}

/// All that a fragment says and leaves while it lives through every call, in words.
struct Life {
  std::vector<std::vector<std::byte>> sent;
  std::vector<double> norms;
  std::vector<bool> answers;
  std::vector<std::optional<double>> errors, cosines;
  std::vector<std::vector<float>> values;
  MemoryState saved;
  bool operator==(const Life&) const = default;
};

void look(Life& life, const OuterFragment& fragment, InnerLoop& inner) {
  const std::span<const float> anchor = fragment.anchor();
  life.values.emplace_back(anchor.begin(), anchor.end());
  inner.read_values(all_elements(inner));
  std::vector<float> local;
  for (const Parameter& p : inner.parameters()) {
    local.insert(local.end(), p.values.begin(), p.values.end());
  }
  life.values.push_back(std::move(local));
}

Life live(OuterFragment& fragment, const Codec& codec, InnerLoop& inner) {
  Life life;
  const auto n = static_cast<std::size_t>(fragment.fragment().elements);
  const auto mean_of = [&](int round) {
    std::vector<float> mean(n);
    for (std::size_t i = 0; i < n; ++i) {
      mean[i] = std::sin(static_cast<float>(i) * 0.37f + static_cast<float>(round));
    }
    return mean;
  };
  const auto gradient = [&](int round, bool fit) {
    const EncodeKey key{.seed = static_cast<std::uint64_t>(round), .worker = 3};
    OuterGradient delta = fragment.outer_gradient(codec, key, [&](double norm) {
      life.norms.push_back(norm);
      return fit;
    });
    life.norms.push_back(delta.norm);
    life.answers.push_back(delta.fit);
    life.errors.push_back(delta.sample.codec_error());
    life.cosines.push_back(delta.sample.cosine(mean_of(round)));
    life.sent.push_back(delta.encoded.bytes);
    return std::move(delta.encoded);
  };
  const auto step = [&](int t) { static_cast<void>(inner.train_step(StepIndex(t))); };
  look(life, fragment, inner);
  step(1);
  static_cast<void>(gradient(1, true));
  fragment.step(mean_of(1));
  fragment.merge(0.25f);
  look(life, fragment, inner);
  step(2);
  fragment.keep_residual();
  const Encoded lost = gradient(2, true);
  life.answers.push_back(fragment.recall_residual());
  life.answers.push_back(fragment.recall_residual());
  fragment.take_back(codec, lost);
  step(3);
  fragment.step_and_rebase(mean_of(2));
  look(life, fragment, inner);
  static_cast<void>(gradient(3, false));
  fragment.merge(1);
  fragment.keep_residual();
  static_cast<void>(gradient(4, true));
  fragment.forget_kept_residual();
  step(4);
  life.values.push_back(fragment.beyond());
  std::vector<float> some = mean_of(9);
  fragment.add_to_local(some);
  fragment.merge(0);
  fragment.keep_residual();
  static_cast<void>(gradient(5, true));
  look(life, fragment, inner);
  fragment.save(life.saved);
  step(5);
  fragment.forget_own_work();
  fragment.step(mean_of(3));
  static_cast<void>(gradient(6, true));
  fragment.load(life.saved);
  static_cast<void>(gradient(7, true));
  life.answers.push_back(fragment.recall_residual());
  look(life, fragment, inner);
  return life;
}

TEST(Lanes, LiveAsAWholeFragmentDoesWithEveryCodec) {
  for (const std::string& spelling : spellings()) {
    for (const int every : {1, 2}) {
      if (every > 1 && spelling != "int8:ef") continue;
      const OuterOptions options{.H = 2, .momentum_every = every, .codec = spelling};
      const std::string method = "diloco";
      const auto settings_of = [&](const InnerLoop& inner) {
        for (const MethodInfo& info : methods()) {
          if (info.name == method) return outer::resolve(info, options, inner.parameters());
        }
        throw RunError("no " + method);
      };
      QuadraticLoop plain(small_model(1));
      const outer::FragmentedSettings settings = settings_of(plain);
      const auto whole = outer::fragments_on_host(settings, plain)(settings.fragments.at(0));
      const Life expected = live(*whole, *settings.codec, plain);
      for (const int ranks : kRankCounts) {
        if (ranks == 8 && spelling != "int8:ef") continue;  // threads that wait for one another
        QuadraticLoop real(small_model(1));
        MirroredLoop inner(real);
        LaneRanks site(method, options, inner.parameters(), ranks);
        const auto shared =
            outer::fragments_on_ranks(settings, inner, site.call())(settings.fragments.at(0));
        EXPECT_EQ(live(*shared, *settings.codec, inner), expected)
            << spelling << " every " << every << ", " << ranks << " ranks";
      }
    }
  }
}

struct Case {
  std::string method;
  OuterOptions outer;
  std::set<std::int64_t> lost = {};  // steps whose sends of worker 1 do not arrive
  bool diverges = false;             // worker 2's first tensor holds a NaN after step 6
  bool gives_up = false;             // worker 2 forgets its own work after step 8
};

std::vector<Case> cases() {
  return {
      {.method = "localsgd", .outer = {.H = 5}},
      {.method = "muloco",
       .outer = {.H = 5,
                 .lr_ramp = {.warmup = 12, .decay = 0, .floor = 0.1},
                 .momentum_ramp = {.warmup = 0, .decay = 9, .floor = 0},
                 .run_steps = 30,
                 .codec = "lm2:ef"},
       .lost = {10}},
      {.method = "diloco", .outer = {.H = 5, .codec = "1bit:ef"}, .gives_up = true},
      {.method = "diloco",
       .outer = {.H = 5, .final_sync = FinalSync::kFull, .carry = LostContribution::kCarry},
       .lost = {10}},
      {.method = "diloco",
       .outer = {.H = 5, .codec = "int4:ef", .carry = LostContribution::kRollback},
       .lost = {10}},
      {.method = "streaming-diloco",
       .outer = {.H = 7, .fragments = 3, .overlap = 4, .alpha = 0.5, .codec = "fp4-e3m0:64:ef"}},
      {.method = "streaming-diloco",
       .outer = {.H = 6, .momentum_every = 3, .fragments = 2, .overlap = 5},
       .diverges = true},
      {.method = "streaming-diloco",
       .outer = {.H = 7, .fragments = 2, .overlap = 3, .alpha = 0.25, .codec = "topk:64:ef"},
       .lost = {7, 14, 17}},
  };
}

/// Who keeps the outer state: one process, or so many ranks.
using Sharing = int;
constexpr Sharing kWhole = 0;

struct Outcome {
  std::vector<float> anchors, local;
  std::vector<double> reports;
  MemoryState at_stop;
  bool operator==(const Outcome&) const = default;
};

void note(Outcome& outcome, const std::vector<RoundReport>& rounds) {
  for (const RoundReport& round : rounds) {
    for (const double number :
         {static_cast<double>(round.fragment.value()), static_cast<double>(round.sent.value()),
          round.delta_norm, round.cosine.value_or(-2), round.codec_error.value_or(-1)}) {
      outcome.reports.push_back(std::isfinite(number) ? number : -3);
    }
  }
}

/// Parted by a stop from which all go on, with other sharing.
std::vector<Outcome> train(const Case& run, Sharing before, Sharing after) {
  constexpr int kWorkers = 3, kStop = 11, kSteps = 23;
  std::vector<Outcome> outcomes(kWorkers);
  std::vector<MemoryState> inner_saved(kWorkers);
  for (const int until : {kStop, kSteps}) {
    const Sharing sharing = until == kStop ? before : after;
    run_in_process(kWorkers, [&](WorkerContext& context) {
      const auto w = static_cast<std::size_t>(context.rank.value());
      QuadraticLoop::Options model = small_model(context.rank.value());
      if (run.diverges && w == 2) {
        model.poisoned_step = 6;
        model.poison = [](std::span<float> values) { values[3] = std::nanf(""); };
      }
      QuadraticLoop real(model);
      MirroredLoop inner(real);
      Outcome& outcome = outcomes[w];
      if (until == kSteps) {
        real.set(outcome.local);
        inner.load(inner_saved[w]);
      }
      LosingExchange losing(context.exchange, run.lost);
      Exchange& exchange = w == 1 ? static_cast<Exchange&>(losing) : context.exchange;
      std::optional<LaneRanks> site;
      std::unique_ptr<OuterStrategy> strategy;
      if (sharing == kWhole) {
        strategy = make_outer_strategy(run.method, run.outer, inner, exchange);
      } else {
        site.emplace(run.method, run.outer, inner.parameters(), sharing);
        strategy = outer::make_outer_strategy_on_ranks(run.method, run.outer, inner, exchange,
                                                       site->call());
      }
      if (until == kSteps) strategy->load(outcome.at_stop);
      while (strategy->steps().value() < until) {
        note(outcome, strategy->step().rounds);
        if (run.gives_up && w == 2 && strategy->steps().value() == 8) strategy->forget_own_work();
      }
      if (until == kStop) {
        inner.save(inner_saved[w]);
        strategy->save(outcome.at_stop);
      } else {
        note(outcome, strategy->finish());
        outcome.anchors = anchors_of(*strategy, inner);
      }
      outcome.local = real.all();
    });
  }
  return outcomes;
}

TEST(Lanes, MethodsHaveTheSameBitsAndCheckpoints) {
  for (const Case& run : cases()) {
    const std::vector<Outcome> expected = train(run, kWhole, kWhole);
    ASSERT_FALSE(expected[0].anchors.empty());
    ASSERT_FALSE(expected[0].reports.empty());
    EXPECT_EQ(train(run, 2, 2), expected) << run.method;
    EXPECT_EQ(train(run, 3, kWhole), expected) << run.method << ", then whole";
    EXPECT_EQ(train(run, kWhole, 8), expected) << run.method << ", whole before";
  }
}

TEST(Lanes, MethodsWithStateOfAnotherFormAreRefusedByName) {
  QuadraticLoop inner(small_model(0));
  for (const MethodInfo& info : methods()) {
    const bool shares = info.name == "localsgd" || info.name == "diloco" ||
                        info.name == "streaming-diloco" || info.name == "muloco";
    std::string refusal;
    try {
      static_cast<void>(outer::serve_outer_state(info.name, {.H = 4}, inner.parameters()));
    } catch (const ConfigError& error) {
      refusal = error.what();
    }
    EXPECT_EQ(refusal.empty(), shares) << info.name << ": " << refusal;
    if (!shares && info.takes("H")) {
      EXPECT_THAT(refusal, testing::AllOf(testing::HasSubstr("outer.placement = \"ranks\""),
                                          testing::HasSubstr(info.name),
                                          testing::HasSubstr("streaming-diloco")));
    }
  }
}

}  // namespace
}  // namespace isthmus::this_file
