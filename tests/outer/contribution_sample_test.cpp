// SPDX-License-Identifier: Apache-2.0
// Agreement and codec error of a round: closed forms, naive loops, what has none.
#include "outer/parts/contribution_sample.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <mutex>
#include <set>

#include "outer/losing_exchange.h"
#include "outer/toy_loops.h"
#include "quant/codecs/error_feedback.h"

namespace isthmus::this_file {
namespace {

using outer::ContributionSample;
using testing_support::Drift;
using testing_support::LosingExchange;
using testing_support::MemoryState;
using testing_support::QuadraticLoop;

constexpr double kRounding = 1e-6;  // of a mean of a few fp32 values, relative

std::vector<float> normal(std::size_t n, std::uint64_t seed) {
  const Rng rng(seed, Stream::kTestData);
  std::vector<float> x(n);
  for (std::size_t i = 0; i < n; ++i) x[i] = static_cast<float>(rng.normal(i));
  return x;
}

/// What a naive loop over whole vectors says, at the positions that `counts` picks.
template <typename Counts>
double naive_error(std::span<const float> x, std::span<const float> y, const Counts& counts) {
  double lost = 0, all = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    if (!counts(i)) continue;
    const double d = static_cast<double>(y[i]) - static_cast<double>(x[i]);
    lost += d * d;
    all += static_cast<double>(x[i]) * static_cast<double>(x[i]);
  }
  return std::sqrt(lost / all);
}

template <typename Counts>
double naive_cosine(std::span<const float> x, std::span<const float> y, const Counts& counts) {
  double xy = 0, xx = 0, yy = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    if (!counts(i)) continue;
    xy += static_cast<double>(x[i]) * static_cast<double>(y[i]);
    xx += static_cast<double>(x[i]) * static_cast<double>(x[i]);
    yy += static_cast<double>(y[i]) * static_cast<double>(y[i]);
  }
  return xy / std::sqrt(xx * yy);
}

ContributionSample sample_of(const Codec& codec, std::span<const float> x, const Encoded& encoded) {
  ContributionSample sample(x.size());
  const std::size_t full = codec.encoded_bytes(kTileValues);
  for (std::size_t begin = 0; begin < x.size(); begin += kTileValues) {
    const std::size_t tile = begin / kTileValues;
    const std::size_t values = std::min(kTileValues, x.size() - begin);
    if (sample.looks_at(tile)) {
      sample.take(codec, x.subspan(begin, values),
                  std::span(encoded.bytes).subspan(tile * full, codec.encoded_bytes(values)));
    }
  }
  return sample;
}

// Half of |x| at 1, half at 3: one bit sends the mean of |x|, 2, and is off by 1 everywhere.
TEST(ContributionSample, ErrorOfOneBitIsItsClosedForm) {
  std::vector<float> x(3 * kTileValues);
  for (std::size_t i = 0; i < x.size(); ++i) {
    x[i] = (i % 2 == 0 ? 1.0f : 3.0f) * (i % 3 == 0 ? -1.0f : 1.0f);
  }
  const auto codec = make_codec("1bit:norm=l1");
  const auto error = sample_of(*codec, x, encode(*codec, x)).codec_error();
  ASSERT_TRUE(error);
  EXPECT_NEAR(*error, 1 / std::sqrt(5.0), 1e-12);
}

TEST(ContributionSample, ShortVectorsAreLookedAtInFullAndLongOnesEvenly) {
  EXPECT_EQ(outer::sample_stride(0), 1u);
  EXPECT_EQ(outer::sample_stride(1), 1u);
  EXPECT_EQ(outer::sample_stride(63 * kTileValues), 1u);
  EXPECT_EQ(outer::sample_stride(63 * kTileValues + 1), 2u);
  EXPECT_EQ(outer::sample_stride(2048 * kTileValues), 64u);
  EXPECT_EQ(outer::sample_stride(100000 * kTileValues), 64u);
  std::size_t most = 0;
  for (std::size_t tiles = 1; tiles < 9000; ++tiles) {
    const std::size_t stride = outer::sample_stride(tiles * kTileValues);
    most = std::max(most, (tiles + stride - 1) / stride);
    EXPECT_GE(outer::most_sampled_tiles(tiles * kTileValues), most) << tiles;
    EXPECT_LE(outer::most_sampled_tiles(tiles * kTileValues), std::max<std::size_t>(most + 1, 63));
  }
}

// A matrix of 512 x 512 values is 64 tiles long, so a fixed place would be the same rows of each.
TEST(ContributionSample, LooksAtOneTileOfEachBlockAndNotAlwaysTheSame) {
  constexpr std::size_t kBlocks = 64, kRest = 5;
  const std::size_t n = (kBlocks * 64 + kRest) * kTileValues - 1;
  ASSERT_EQ(outer::sample_stride(n), 64u);
  const ContributionSample sample(n);
  std::set<std::size_t> places;
  for (std::size_t k = 0; k <= kBlocks; ++k) {
    const std::size_t in_block = k < kBlocks ? 64 : kRest;
    std::size_t looked_at = 0;
    for (std::size_t place = 0; place < in_block; ++place) {
      if (!sample.looks_at(k * 64 + place)) continue;
      ++looked_at;
      places.insert(place);
    }
    EXPECT_EQ(looked_at, 1u) << "block " << k;
  }
  EXPECT_GE(places.size(), 32u);  // of 64 draws from 64, some 40 differ
}

TEST(ContributionSample, IsTheNaiveLoopOverItsTiles) {
  for (const std::size_t n : {std::size_t{1}, std::size_t{4097}, 200 * kTileValues - 5}) {
    const std::vector<float> x = normal(n, 1);
    std::vector<float> mean = normal(n, 2);
    for (std::size_t i = 0; i < n; ++i) mean[i] = (mean[i] + x[i]) / 2;
    const std::size_t stride = outer::sample_stride(n);
    const auto counts = [&](std::size_t i) {
      const std::size_t tile = i / kTileValues;
      return tile == outer::sampled_tile(n, tile / stride);
    };
    for (const char* spelling : {"fp32", "int8:256", "fp4-e2m1", "topk:64"}) {
      const auto codec = make_codec(spelling);
      const Encoded encoded = encode(*codec, x);
      std::vector<float> y(n);
      ASSERT_TRUE(decode(*codec, encoded.bytes, y));
      const ContributionSample sample = sample_of(*codec, x, encoded);
      ASSERT_TRUE(sample.codec_error()) << spelling << " " << n;
      // fp64 sums of fp32 differences, in another order.
      EXPECT_NEAR(*sample.codec_error(), naive_error(x, y, counts), 1e-7) << spelling << " " << n;
      EXPECT_NEAR(sample.cosine(mean).value(), naive_cosine(y, mean, counts), 1e-12)
          << spelling << " " << n;
      EXPECT_EQ(*sample.codec_error() == 0, codec->lossless() || n == 1) << spelling;
    }
  }
}

TEST(ContributionSample, WhatIsZeroOrNotFiniteHasNone) {
  const auto codec = make_codec("fp32");
  const std::vector<float> zero(100), one(100, 1.0f);
  std::vector<float> bad(100, 1.0f);
  bad[7] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_FALSE(ContributionSample().codec_error());
  EXPECT_FALSE(ContributionSample().cosine({}));
  EXPECT_FALSE(sample_of(*codec, zero, encode(*codec, zero)).codec_error());
  EXPECT_FALSE(sample_of(*codec, zero, encode(*codec, zero)).cosine(one));
  EXPECT_FALSE(sample_of(*codec, one, encode(*codec, one)).cosine(zero));
  EXPECT_FALSE(sample_of(*codec, one, encode(*codec, one)).cosine(bad));
  EXPECT_FALSE(sample_of(*codec, bad, encode(*codec, bad)).codec_error());
  EXPECT_FALSE(sample_of(*codec, bad, encode(*codec, bad)).cosine(one));
}

struct Method {
  std::string name;
  OuterOptions outer;
};
const std::vector<Method>& rounds_methods() {
  static const std::vector<Method> kMethods = {
      {"localsgd", {.H = 2}},
      {"diloco", {.H = 2}},
      {"streaming-diloco", {.H = 4, .overlap = 3, .alpha = 0.5}},
      {"delayed", {.H = 2}},
      {"eager", {.H = 2}},
      {"co2", {.H = 2}},
      {"sparseloco", {.H = 2}},
  };
  return kMethods;
}

/// Rounds of all workers, as they were reported, by worker.
using Loop = std::function<std::unique_ptr<InnerLoop>(int worker)>;
std::vector<std::vector<RoundReport>> rounds_of(const Method& method, int workers, int steps,
                                                const Loop& loop) {
  std::vector<std::vector<RoundReport>> rounds(static_cast<std::size_t>(workers));
  run_in_process(workers, [&](WorkerContext& context) {
    const auto inner = loop(context.rank.value());
    const auto strategy = make_outer_strategy(method.name, method.outer, *inner, context.exchange);
    auto& mine = rounds[static_cast<std::size_t>(context.rank.value())];
    const auto keep = [&](const std::vector<RoundReport>& reports) {
      mine.insert(mine.end(), reports.begin(), reports.end());
    };
    for (int t = 0; t < steps; ++t) keep(strategy->step().rounds);
    keep(strategy->finish());
  });
  return rounds;
}

TEST(Agreement, OfWorkersThatDoTheSameIsOne) {
  const Loop same = [](int) {
    QuadraticLoop::Options options;
    options.tensors = {{0, 5000}};
    options.noise = 0.5f;
    return std::make_unique<QuadraticLoop>(options);
  };
  for (const Method& method : rounds_methods()) {
    for (const int workers : {1, 2, 3, 5}) {
      for (const auto& reports : rounds_of(method, workers, 8, same)) {
        ASSERT_GE(reports.size(), 2u) << method.name;
        for (const RoundReport& round : reports) {
          ASSERT_TRUE(round.cosine) << method.name;
          EXPECT_NEAR(*round.cosine, 1, kRounding) << method.name << ", " << workers << " workers";
          ASSERT_TRUE(round.codec_error) << method.name;
          EXPECT_EQ(*round.codec_error == 0, method.name != "sparseloco") << *round.codec_error;
        }
      }
    }
  }
}

// Worker m moves every M-th value from m on, all equally far.
TEST(Agreement, OfOrthogonalWorkersIsOneOverTheRootOfTheirNumber) {
  for (const Method& method : rounds_methods()) {
    for (const int workers : {2, 3, 4}) {
      const Loop apart = [&](int worker) {
        std::vector<float> rates(std::size_t{12} * 512);
        for (std::size_t i = static_cast<std::size_t>(worker); i < rates.size();
             i += static_cast<std::size_t>(workers)) {
          rates[i] = 0.25f;
        }
        return std::make_unique<Drift>(rates);
      };
      for (const auto& reports : rounds_of(method, workers, 8, apart)) {
        ASSERT_FALSE(reports.empty());
        // Later rounds of eager hold what each worker's own anchor has beyond the others'.
        ASSERT_TRUE(reports.front().cosine) << method.name;
        EXPECT_NEAR(*reports.front().cosine, 1 / std::sqrt(workers), kRounding)
            << method.name << ", " << workers << " workers";
      }
    }
  }
}

// Two workers of unequal length: cos a = a / sqrt(a a + b b), so that the mean of both is reported
// for what it is and not as a constant.
TEST(Agreement, OfUnequalWorkersIsThatOfEach) {
  const auto reports = rounds_of({"diloco", {.H = 1}}, 2, 1, [](int worker) {
    return std::make_unique<Drift>(worker == 0 ? std::vector{3.0f, 0.0f} : std::vector{0.0f, 4.0f});
  });
  EXPECT_NEAR(reports[0].front().cosine.value(), 0.6, kRounding);
  EXPECT_NEAR(reports[1].front().cosine.value(), 0.8, kRounding);
}

// What is encoded is taken from an exchange in between; x from a twin of the inner loop.
TEST(CodecErrorOfRounds, IsThatOfTheNaiveLoopWithItsResidual) {
  constexpr std::size_t kValues = 5000;
  for (const char* spelling : {"int8:256", "1bit:1024:ef", "topk:64:ef"}) {
    const auto codec = make_codec(spelling);
    QuadraticLoop::Options options;
    options.tensors = {{0, kValues}};
    options.noise = 0.5f;
    run_in_process(1, [&](WorkerContext& context) {
      QuadraticLoop inner(options), twin(options);
      const auto strategy =
          make_outer_strategy("diloco", {.H = 1, .codec = spelling}, inner, context.exchange);
      std::vector<float> residual(kValues);
      for (int t = 1; t <= 5; ++t) {
        const std::vector<float> before = inner.all();
        twin.set(before);
        (void)twin.train_step(StepIndex(t));
        std::vector<float> x = twin.all(), y(kValues);
        for (std::size_t i = 0; i < kValues; ++i) x[i] = before[i] - x[i] + residual[i];
        ASSERT_TRUE(decode(*codec, encode(*codec, x).bytes, y));
        for (std::size_t i = 0; codec->error_feedback() && i < kValues; ++i) {
          residual[i] = x[i] - y[i];
        }
        const std::vector<RoundReport> rounds = strategy->step().rounds;
        ASSERT_EQ(rounds.size(), 1u);
        const double naive = naive_error(x, y, [](std::size_t) { return true; });
        EXPECT_GT(naive, 1e-4);
        EXPECT_NEAR(rounds[0].codec_error.value(), naive, 1e-6 * naive) << spelling << " " << t;
      }
    });
  }
}

TEST(Agreement, IsNotSaidWhereNothingWasCountedOrMeasured) {
  run_in_process(2, [&](WorkerContext& context) {
    const bool loses = context.rank == WorkerId(0);
    LosingExchange exchange(context.exchange,
                            loses ? std::set<std::int64_t>{2} : std::set<std::int64_t>{});
    Drift inner(loses ? 1.0f : 2.0f);
    const auto strategy = make_outer_strategy("diloco", {.H = 1}, inner, exchange);
    for (int t = 1; t <= 3; ++t) {
      const RoundReport round = strategy->step().rounds.at(0);
      EXPECT_EQ(round.cosine.has_value(), !loses || t != 2) << t;
      EXPECT_EQ(round.codec_error.has_value(), !loses || t != 2) << t;
    }
  });
  const auto ddp = rounds_of({"ddp", {}}, 2, 2, [](int worker) {
    QuadraticLoop::Options options;
    options.worker = worker;
    return std::make_unique<QuadraticLoop>(options);
  });
  EXPECT_FALSE(ddp[0].at(0).cosine);
  EXPECT_FALSE(ddp[0].at(0).codec_error);
}

// Stopped with rounds in flight and gone on from the checkpoint, the reports are those of a run
// that was not stopped, bit for bit.
TEST(Agreement, SurvivesACheckpointWithRoundsInFlight) {
  constexpr int kWorkers = 2, kSteps = 14;
  const auto loop_of = [](int worker) {
    QuadraticLoop::Options options;
    options.tensors = {{0, 5000}, {1, 4000}};
    options.noise = 0.5f;
    options.worker = worker;
    return options;
  };
  for (const Method& method : {Method{"streaming-diloco", {.H = 5, .fragments = 2, .overlap = 4}},
                               Method{"delayed", {.H = 3}}}) {
    OuterOptions outer = method.outer;
    outer.codec = "int8:256";
    using Numbers = std::vector<std::optional<double>>;
    const auto run = [&](int stop, bool resume, std::array<MemoryState, kWorkers>& saved,
                         std::array<std::vector<float>, kWorkers>& local) {
      std::array<Numbers, kWorkers> numbers;
      run_in_process(kWorkers, [&](WorkerContext& context) {
        const auto w = static_cast<std::size_t>(context.rank.value());
        QuadraticLoop inner(loop_of(context.rank.value()));
        const auto strategy = make_outer_strategy(method.name, outer, inner, context.exchange);
        if (resume) {
          inner.set(local[w]);
          strategy->load(saved[w]);
        }
        while (strategy->steps() < StepIndex(resume ? kSteps : stop)) {
          for (const RoundReport& round : strategy->step().rounds) {
            numbers[w].insert(numbers[w].end(), {round.codec_error, round.cosine});
          }
        }
        if (!resume && stop < kSteps) {
          strategy->save(saved[w]);
          local[w] = inner.all();
        }
      });
      return numbers;
    };
    std::array<MemoryState, kWorkers> none;
    std::array<std::vector<float>, kWorkers> nothing;
    const auto whole = run(kSteps, false, none, nothing);
    ASSERT_GE(whole[0].size(), 4u);
    for (const int stop : {5, 7, 8, 11}) {
      std::array<MemoryState, kWorkers> saved;
      std::array<std::vector<float>, kWorkers> local;
      auto parts = run(stop, false, saved, local);
      const auto rest = run(kSteps, true, saved, local);
      for (std::size_t w = 0; w < kWorkers; ++w) {
        parts[w].insert(parts[w].end(), rest[w].begin(), rest[w].end());
        EXPECT_EQ(parts[w], whole[w]) << method.name << " stopped after step " << stop;
        for (const auto& number : parts[w]) EXPECT_TRUE(number && *number > 0);
      }
    }
  }
}

}  // namespace
}  // namespace isthmus::this_file
