// SPDX-License-Identifier: Apache-2.0
// Inner loops whose values are not on the host: a method that reads host values it has not asked
// for meets NaN, and one that writes some and does not say so trains on without them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <set>

#include "core/base/all_elements.h"
#include "outer/adam_loop.h"
#include "outer/losing_exchange.h"
#include "outer/mirrored_loop.h"
#include "outer/toy_loops.h"

namespace isthmus::this_file {
namespace {

using testing_support::AdamLoop;
using testing_support::anchors_of;
using testing_support::LosingExchange;
using testing_support::MemoryState;
using testing_support::MirroredLoop;
using testing_support::QuadraticLoop;
using testing_support::small_model;

constexpr int kWorkers = 3;

struct Case {
  std::string method;
  OuterOptions outer;
  std::set<std::int64_t> lost = {};  // steps whose sends of worker 1 do not arrive
  bool diverges = false;             // worker 2's first tensor holds a NaN after step 6
  int workers = kWorkers;
  bool gives_up = false;  // worker 2 forgets its own work after step 8
};

std::vector<Case> cases() {
  const OneBitAdamOptions frozen{.freeze = 4};
  const ZeroOneAdamOptions zero_one{.var_freeze_step = 6,
                                    .var_update_scaler = 2,
                                    .local_step_scaler = 8,
                                    .local_step_clipper = 4};
  OneBitAdamOptions uncorrected = frozen;
  uncorrected.bias_correction = false;
  return {
      {.method = "ddp", .outer = {}},
      {.method = "ddp", .outer = {.codec = "int8:256:ef"}, .gives_up = true},
      {.method = "localsgd", .outer = {.H = 5}},
      {.method = "diloco", .outer = {.H = 5}, .gives_up = true},
      {.method = "diloco",
       .outer = {.H = 5, .final_sync = FinalSync::kFull, .carry = LostContribution::kCarry},
       .lost = {10}},
      {.method = "diloco", .outer = {.H = 5, .carry = LostContribution::kRollback}, .lost = {10}},
      {.method = "streaming-diloco",
       .outer = {.H = 7, .fragments = 3, .overlap = 4, .alpha = 0.5, .codec = "fp4-e3m0:64:ef"}},
      {.method = "streaming-diloco",
       .outer = {.H = 6, .momentum_every = 3, .fragments = 2, .overlap = 5},
       .diverges = true},
      {.method = "streaming-diloco",
       .outer = {.H = 7, .fragments = 2, .overlap = 3, .alpha = 0.25},
       .lost = {7, 14, 17}},
      {.method = "muloco", .outer = {.H = 5, .codec = "lm2:ef"}, .lost = {10}},
      {.method = "gpa", .outer = {.mu_x = 0.9}, .workers = 1},
      {.method = "decoupled",
       .outer = {.H = 5, .merge = {.grace = std::chrono::hours(1)}},
       .gives_up = true},
      {.method = "delayed", .outer = {.H = 5}, .lost = {10}},
      {.method = "eager", .outer = {.H = 5}},
      {.method = "eager", .outer = {.H = 5}, .diverges = true},
      {.method = "co2", .outer = {.H = 5, .momentum = 0.5}, .gives_up = true},
      {.method = "sparseloco", .outer = {.H = 5}, .lost = {10}},
      {.method = "spsa", .outer = {.spsa = {.samples = 2, .run_key = 7}}},
      {.method = "1bit-adam", .outer = {.one_bit_adam = frozen}},
      {.method = "1bit-adam", .outer = {.one_bit_adam = uncorrected}},
      {.method = "01-adam", .outer = {.zero_one_adam = zero_one}, .gives_up = true},
  };
}

std::unique_ptr<InnerLoop> loop_of(const Case& run, int worker) {
  if (run.method.ends_with("adam"))
    return std::make_unique<AdamLoop>(AdamLoop::Options{.worker = worker});
  QuadraticLoop::Options options = small_model(worker);
  if (run.diverges && worker == 2) {
    options.poisoned_step = 6;
    options.poison = [](std::span<float> values) { values[3] = std::nanf(""); };
  }
  return std::make_unique<QuadraticLoop>(options);
}

struct Outcome {
  std::vector<float> anchors, local;
  bool operator==(const Outcome&) const = default;
};

/// What worker's state is after so many steps, parted by a stop from which all go on.
std::vector<Outcome> train(const Case& run, bool elsewhere) {
  constexpr int kStop = 11, kSteps = 23;
  const auto workers = static_cast<std::size_t>(run.workers);
  std::vector<Outcome> outcomes(workers);
  std::vector<MemoryState> saved(workers);
  std::vector<std::vector<float>> saved_values(workers);
  for (const int until : {kStop, kSteps}) {
    run_in_process(run.workers, [&](WorkerContext& context) {
      const auto w = static_cast<std::size_t>(context.rank.value());
      const std::unique_ptr<InnerLoop> real = loop_of(run, context.rank.value());
      MirroredLoop mirrored(*real);
      InnerLoop& inner = elsewhere ? mirrored : *real;
      if (until == kSteps) {
        auto from = saved_values[w].begin();
        for (const Parameter& parameter : inner.parameters()) {
          std::copy_n(from, parameter.values.size(), parameter.values.begin());
          from += static_cast<std::ptrdiff_t>(parameter.values.size());
        }
        inner.wrote_values(all_elements(inner));
      }
      LosingExchange losing(context.exchange, run.lost);
      const auto strategy = make_outer_strategy(
          run.method, run.outer, inner, w == 1 ? static_cast<Exchange&>(losing) : context.exchange);
      if (until == kSteps) {
        inner.load(saved[w]);
        strategy->load(saved[w]);
      }
      while (strategy->steps().value() < until) {
        (void)strategy->step();
        if (run.gives_up && w == 2 && strategy->steps().value() == 8) strategy->forget_own_work();
      }
      if (until == kSteps) {
        (void)strategy->finish();
        outcomes[w].anchors = anchors_of(*strategy, inner);
      } else {
        inner.save(saved[w]);
        strategy->save(saved[w]);
      }
      inner.read_values(all_elements(inner));
      for (const Parameter& parameter : inner.parameters()) {
        saved_values[w].insert(saved_values[w].end(), parameter.values.begin(),
                               parameter.values.end());
      }
      if (until == kSteps) outcomes[w].local = saved_values[w];
    });
  }
  return outcomes;
}

TEST(ValuesElsewhere, EveryMethodGivesTheSameBits) {
  std::set<std::string> tried;
  for (const Case& run : cases()) {
    const std::vector<Outcome> here = train(run, false);
    const std::vector<Outcome> there = train(run, true);
    tried.insert(run.method);
    for (int w = 0; w < run.workers; ++w) {
      const auto k = static_cast<std::size_t>(w);
      ASSERT_FALSE(here[k].anchors.empty());
      EXPECT_TRUE(std::ranges::all_of(here[k].anchors, [](float x) { return std::isfinite(x); }))
          << run.method << " worker " << w;
      EXPECT_EQ(here[k].anchors, there[k].anchors) << run.method << " worker " << w;
      EXPECT_EQ(here[k].local, there[k].local) << run.method << " worker " << w;
    }
  }
  for (const MethodInfo& method : methods()) {
    EXPECT_TRUE(tried.contains(method.name)) << method.name << ": has no case here";
  }
}

// Between two syncs nothing is asked for, and a sync asks for its fragment: the outer gradient's
// read and, with a share of the local value kept, the merge's.
TEST(ValuesElsewhere, AFragmentAsksForItsElementsAlone) {
  const OuterOptions outer{.H = 6, .fragments = 2, .overlap = 1, .alpha = 0.5};
  std::vector<std::int64_t> read;
  std::vector<Fragment> fragments;
  run_in_process(2, [&](WorkerContext& context) {
    QuadraticLoop real(small_model(context.rank.value()));
    MirroredLoop inner(real);
    const auto strategy = make_outer_strategy("streaming-diloco", outer, inner, context.exchange);
    if (context.rank == WorkerId(0)) {
      fragments = make_fragments(inner.parameters(), 2, outer.pattern, outer.embeddings_own);
      read.push_back(inner.elements_read());
    }
    for (int t = 1; t <= 13; ++t) {
      (void)strategy->step();
      if (context.rank == WorkerId(0)) read.push_back(inner.elements_read());
    }
  });
  std::int64_t whole = 0;
  std::set<std::int64_t> sizes;  // every step from 2 on sends or applies a fragment
  for (const Fragment& fragment : fragments) {
    whole += fragment.elements;
    sizes.insert(fragment.elements);
  }
  EXPECT_EQ(read[0], whole);            // the anchors
  EXPECT_EQ(read[1] - read[0], whole);  // step 1 compares the starts of all workers
  EXPECT_EQ(read.back() - read[1], 4 * whole);
  std::set<std::int64_t> by_step;
  for (std::size_t t = 2; t < read.size(); ++t) by_step.insert(read[t] - read[t - 1]);
  EXPECT_EQ(by_step, sizes);
}

}  // namespace
}  // namespace isthmus::this_file
