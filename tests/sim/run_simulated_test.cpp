// SPDX-License-Identifier: Apache-2.0
// A whole run in virtual time: workers, exchange and links together.
#include "sim/run_simulated.h"

#include <gtest/gtest.h>

#include <memory>
#include <mutex>
#include <numeric>
#include <stdexcept>
#include <vector>

#include "isthmus/errors.h"

namespace isthmus {
namespace {

using std::chrono::milliseconds;
using std::chrono::nanoseconds;
using std::chrono::seconds;

constexpr DirectedLink kThinLink{.bits_per_s = 10'000'000, .one_way = milliseconds(25)};

std::vector<float> ramp(std::size_t size, float start) {
  std::vector<float> values(size);
  std::iota(values.begin(), values.end(), start);
  return values;
}

Contribution contribution(std::int64_t step, const std::vector<float>& values, ReductionKind kind) {
  const std::shared_ptr<const Codec> codec = make_codec("fp32");
  return {.id = {FragmentId(0), StepIndex(step)},
          .encoded = encode(*codec, values),
          .codec = codec,
          .weight = 1,
          .kind = kind};
}

/// `rounds` rounds of one exchange after a compute region each; checks every mean.
void train(WorkerContext& context, int rounds, std::size_t size, ReductionKind kind) {
  for (int round = 1; round <= rounds; ++round) {
    context.runtime.compute(milliseconds(100), [] {});
    const auto start = static_cast<float>(context.rank.value());
    const Ticket ticket = context.exchange.begin(contribution(round, ramp(size, start), kind));
    const auto reduced = context.exchange.wait(ticket, std::chrono::hours(1));
    ASSERT_TRUE(reduced) << reduced.error().what;
    const float shift = static_cast<float>(context.workers - 1) / 2;
    EXPECT_EQ(reduced->values, ramp(size, shift));
  }
}

SimulationOptions options_for(int workers, std::uint64_t seed = 1) {
  return {.workers = workers, .links = uniform_links(workers, kThinLink), .seed = seed};
}

TEST(RunSimulated, OneWorkerTakesExactlyItsComputeTime) {
  const SimulationResult result = run_simulated(
      options_for(1), [](WorkerContext& context) { context.runtime.compute(seconds(3), [] {}); });
  EXPECT_EQ(result.duration, Duration(seconds(3)));
}

TEST(RunSimulated, SameSeedSameTraceSameTimes) {
  const auto run = [](std::uint64_t seed, Duration jitter) {
    SimulationOptions options = options_for(4, seed);
    for (DirectedLink& link : options.links) link.jitter = jitter;
    return run_simulated(
        options, [](WorkerContext& context) { train(context, 3, 10'000, ReductionKind::kReduce); });
  };
  const SimulationResult first = run(1, milliseconds(5));
  for (int repeat = 0; repeat < 5; ++repeat) {
    const SimulationResult again = run(1, milliseconds(5));
    EXPECT_EQ(again.trace_hash, first.trace_hash);
    EXPECT_EQ(again.duration, first.duration);
    EXPECT_EQ(again.traffic, first.traffic);
  }
  EXPECT_NE(run(2, milliseconds(5)).trace_hash, first.trace_hash);
  EXPECT_EQ(run(1, Duration::zero()).trace_hash, run(2, Duration::zero()).trace_hash)
      << "without jitter and faults nothing is drawn from the seed";
}

}  // namespace
}  // namespace isthmus
