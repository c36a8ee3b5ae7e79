// SPDX-License-Identifier: Apache-2.0
// A whole run in virtual time: workers, exchange and links together.
#include "sim/run_simulated.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <memory>
#include <numeric>
#include <stdexcept>
#include <string>
#include <vector>

#include "isthmus/errors.h"
#include "sweep_seeds.h"

namespace isthmus::this_file {
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
    if (kind == ReductionKind::kCollect) {
      ASSERT_EQ(reduced->contributions.size(), static_cast<std::size_t>(context.workers));
      for (std::size_t m = 0; m < reduced->contributions.size(); ++m) {
        std::vector<float> theirs(size);
        ASSERT_TRUE(decode(*make_codec("fp32"), reduced->contributions[m].bytes, theirs));
        EXPECT_EQ(theirs, ramp(size, static_cast<float>(m)));
      }
      continue;
    }
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

TEST(RunSimulated, ARoundTakesItsBytesOverTheLinkAndTheCommitsRoundTrips) {
  // Two members, gather: each sends its whole code to the other, then DONE and COMMIT.
  constexpr std::size_t kValues = 1'000'000;
  constexpr double kPayloadBits = kValues * 32.0;
  const double bound = 0.1 + kPayloadBits / 10e6 + 0.025;
  const SimulationResult result = run_simulated(options_for(2), [](WorkerContext& context) {
    train(context, 1, kValues, ReductionKind::kGather);
  });
  const double measured = std::chrono::duration<double>(result.duration).count();
  EXPECT_GE(measured, bound);
  // The design's promise: at most 1.5 round trips beyond the exchange; headers are 68 bytes a
  // frame.
  constexpr double kHeaders = 1.001;
  EXPECT_LE(measured, bound * kHeaders + 1.5 * 0.05);
}

TEST(RunSimulated, TheValuesAreThoseOfARunInProcess) {
  const auto body = [](std::vector<float>& out) {
    return [&out](WorkerContext& context) {
      std::vector<float> values(5000);
      for (std::size_t i = 0; i < values.size(); ++i) {
        values[i] = std::sin(static_cast<float>(i) * static_cast<float>(context.rank.value() + 1));
      }
      const Ticket ticket = context.exchange.begin(contribution(1, values, ReductionKind::kReduce));
      const auto reduced = context.exchange.wait(ticket, std::chrono::hours(1));
      ASSERT_TRUE(reduced) << reduced.error().what;
      if (context.rank == WorkerId(0)) out = reduced->values;
    };
  };
  std::vector<float> real;
  std::vector<float> simulated;
  run_in_process(3, body(real));
  run_simulated(options_for(3), body(simulated));
  EXPECT_EQ(simulated, real);
  EXPECT_EQ(real.size(), 5000U);
}

TEST(RunSimulated, TrafficIsWhatTheExchangesSaySent) {
  std::vector<std::uint64_t> sent(3, 0);
  const SimulationResult result = run_simulated(options_for(3), [&](WorkerContext& context) {
    train(context, 2, 20'000, ReductionKind::kReduce);
    sent[static_cast<std::size_t>(context.rank.value())] = context.exchange.bytes().wire;
  });
  constexpr std::uint64_t kGoodbyes = 680;  // ten empty frames
  for (std::size_t from = 0; from < 3; ++from) {
    std::uint64_t row = 0;
    for (const std::uint64_t bytes : result.traffic[from]) row += bytes;
    // Goodbyes follow after the body has read its count.
    EXPECT_GE(row, sent[from]);
    EXPECT_LE(row, sent[from] + kGoodbyes);
  }
}

TEST(RunSimulated, TheFirstFailureOfAWorkerIsThrown) {
  try {
    run_simulated(options_for(3), [](WorkerContext& context) {
      if (context.rank == WorkerId(1)) {
        context.runtime.compute(seconds(1), [] {});
        throw std::runtime_error("worker 1 has no data");
      }
      const Ticket ticket =
          context.exchange.begin(contribution(1, {1, 2, 3}, ReductionKind::kReduce));
      const auto reduced = context.exchange.wait(ticket, std::chrono::hours(1));
      ASSERT_FALSE(reduced);
      EXPECT_EQ(reduced.error().kind, ExchangeError::Kind::kPeerLost);
      throw PeerError(reduced.error().what);
    });
    FAIL() << "nothing thrown";
  } catch (const std::runtime_error& error) {
    EXPECT_STREQ(error.what(), "worker 1 has no data");
  }
}

TEST(RunSimulated, ASlowRankTakesItsFactorLonger) {
  SimulationOptions options = options_for(2);
  options.network.faults.slowdowns = {{WorkerId(1), 2.5}};
  const SimulationResult result = run_simulated(options, [](WorkerContext& context) {
    context.runtime.compute(seconds(2), [] {});
    const Duration expected =
        context.rank == WorkerId(1) ? Duration(seconds(5)) : Duration(seconds(2));
    EXPECT_EQ(context.runtime.clock().now(), TimePoint(expected));
  });
  EXPECT_EQ(result.duration, Duration(seconds(5)));
}

TEST(RunSimulated, ACrashEndsTheRankAndTheOthersSeeItLost) {
  SimulationOptions options = options_for(3);
  options.network.faults.crashes = {{WorkerId(2), TimePoint(milliseconds(250))}};
  int lost = 0;
  const SimulationResult result = run_simulated(options, [&](WorkerContext& context) {
    for (int round = 1;; ++round) {
      context.runtime.compute(milliseconds(100), [] {});
      const Ticket ticket =
          context.exchange.begin(contribution(round, ramp(1000, 0), ReductionKind::kReduce));
      const auto reduced = context.exchange.wait(ticket, std::chrono::hours(1));
      if (reduced) continue;
      EXPECT_EQ(reduced.error().kind, ExchangeError::Kind::kPeerLost);
      EXPECT_EQ(reduced.error().peer, WorkerId(2));
      ++lost;
      return;
    }
  });
  EXPECT_EQ(result.crashed, (std::vector<WorkerId>{WorkerId(2)}));
  EXPECT_EQ(lost, 2);
}

TEST(RunSimulated, WaitingForEverIsADeadlockThatNamesTheWorkers) {
  try {
    run_simulated(options_for(2), [](WorkerContext& context) {
      if (context.rank == WorkerId(0)) {
        const auto queue = context.runtime.make_wait_queue();
        queue->wait([] { return false; }, kNever);
      }
    });
    FAIL() << "no deadlock reported";
  } catch (const DeadlockError& error) {
    EXPECT_NE(std::string(error.what()).find("worker 0 waits for ever in queue"), std::string::npos)
        << error.what();
  }
}

TEST(FaultSweep, EveryRoundCommitsTheRightResultInSpiteOfTheFaults) {
  for (const std::uint64_t seed : testing_support::sweep_seeds(30)) {
    const testing_support::SweptSchedule schedule(seed);
    SimulationOptions options = options_for(3, seed);
    options.world.shuffle = true;
    options.network.faults = {.drop = 0.05,
                              .delay = 0.05,
                              .duplicate = 0.05,
                              .reorder = 0.1,
                              .corrupt = 0.05,
                              .longest_delay = milliseconds(300)};
    constexpr std::array kKinds = {ReductionKind::kReduce, ReductionKind::kGather,
                                   ReductionKind::kCollect};
    const ReductionKind kind = kKinds[seed % 3];
    const SimulationResult result =
        run_simulated(options, [&](WorkerContext& context) { train(context, 6, 30'000, kind); });
    const FaultCounts& counts = result.faults;
    EXPECT_GT(
        counts.dropped + counts.delayed + counts.duplicated + counts.reordered + counts.corrupted,
        0U);
  }
}

TEST(FaultSweep, APartitionOnlyDelaysARound) {
  SimulationOptions options = options_for(2);
  options.network.faults.partitions = {
      {WorkerId(0), WorkerId(1), TimePoint(milliseconds(50)), TimePoint(seconds(20))}};
  const SimulationResult result = run_simulated(
      options, [](WorkerContext& context) { train(context, 2, 1000, ReductionKind::kGather); });
  EXPECT_GE(result.duration, Duration(seconds(20)));
  // The exchange asks again at intervals that double, so it notices at most a factor late.
  EXPECT_LE(result.duration, Duration(seconds(45)));
}

}  // namespace
}  // namespace isthmus::this_file
