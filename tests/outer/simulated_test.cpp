// SPDX-License-Identifier: Apache-2.0
// The methods over simulated links: the same bits as in process, whatever the links do to frames.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "outer/toy_loops.h"
#include "sim/run_simulated.h"

namespace isthmus::this_file {
namespace {

using namespace std::chrono_literals;
using testing_support::anchors_of;
using testing_support::QuadraticLoop;

constexpr int kWorkers = 3;
constexpr int kSteps = 14;

QuadraticLoop::Options small_model(int worker) {
  QuadraticLoop::Options options;
  options.tensors = {{kNoLayer, 5000}, {0, 9000}, {1, 700}, {2, 1}, {3, 900}, {kNoLayer, 33}};
  options.center = 0.25f * static_cast<float>(worker);
  options.noise = 0.5f;
  options.worker = worker;
  return options;
}

struct Method {
  std::string name;
  OuterOptions outer;
};

const std::vector<Method> kMethods = {
    {"ddp", {}},
    {"diloco", {.H = 4, .codec = "int8:256"}},
    {"streaming-diloco",
     {.H = 5, .fragments = 3, .overlap = 2, .exchange = ReductionKind::kReduce}},
    {"streaming-diloco",
     {.H = 5, .fragments = 3, .overlap = 3, .exchange = ReductionKind::kGather}},
    {"muloco", {.H = 4, .codec = "lm2:ef"}},
    {"delayed", {.H = 4}},
    // Gather: nobody waits for its last round, in which an owner may not have answered yet.
    {"eager", {.H = 4, .codec = "int8:256", .exchange = ReductionKind::kGather}},
    {"co2",
     {.H = 4,
      .momentum = 0.5,
      .staleness_penalty = StalenessPenalty::kGapAware,
      .momentum_clip = 0.5}},
    {"sparseloco", {.H = 4}},
    {"spsa", {.spsa = {.samples = 2}}}};

struct Outcome {
  std::vector<std::vector<float>> anchors = std::vector<std::vector<float>>(kWorkers);
  SimulationResult result;
  std::vector<std::uint64_t> payload = std::vector<std::uint64_t>(kWorkers);
};

Outcome simulate(const Method& method, const SimulationOptions& options) {
  Outcome run;
  run.result = run_simulated(options, [&](WorkerContext& context) {
    const auto w = static_cast<std::size_t>(context.rank.value());
    QuadraticLoop inner(small_model(context.rank.value()));
    const auto strategy = make_outer_strategy(method.name, method.outer, inner, context.exchange);
    for (int t = 1; t <= kSteps; ++t) {
      // Workers of unlike speed.
      context.runtime.compute(100ms + context.rank.value() * 7ms, [] {});
      (void)strategy->step();
    }
    (void)strategy->finish();
    run.anchors[w] = anchors_of(*strategy, inner);
    run.payload[w] = context.exchange.bytes().payload;
  });
  return run;
}

SimulationOptions slow_links(std::uint64_t seed) {
  SimulationOptions options{.workers = kWorkers, .seed = seed};
  options.links = uniform_links(kWorkers, {.bits_per_s = 10'000'000, .one_way = 40ms});
  return options;
}

std::vector<std::vector<float>> in_process(const Method& method) {
  std::vector<std::vector<float>> anchors(kWorkers);
  run_in_process(kWorkers, [&](WorkerContext& context) {
    QuadraticLoop inner(small_model(context.rank.value()));
    const auto strategy = make_outer_strategy(method.name, method.outer, inner, context.exchange);
    for (int t = 1; t <= kSteps; ++t) {
      (void)strategy->step();
    }
    (void)strategy->finish();
    anchors[static_cast<std::size_t>(context.rank.value())] = anchors_of(*strategy, inner);
  });
  return anchors;
}

TEST(Simulated, GivesTheBitsOfTheInProcessRun) {
  for (const Method& method : kMethods) {
    const std::vector<std::vector<float>> expected = in_process(method);
    const Outcome run = simulate(method, slow_links(1));
    EXPECT_EQ(run.anchors, expected) << method.name;
    EXPECT_EQ(run.result.trace_hash, simulate(method, slow_links(1)).result.trace_hash);
  }
}

// Every fault at once, on many seeds: same bits, same payload; only time and wire bytes differ.
TEST(Simulated, FaultyLinksChangeNothingButTime) {
  for (const Method& method : kMethods) {
    const std::vector<std::vector<float>> expected = in_process(method);
    const std::vector<std::uint64_t> payload = simulate(method, slow_links(1)).payload;
    for (std::uint64_t seed = 0; seed < 10; ++seed) {
      SimulationOptions options = slow_links(seed);
      options.exchange.retry_interval = 500ms;
      options.world.shuffle = true;
      options.network.faults = {.drop = 0.1,
                                .delay = 0.1,
                                .duplicate = 0.1,
                                .reorder = 0.1,
                                .corrupt = 0.1,
                                .longest_delay = 400ms};
      options.network.faults.partitions = {
          {WorkerId(0), WorkerId(1), TimePoint(300ms), TimePoint(3s)}};
      const Outcome run = simulate(method, options);
      EXPECT_EQ(run.anchors, expected) << method.name << " seed " << seed;
      EXPECT_EQ(run.payload, payload) << method.name << " seed " << seed;
      EXPECT_GT(run.result.faults.dropped, 0u);
    }
  }
}

// A worker that dies ends the others' run with an error that names it, well before their patience.
TEST(Simulated, ACrashAtAnyMomentEndsTheRunWithWhoIsGone) {
  for (const Method& method : kMethods) {
    for (int victim = 0; victim < kWorkers; ++victim) {
      for (const Duration moment : {50ms, 430ms, 470ms, 510ms, 780ms, 1333ms}) {
        if (method.name == "eager" && moment > 1200ms) {
          continue;  // after step 12 it waits for nobody
        }
        SimulationOptions options = slow_links(3);
        options.network.faults.crashes = {{WorkerId(victim), TimePoint(moment)}};
        try {
          (void)simulate(method, options);
          ADD_FAILURE() << method.name << " victim " << victim << " went on without it";
        } catch (const PeerError& error) {
          EXPECT_THAT(error.what(), ::testing::HasSubstr("is gone")) << method.name;
        }
      }
    }
  }
}

}  // namespace
}  // namespace isthmus::this_file
