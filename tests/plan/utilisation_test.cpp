// SPDX-License-Identifier: Apache-2.0
// The utilisation simulator against the published tables, closed forms worked out by hand, and a
// graph of explicit nodes.
#include "plan/utilisation.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "core/base/rng.h"
#include "isthmus/errors.h"
#include "plan/utilisation_latency.h"
#include "plan/utilisation_schedule.h"

namespace isthmus::this_file {
namespace {

constexpr double kGiga = 1e9;
// Sums of a few thousand doubles.
constexpr double kRounding = 1e-9;

const UtilisationModel k1B{.parameters = 1e9, .layers = 24, .step_s = 0.1};
const UtilisationModel k10B{.parameters = 1e10, .layers = 48, .step_s = 0.8};

UtilisationSchedule schedule(const std::string& spelling, int layers) {
  return utilisation_row(parse_utilisation_choice(spelling), layers).schedule;
}

double at(const UtilisationModel& model, const std::string& spelling, double gbit_s) {
  return compute_utilisation(model, schedule(spelling, model.layers), gbit_s * kGiga);
}

/// Points of the grid between what the table prints and what we find: 0 is exact. The table's
/// figures are rates of the grid rounded to two places, then to one.
int grid_steps_off(const UtilisationModel& model, const std::string& spelling, std::size_t target,
                   const std::string& printed) {
  const auto found = bandwidth_needed(model, schedule(spelling, model.layers))[target];
  const std::span<const double> grid = bandwidth_grid();
  int nearest = 1000;
  for (std::size_t i = 0; i < grid.size(); ++i) {
    const double two_places = std::round(grid[i] / kGiga * 100) / 100;
    if (fmt::format("{:.1f}", two_places) == printed) {
      const auto ours = std::ranges::find(grid, found.value_or(0)) - grid.begin();
      nearest = std::min(nearest, std::abs(static_cast<int>(ours) - static_cast<int>(i)));
    }
  }
  return nearest;
}

using Printed = std::array<std::string, kUtilisationTargets.size()>;

// arXiv:2501.18512 Table 4.
const std::vector<std::tuple<std::string, UtilisationModel, Printed>> kAllAtOnce = {
    {"ddp", k1B, {"86.8", "152.6", "184.2", "222.3", "569.0"}},
    {"ddp", k10B, {"104.8", "222.3", "222.3", "268.3", "471.5"}},
    {"diloco", k1B, {"1.4", "6.2", "13.3", "23.3", "86.8"}},
    {"diloco", k10B, {"1.7", "7.5", "16.0", "33.9", "104.8"}},
};
const std::vector<std::tuple<std::string, UtilisationModel, Printed>> kInFragments = {
    {"streaming-diloco", k1B, {"1.4", "5.2", "9.1", "16.0", "28.1"}},
    {"streaming-diloco", k10B, {"1.7", "5.2", "9.1", "13.3", "19.3"}},
    {"streaming-diloco:overlap=1", k1B, {"1.4", "4.3", "6.2", "9.1", "11.0"}},
    {"streaming-diloco:overlap=1", k10B, {"1.7", "3.6", "5.2", "6.2", "7.5"}},
    {"streaming-diloco:overlap=1,bits=4", k1B, {"0.4", "0.9", "1.7", "2.0", "3.0"}},
    {"streaming-diloco:overlap=1,bits=4", k10B, {"0.4", "0.9", "1.4", "1.4", "1.7"}},
};

TEST(Utilisation, PublishedRowsThatSendAllLayersAtOnceAreReproducedExactly) {
  for (const auto& [spelling, model, printed] : kAllAtOnce) {
    for (std::size_t i = 0; i < printed.size(); ++i) {
      EXPECT_EQ(grid_steps_off(model, spelling, i, printed[i]), 0)
          << spelling << ", " << model.layers << " layers, " << kUtilisationTargets[i];
    }
  }
}

TEST(Utilisation, PublishedRowsOfFragmentsAreReproducedWithinOneGridStep) {
  for (const auto& [spelling, model, printed] : kInFragments) {
    for (std::size_t i = 0; i < printed.size(); ++i) {
      EXPECT_LE(grid_steps_off(model, spelling, i, printed[i]), 1)
          << spelling << ", " << model.layers << " layers, " << kUtilisationTargets[i];
    }
  }
}

// A link so slow that it never waits for backward: it starts when the last layer's backward for
// parameters ends, L + 2 nodes into the step, and the next forward waits for its last bit.
TEST(Utilisation, SlowLinkIsBusyFromTheLastLayerOnAndAllTheRestIsExposed) {
  const double node = k1B.step_s / (3 * 24);
  const double computing = (3 * 24 - 1) * node;
  const double rate = 0.5 * kGiga;
  const double on_link = 16e9 / rate;
  const double first = (24 + 2) * node;
  EXPECT_NEAR(at(k1B, "ddp", 0.5), computing / (first + on_link), kRounding);
  EXPECT_NEAR(at(k1B, "diloco:H=20", 0.5), 20 * computing / (19 * computing + first + on_link),
              kRounding);
}

// A link so fast that each layer has gone before the next one comes: only the first layer's
// reduction, queued at the very end, is exposed.
TEST(Utilisation, FastLinkExposesTheFirstLayerAlone) {
  const double node = k1B.step_s / (3 * 24);
  const double computing = (3 * 24 - 1) * node;
  const double layer = 16e9 / 24 / 1e12;
  ASSERT_LT(layer, node);
  EXPECT_NEAR(at(k1B, "ddp", 1000), computing / (computing + layer), kRounding);
}

// One fragment of one layer, tau = 1: it is sent when its backward for parameters ends and may
// take the rest of that step, one whole step, and the forward up to its layer.
TEST(Utilisation, OverlapHidesTheRestOfAStepAndAllOfTheNext) {
  const UtilisationModel model{.parameters = 1e9, .layers = 4, .step_s = 1.2};  // nodes of 0.1 s
  const UtilisationSchedule one_layer{
      .period = 10,
      .sends = {{.step = 9, .shares = {{.layer = 2, .share = 0.25}}}},
      .overlap = 1,
      .bits = 16};
  // Layer 2 of 0 .. 3 ends backward 4 nodes into it, 3 nodes before the step's end; 11 nodes of the
  // next step; forward of layer 2 begins 2 nodes into the one after.
  const double hidden = 0.3 + 1.1 + 0.2;
  EXPECT_NEAR(compute_utilisation(model, one_layer, 4e9 / hidden), 1, kRounding);
  EXPECT_NEAR(compute_utilisation(model, one_layer, 4e9 / (hidden + 0.5)), 11 / (11 + 0.5),
              kRounding);
}

// A round behind: an exchange shorter than the round is hidden whole, a longer one sets the pace.
TEST(Utilisation, RoundBehindIsLimitedByTheLinkAlone) {
  const double round = 100 * k1B.step_s * 71 / 72;
  for (const char* method : {"eager", "co2", "delayed"}) {
    EXPECT_NEAR(at(k1B, method, 16 / round * 1.01), 1, kRounding) << method;
    EXPECT_NEAR(at(k1B, method, 16 / round * 0.99), 0.99, kRounding) << method;
    EXPECT_NEAR(at(k1B, method, 16 / round * 0.5), 0.5, kRounding) << method;
  }
}

// One layer of two nodes, C / 3 each: nothing is hidden without overlap, and a reduction's latency
// counts like time on the link; but it keeps no other reduction off the link.
TEST(Utilisation, LatencyEndsAReductionLater) {
  const UtilisationModel one{.parameters = 1e9, .layers = 1, .step_s = 0.3};
  const UtilisationSchedule diloco = schedule("diloco", 1);
  for (const double latency : {0.0, 0.01, 0.3}) {
    const double computing = 100 * 0.2, sending = 1e9 * 16 / 1e10;
    EXPECT_NEAR(compute_utilisation(one, diloco, 1e10, latency),
                computing / (computing + sending + latency), kRounding);
  }
  const UtilisationSchedule eager = schedule("eager", 24);
  EXPECT_DOUBLE_EQ(compute_utilisation(k1B, eager, 3 * kGiga, 4),
                   compute_utilisation(k1B, eager, 3 * kGiga))
      << "5.3 s on the link and 4 s of latency are less than the 9.9 s of a round";
  const UtilisationSchedule ddp = schedule("ddp", 24);
  const double late = compute_utilisation(k1B, ddp, 300 * kGiga, 0.05);
  EXPECT_LT(late, compute_utilisation(k1B, ddp, 300 * kGiga));
  // Twenty-four reductions of a step wait for one latency, not for as many.
  EXPECT_GT(late, 0.1 / (0.1 + 24 * 0.05));
  const auto needed = bandwidth_needed(k1B, ddp, 0.01);
  const auto without = bandwidth_needed(k1B, ddp);
  for (std::size_t i = 0; i < needed.size(); ++i) EXPECT_GE(*needed[i], *without[i]) << i;
}

TEST(Utilisation, GridAndReportingRule) {
  const std::span<const double> grid = bandwidth_grid();
  ASSERT_EQ(grid.size(), 50U);
  EXPECT_DOUBLE_EQ(grid.front(), 0.1 * kGiga);
  EXPECT_DOUBLE_EQ(grid.back(), 1000 * kGiga);
  EXPECT_NEAR(grid[1] / grid[0], 1.2068, 1e-4);
  const UtilisationSchedule ddp = schedule("ddp", 24);
  const auto needed = bandwidth_needed(k1B, ddp);
  for (std::size_t i = 0; i < needed.size(); ++i) {
    ASSERT_TRUE(needed[i].has_value());
    EXPECT_LT(compute_utilisation(k1B, ddp, *needed[i]), kUtilisationTargets[i]);
    EXPECT_GE(
        compute_utilisation(k1B, ddp, *std::upper_bound(grid.begin(), grid.end(), *needed[i])),
        kUtilisationTargets[i]);
  }
}

TEST(Utilisation, OutsideTheGridIsSaid) {
  const UtilisationModel huge{.parameters = 1e13, .layers = 10, .step_s = 0.1};
  EXPECT_DOUBLE_EQ(bandwidth_needed(huge, schedule("ddp", 10))[4].value_or(0), 1000 * kGiga);
  const UtilisationModel tiny{.parameters = 1e5, .layers = 10, .step_s = 0.1};
  EXPECT_FALSE(bandwidth_needed(tiny, schedule("diloco", 10))[0].has_value());
}

TEST(Utilisation, GrowsWithTheRateTheOverlapAndH) {
  for (const char* method : {"ddp", "diloco", "streaming-diloco", "streaming-diloco:overlap=2"}) {
    double before = 0;
    for (const double rate : bandwidth_grid()) {
      const double now = compute_utilisation(k10B, schedule(method, 48), rate);
      EXPECT_GE(now, before - kRounding) << method << " at " << rate;
      EXPECT_LE(now, 1 + kRounding);
      before = now;
    }
    EXPECT_GT(before, 0.98) << method;
  }
  for (const double rate : {1.0, 3.0, 10.0}) {
    for (int tau = 1; tau < 12; ++tau) {
      const auto overlap = [](int t) { return fmt::format("streaming-diloco:overlap={}", t); };
      EXPECT_GE(at(k1B, overlap(tau), rate), at(k1B, overlap(tau - 1), rate) - kRounding);
    }
    EXPECT_GT(at(k1B, "diloco:H=200", rate), at(k1B, "diloco:H=100", rate));
    EXPECT_GT(at(k1B, "streaming-diloco:H=200", rate), at(k1B, "streaming-diloco:H=100", rate));
  }
}

/// Every node of every step by itself, in the order in which one thing waits for another; for the
/// last `steps` steps, what share of the time was spent computing.
double by_explicit_nodes(const UtilisationModel& model, const UtilisationSchedule& schedule,
                         double bits_per_s, std::int64_t warm_up, std::int64_t steps) {
  const double node = model.step_s / (3.0 * model.layers);
  std::map<std::pair<std::int64_t, int>, double> reduced;  // (step it is awaited in, layer): when
  double site = 0;
  double link = 0;
  double computed = 0;
  double from = 0;
  for (std::int64_t s = 0; s < warm_up + steps; ++s) {
    if (s == warm_up) {
      from = site;
      computed = 0;
    }
    const auto run_node = [&] {
      site += node;
      computed += node;
    };
    for (int l = 0; l < model.layers; ++l) {
      const auto wait = reduced.find({s, l});
      if (wait != reduced.end()) {
        site = std::max(site, wait->second);
        reduced.erase(wait);
      }
      run_node();
    }
    for (int l = model.layers - 1; l >= 0; --l) {
      if (l > 0) run_node();
      run_node();
      for (const UtilisationSchedule::Send& send : schedule.sends) {
        for (const LayerShare& part : send.shares) {
          if (send.step == s % schedule.period && part.layer == l) {
            link =
                std::max(link, site) + part.share * model.parameters * schedule.bits / bits_per_s;
            reduced[{s + 1 + schedule.overlap, l}] = link;
          }
        }
      }
    }
  }
  return computed / (site - from);
}

TEST(Utilisation, EqualsAGraphOfExplicitNodes) {
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    const Rng rng(seed, Stream::kTestData);
    const auto pick = [&](std::uint64_t i, int least, int most) {
      return least + static_cast<int>(rng.uniform(i) * (most - least + 1));
    };
    const int fragment_layers = pick(0, 1, 3);
    const int fragments = pick(1, 1, 5);
    const UtilisationModel model{.parameters = 1e9 * (1 + rng.uniform(2)),
                                 .layers = fragment_layers * fragments,
                                 .step_s = 0.05 + rng.uniform(3)};
    const std::int64_t h = std::int64_t{fragments} * pick(4, 1, 4) + pick(5, 0, fragments - 1);
    const std::int64_t period = h / fragments * fragments;
    UtilisationChoice choice{.method = "streaming-diloco"};
    choice.H = h;
    choice.fragment_layers = fragment_layers;
    choice.pattern = pick(6, 0, 1) == 0 ? FragmentPattern::kStrided : FragmentPattern::kSequential;
    choice.overlap = pick(7, 0, static_cast<int>(period) - 1);
    choice.bits = pick(8, 1, 16);
    const UtilisationSchedule schedule = utilisation_row(choice, model.layers).schedule;
    const double needed =
        model.parameters * schedule.bits / (static_cast<double>(period) * model.step_s);
    for (const double share : {0.3, 0.8, 1.3, 4.0, 30.0}) {
      const double ours = compute_utilisation(model, schedule, share * needed);
      const double nodes =
          by_explicit_nodes(model, schedule, share * needed, 20 * period, 20 * period);
      EXPECT_NEAR(ours, nodes, 1e-6)
          << "seed " << seed << ", H " << h << ", fragments " << fragments << ", overlap "
          << *choice.overlap << ", rate " << share;
    }
  }
}

TEST(UtilisationSchedule, FragmentsTakeTurns) {
  const UtilisationRow row =
      utilisation_row(parse_utilisation_choice("streaming-diloco:H=100"), 24);
  EXPECT_EQ(row.fragments, 8);
  EXPECT_EQ(row.schedule.period, 96);  // a turn every floor(100 / 8) = 12 steps
  ASSERT_EQ(row.schedule.sends.size(), 8U);
  EXPECT_EQ(row.schedule.sends[2].step, 3 * 12 - 1);
  const auto& shares = row.schedule.sends[2].shares;
  ASSERT_EQ(shares.size(), 3U);
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(shares[i].layer, 18 - 8 * static_cast<int>(i));  // strided: 18, 10, 2
    EXPECT_DOUBLE_EQ(shares[i].share, 1.0 / 24);
  }
  EXPECT_EQ(schedule("streaming-diloco:pattern=sequential", 24).sends[2].shares.front().layer, 8);
  EXPECT_EQ(schedule("streaming-diloco:embedding-turn=on", 24).period, 99);  // 9 turns of 11
}

TEST(UtilisationSchedule, MethodsAreRowsOfTheTableOfMethods) {
  const UtilisationSchedule ddp = schedule("ddp", 4);
  EXPECT_EQ(ddp.period, 1);
  EXPECT_EQ(ddp.sends.front().shares.size(), 4U);
  EXPECT_EQ(schedule("eager:H=7", 4).overlap, 7);
  EXPECT_EQ(schedule("sparseloco", 4).period, 30);
  EXPECT_LT(schedule("sparseloco", 4).bits, 0.3);
  EXPECT_NEAR(schedule("1bit-adam", 4).bits, 1, 0.01);
  EXPECT_DOUBLE_EQ(schedule("diloco", 4).bits, 16);
  EXPECT_DOUBLE_EQ(at(k1B, "streaming-diloco:fragment-layers=24", 5), at(k1B, "diloco", 5));
}

TEST(UtilisationSchedule, FragmentsHaveThreeLayersOrTheNextNumberBelowThatDividesThem) {
  const auto fragments = [](int layers) {
    return utilisation_row(parse_utilisation_choice("streaming-diloco"), layers).fragments;
  };
  EXPECT_EQ(fragments(27), 9);
  EXPECT_EQ(fragments(32), 16);
  EXPECT_EQ(fragments(61), 61);
}

TEST(UtilisationSchedule, CommonSettingsFillWhatAMethodHasAndLeavesOpen) {
  UtilisationChoice common;
  common.H = 50;
  common.overlap = 2;
  const UtilisationChoice diloco = completed(parse_utilisation_choice("diloco"), common);
  EXPECT_EQ(diloco.H, 50);
  EXPECT_FALSE(diloco.overlap.has_value());
  EXPECT_EQ(completed(parse_utilisation_choice("streaming-diloco:H=60"), common).H, 60);
}

/// A model of `layers` tensors of 100 values and, where asked, an embedding of 50.
std::vector<Parameter> tensors(int layers, bool embedding) {
  std::vector<Parameter> parameters;
  std::int64_t begin = 0;
  const auto add = [&](int layer, std::int64_t size) {
    parameters.emplace_back();
    parameters.back().layer = layer;
    parameters.back().elements = {begin, begin + size};
    begin += size;
  };
  if (embedding) add(kNoLayer, 50);
  for (int l = 0; l < layers; ++l) add(l, 100);
  return parameters;
}

// Sent after step t = offset (mod H), t from 1: fragment 0 of offset 0 after steps H, 2H, ...
TEST(UtilisationSchedule, ConfiguredRunsKeepTheirOffsetsAndCodec) {
  OuterOptions options;
  options.H = 10;
  options.fragments = 2;
  options.overlap = 3;
  options.codec = "int8";
  const UtilisationRow row = utilisation_row("streaming-diloco", options, tensors(4, true));
  EXPECT_EQ(row.fragments, 3);
  EXPECT_EQ(row.schedule.period, 10);
  EXPECT_EQ(row.schedule.overlap, 3);
  EXPECT_NEAR(row.schedule.bits, 8, 0.2);
  ASSERT_EQ(row.schedule.sends.size(), 3U);
  EXPECT_EQ(row.schedule.sends[0].step, 2);  // offsets 0, 3, 6
  EXPECT_EQ(row.schedule.sends[1].step, 5);
  EXPECT_EQ(row.schedule.sends[2].step, 9);
  EXPECT_EQ(row.schedule.sends[2].shares[0].layer, 2);
  EXPECT_DOUBLE_EQ(row.schedule.sends[2].shares[0].share, 100.0 / 450);
  EXPECT_EQ(row.schedule.sends[1].shares[0].layer, 0);  // embeddings go with the first layer
  EXPECT_DOUBLE_EQ(row.schedule.sends[1].shares[0].share, 50.0 / 450);
}

TEST(UtilisationSchedule, FragmentsOfOneOffsetAreOneSendInBackwardOrder) {
  OuterOptions options;
  options.H = 10;
  options.fragments = 2;
  options.offsets = OffsetsZero{};
  const UtilisationRow row = utilisation_row("streaming-diloco", options, tensors(4, false));
  OuterOptions whole;
  whole.H = 10;
  const UtilisationRow diloco = utilisation_row("diloco", whole, tensors(4, false));
  ASSERT_EQ(row.schedule.sends.size(), 1U);
  const UtilisationModel model{.parameters = 1e9, .layers = 4, .step_s = 0.1};
  EXPECT_DOUBLE_EQ(compute_utilisation(model, row.schedule, 7e9),
                   compute_utilisation(model, diloco.schedule, 7e9));
}

void expect_refused(const std::string& spelling, const std::string& words) {
  try {
    (void)schedule(spelling, 24);
    ADD_FAILURE() << spelling << " was taken";
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr(words)) << spelling;
  }
}

TEST(UtilisationSchedule, RefusesWhatCannotBe) {
  expect_refused("dilco", "did you mean 'diloco'?");
  expect_refused("spsa", "one byte a sample");
  expect_refused("01-adam", "rarer");
  expect_refused("diloco:", "missing");
  expect_refused("diloco:H", "no SETTING=VALUE");
  expect_refused("diloco:h=3", "no SETTING=VALUE");
  expect_refused("diloco:overlap=1", "has no setting overlap; it has H, bits");
  expect_refused("ddp:H=2", "has no setting H; it has bits");
  expect_refused("diloco:H=1.5", "whole");
  expect_refused("diloco:H=1e30", "whole");
  expect_refused("diloco:H=", "whole");
  expect_refused("diloco:H=0", "1 ..");
  expect_refused("diloco:H=-5", "1 ..");
  expect_refused("diloco:bits=0", "above 0");
  expect_refused("diloco:bits=65", "at most 64");
  expect_refused("streaming-diloco:fragment-layers=5", "possible are 1, 2, 3, 4, 6, 8, 12, 24");
  expect_refused("streaming-diloco:fragment-layers=0", "possible are");
  expect_refused("streaming-diloco:H=7", "8 ..");
  expect_refused("streaming-diloco:overlap=100", "0 .. 95");
  expect_refused("streaming-diloco:overlap=-1", "0 .. 95");
  expect_refused("streaming-diloco:pattern=odd", "strided");
  expect_refused("streaming-diloco:embedding-turn=1", "on or off");
}

}  // namespace
}  // namespace isthmus::this_file
