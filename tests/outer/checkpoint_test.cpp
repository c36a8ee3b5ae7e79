// SPDX-License-Identifier: Apache-2.0
// What a method keeps: resumed with rounds in flight, refused by key, counted in bytes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>

#include "outer/toy_loops.h"

namespace isthmus::this_file {
namespace {

using testing_support::anchors_of;
using testing_support::MemoryState;
using testing_support::QuadraticLoop;
using testing_support::small_model;

// Oracle 12, mode ii: stopped between launch and apply, resumed, same anchors as uninterrupted.
TEST(Checkpoint, ResumedWithSyncsInFlightIsBitIdentical) {
  constexpr int kWorkers = 3;
  constexpr int kSteps = 23;
  const std::vector<std::pair<std::string, OuterOptions>> methods = {
      {"streaming-diloco", {.H = 7, .fragments = 3, .overlap = 4, .alpha = 0.5}},
      {"streaming-diloco", {.H = 6, .momentum_every = 3, .fragments = 2, .overlap = 5}},
      {"muloco",
       {.H = 7,
        .lr_ramp = {.warmup = 9, .decay = 12, .floor = 0.25},
        .momentum_ramp = {.warmup = 20, .decay = 0, .floor = 0},
        .run_steps = kSteps,
        .fragments = 2,
        .overlap = 3}},
      {"delayed", {.H = 5}},
      {"eager", {.H = 5}},
      {"co2",
       {.H = 5,
        .momentum = 0.5,
        .staleness_penalty = StalenessPenalty::kGapAware,
        .momentum_clip = 0.25}}};
  for (const std::string codec : {"fp32", "int8:256"}) {
    for (auto [method, outer] : methods) {
      outer.codec = codec;
      // Anchors of every worker after the last step, from a checkpoint or from the start.
      const auto finish = [&, &method = method, &outer = outer](
                              int stop, std::array<MemoryState, kWorkers>* saved,
                              std::array<std::vector<float>, kWorkers>* local) {
        std::array<std::vector<float>, kWorkers> anchors;
        run_in_process(kWorkers, [&](WorkerContext& context) {
          const auto w = static_cast<std::size_t>(context.rank.value());
          QuadraticLoop inner(small_model(context.rank.value()));
          const auto strategy = make_outer_strategy(method, outer, inner, context.exchange);
          if (stop > 0) {
            inner.set((*local)[w]);
            strategy->load((*saved)[w]);
          }
          EXPECT_EQ(strategy->steps(), StepIndex(stop));
          while (strategy->steps() < StepIndex(kSteps)) {
            (void)strategy->step();
          }
          (void)strategy->finish();
          anchors[w] = anchors_of(*strategy, inner);
        });
        return anchors;
      };
      const auto expected = finish(0, nullptr, nullptr);
      for (const int stop : {1, 5, 6, 8, 10, 15, 19, 22}) {
        std::array<MemoryState, kWorkers> saved;
        std::array<std::vector<float>, kWorkers> local;
        run_in_process(kWorkers, [&, &method = method, &outer = outer](WorkerContext& context) {
          const auto w = static_cast<std::size_t>(context.rank.value());
          QuadraticLoop inner(small_model(context.rank.value()));
          const auto strategy = make_outer_strategy(method, outer, inner, context.exchange);
          while (strategy->steps() < StepIndex(stop)) {
            (void)strategy->step();
          }
          strategy->save(saved[w]);
          local[w] = inner.all();
        });
        EXPECT_EQ(finish(stop, &saved, &local), expected)
            << method << " " << codec << " stopped after step " << stop;
      }
    }
  }
}

// Every fp32 vector of a checkpoint is an anchor, a momentum, a residual or the sixteen norms of
// the guard. 1bit-adam has its residual once the variance is frozen, 01-adam its anchor.
TEST(Memory, OuterStateIsThatOfTheFormula) {
  constexpr int kElements = 11098;
  for (const MethodInfo& method : methods()) {
    if (method.name == "1bit-adam") {
      continue;  // its residuals begin at the freeze: one_bit_adam_test.cpp counts them
    }
    for (const double momentum : {0.0, 0.5}) {
      const auto takes = [&](const char* key) { return method.takes(key); };
      OuterOptions options;
      if (takes("H")) options.H = 3;
      if (takes("momentum")) options.momentum = momentum;
      if (takes("momentum_every") && momentum > 0) options.momentum_every = 2;
      if (takes("var_freeze_step")) options.zero_one_adam.var_freeze_step = 1;
      std::size_t values = 0;
      run_in_process(1, [&](WorkerContext& context) {
        QuadraticLoop inner(small_model(0));
        const auto strategy = make_outer_strategy(method.name, options, inner, context.exchange);
        if (takes("var_freeze_step")) (void)strategy->step();
        MemoryState state;
        strategy->save(state);
        values = state.tensor_values("anchor/") + state.tensor_values("momentum/") +
                 state.tensor_values("summed/") + state.tensor_values("moved/") +
                 state.tensor_values("residual/");
        EXPECT_LE(state.tensor_values(""), values + 16);
      });
      EXPECT_EQ(values,
                static_cast<std::size_t>(kElements * outer_state_values(method.name, options)))
          << method.name << " momentum " << momentum;
    }
  }
}

std::string load_refusal(const std::string& method, const OuterOptions& written,
                         const std::string& other_method, const OuterOptions& other) {
  std::string text;
  run_in_process(1, [&](WorkerContext& context) {
    QuadraticLoop inner(small_model(0));
    MemoryState state;
    make_outer_strategy(method, written, inner, context.exchange)->save(state);
    const auto strategy = make_outer_strategy(other_method, other, inner, context.exchange);
    try {
      strategy->load(state);
    } catch (const ConfigError& error) {
      text = error.what();
    }
  });
  return text;
}

TEST(Checkpoint, OtherConstantsAreRefusedByKey) {
  const std::string method = "streaming-diloco";
  const OuterOptions base{.H = 8, .fragments = 2, .overlap = 2};
  const auto refused = [&](const std::function<void(OuterOptions&)>& change) {
    OuterOptions other = base;
    change(other);
    return load_refusal(method, base, method, other);
  };
  EXPECT_EQ(load_refusal(method, base, method, base), "");
  EXPECT_EQ(refused([](OuterOptions& o) { o.lr = 0.1; }), "");
  EXPECT_EQ(
      refused([](OuterOptions& o) { o.H = 9; }),
      "outer.H = 9: the checkpoint was written with 8; resume with that value, or start a new run "
      "from its model");
  EXPECT_THAT(refused([](OuterOptions& o) { o.overlap = 3; }),
              ::testing::StartsWith("outer.overlap = 3"));
  EXPECT_THAT(refused([](OuterOptions& o) { o.offsets = OffsetsZero{}; }),
              ::testing::StartsWith("outer.offsets = [0, 0, 0]"));
  EXPECT_THAT(refused([](OuterOptions& o) { o.codec = "bf16"; }),
              ::testing::StartsWith("outer.codec = bf16"));
  EXPECT_THAT(refused([](OuterOptions& o) { o.pattern = FragmentPattern::kSequential; }),
              ::testing::StartsWith("outer.fragments = 3 (map "));
  EXPECT_THAT(
      load_refusal("diloco", {.H = 8}, "localsgd", {.H = 8}),
      ::testing::StartsWith("outer.method = localsgd: the checkpoint was written with diloco"));
}

}  // namespace
}  // namespace isthmus::this_file
