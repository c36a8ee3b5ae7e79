// SPDX-License-Identifier: Apache-2.0
// Oracle: made-up readings of meshes in which ranks are made slow at known steps. Whatever is found
// is held against that; precision and recall are printed and bounded.
#include "inner/mesh/rank_watch.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <vector>

#include "inner/draws.h"

namespace isthmus::this_file {
namespace {

constexpr int kSteps = 400;
constexpr int kSeeds = 500;

struct Fault {
  int rank = 0;
  int begin = 0, end = 0;  // steps [begin, end)
  double factor = 1;
  bool found = false;
  int after = 0;  // steps from begin until it was found
};

struct Trial {
  MeshShape mesh;
  double jitter = 0;  // standard deviation of a reading's logarithm
  std::vector<Fault> faults;
  std::vector<std::vector<RankReading>> readings;  // by step
};

/// messages: faults are of the way to a rank, not of its computing.
Trial make_trial(int seed, double jitter, bool messages) {
  Draws draws(2 * seed + (messages ? 1 : 0));
  Trial trial;
  trial.jitter = jitter;
  do {
    trial.mesh = {.tp = draws.whole(1, 2), .pp = draws.whole(1, 2), .dp = draws.whole(1, 3)};
  } while (trial.mesh.ranks() < 2);
  const int ranks = trial.mesh.ranks();
  for (int begin = draws.whole(40, 160); begin + 120 < kSteps; begin += draws.whole(150, 260)) {
    trial.faults.push_back({.rank = draws.whole(messages ? 1 : 0, ranks - 1),
                            .begin = begin,
                            .end = begin + draws.whole(1, 50),
                            .factor = messages ? draws.uniform(4, 40) : draws.uniform(1.3, 4)});
  }
  std::vector<double> work(static_cast<std::size_t>(trial.mesh.pp)), own;
  for (double& each : work) each = draws.uniform(0.1, 0.5);  // stages are unlike
  for (int r = 0; r < ranks; ++r) own.push_back(draws.uniform(0.95, 1.05));
  for (int step = 0; step < kSteps; ++step) {
    const double batch = draws.lognormal(0.1);  // a step is more work than another, for all ranks
    std::vector<RankReading>& readings = trial.readings.emplace_back();
    for (int r = 0; r < ranks; ++r) {
      const auto i = static_cast<std::size_t>(r);
      const auto stage = static_cast<std::size_t>(mesh_position(trial.mesh, r).pp);
      readings.push_back({.computed_s = work[stage] * own[i] * batch * draws.lognormal(jitter),
                          .answered_s = r == 0 ? 0 : 4e-3 * draws.lognormal(jitter)});
      if (draws.uniform(0, 1) < 0.01)
        readings.back().computed_s *= draws.uniform(2, 8);  // an interruption
      if (draws.uniform(0, 1) < 0.01) readings.back().answered_s *= draws.uniform(2, 8);
      for (const Fault& fault : trial.faults) {
        if (fault.rank != r || step < fault.begin || step >= fault.end) continue;
        (messages ? readings.back().answered_s : readings.back().computed_s) *= fault.factor;
      }
    }
  }
  return trial;
}

struct Score {
  int right = 0, wrong = 0;
  double clear_found = 0, clear = 0;  // factors >= 2 (messages: 6) for at least 10 steps
  double mild_found = 0, mild = 0;    // factors 1.5 .. 2, as long
  double brief_found = 0, brief = 0;  // of less than 4 steps
  double delay = 0;
  int unended = 0;

  [[nodiscard]] double precision() const { return static_cast<double>(right) / (right + wrong); }
  [[nodiscard]] double recall() const { return clear_found / clear; }
};

void play(Trial& trial, bool messages, Score& score) {
  RankWatch watch(trial.mesh);
  std::vector<int> open(static_cast<std::size_t>(trial.mesh.ranks()), 0);
  for (int step = 0; step < kSteps; ++step) {
    for (const RankFinding& finding :
         watch.add(step, trial.readings[static_cast<std::size_t>(step)])) {
      open[static_cast<std::size_t>(finding.rank)] += finding.over ? -1 : 1;
      if (finding.over) continue;
      bool right = false;
      const bool kind =
          finding.trouble == (messages ? RankTrouble::kSlowMessages : RankTrouble::kSlowComputing);
      for (Fault& fault : trial.faults) {
        // The window may still be full of it for a few steps after its end.
        if (!kind || fault.rank != finding.rank || step < fault.begin || step > fault.end + 3) {
          continue;
        }
        right = true;
        if (!fault.found) fault.after = step - fault.begin + 1;
        fault.found = true;
      }
      (right ? score.right : score.wrong) += 1;
    }
  }
  for (const int each : open) score.unended += each != 0;
  for (const Fault& fault : trial.faults) {
    const int length = fault.end - fault.begin;
    const double found = fault.found ? 1 : 0;
    if (length < 4) {
      score.brief += 1;
      score.brief_found += found;
    } else if (length >= 10 && fault.factor >= (messages ? 6 : 2)) {
      score.clear += 1;
      score.clear_found += found;
      score.delay += found * fault.after;
    } else if (length >= 10 && fault.factor >= 1.5) {
      score.mild += 1;
      score.mild_found += found;
    }
  }
}

Score score_of(double jitter, bool messages) {
  Score score;
  for (int seed = 0; seed < kSeeds; ++seed) {
    Trial trial = make_trial(seed, jitter, messages);
    play(trial, messages, score);
  }
  fmt::print(
      "{:9} jitter {:3.0f} %: precision {:.3f} ({} findings), recall {:.3f} of {} clear, {:.3f} of "
      "{} mild "
      "faults; {:.1f} steps until found; {} of {} blips shorter than 4 steps\n",
      messages ? "messages" : "computing", 100 * jitter, score.precision(),
      score.right + score.wrong, score.recall(), score.clear, score.mild_found / score.mild,
      score.mild, score.delay / score.clear_found, score.brief_found, score.brief);
  return score;
}

TEST(RankWatch, FindsSlowRanksAndNoOthers) {
  for (const double jitter : {0.02, 0.05, 0.1, 0.2}) {
    const Score score = score_of(jitter, false);
    EXPECT_GE(score.precision(), 0.95) << jitter;
    EXPECT_GE(score.recall(), 0.9) << jitter;
    // An interruption beside it makes one longer now and then.
    EXPECT_LE(score.brief_found, 0.1 * score.brief) << jitter;
    EXPECT_LE(score.unended, kSeeds / 100) << jitter;
  }
  // So unlike that a step of twice the length is nothing: quiet rather than wrong.
  EXPECT_GE(score_of(0.4, false).precision(), 0.9);
}

TEST(RankWatch, TellsSlowMessagesFromSlowComputing) {
  for (const double jitter : {0.05, 0.2, 0.4}) {
    const Score score = score_of(jitter, true);
    EXPECT_GE(score.precision(), 0.95) << jitter;
    EXPECT_GE(score.recall(), 0.9) << jitter;
  }
}

TEST(RankWatch, SaysSinceWhenHowMuchAndWhenItIsOver) {
  RankWatch watch({.tp = 1, .pp = 2, .dp = 3});
  std::vector<RankFinding> found;
  for (int step = 1; step <= 60; ++step) {
    std::vector<RankReading> readings;
    for (int r = 0; r < 6; ++r) {
      const bool slow = r == 4 && step >= 20 && step < 40;
      readings.push_back(
          {.computed_s = (r < 3 ? 1.0 : 3.0) * (slow ? 2.5 : 1), .answered_s = 1e-4});
    }
    for (const RankFinding& each : watch.add(step, readings)) found.push_back(each);
  }
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(found[0].rank, 4);
  EXPECT_EQ(found[0].at.pp, 1);
  EXPECT_EQ(found[0].at.dp, 1);
  EXPECT_EQ(found[0].since, 20);
  EXPECT_FALSE(found[0].over);
  EXPECT_NEAR(found[0].factor, 2.5, 1e-9);
  EXPECT_TRUE(found[1].over);
  EXPECT_EQ(found[1].since, 20);
}

// Stages that nobody shares: each is held against what it was, and all growing together is
// nobody's.
TEST(RankWatch, RanksWithoutPeersAreHeldAgainstThemselves) {
  RankWatch watch({.tp = 1, .pp = 3, .dp = 1});
  std::vector<RankFinding> found;
  for (int step = 1; step <= 90; ++step) {
    std::vector<RankReading> readings;
    for (int r = 0; r < 3; ++r) {
      const double all = step >= 30 ? 4 : 1;
      const double own = r == 2 && step >= 60 ? 2 : 1;
      readings.push_back({.computed_s = (r + 1) * all * own, .answered_s = 1e-4});
    }
    for (const RankFinding& each : watch.add(step, readings)) found.push_back(each);
  }
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].rank, 2);
  EXPECT_EQ(found[0].since, 60);
}

}  // namespace
}  // namespace isthmus::this_file
