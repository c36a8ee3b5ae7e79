// SPDX-License-Identifier: Apache-2.0
// Several sources in their shares: against counting one sample after another.
#include "data/source_mix.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <numeric>
#include <set>

#include "core/temporary_directory.h"
#include "data/batch_source.h"
#include "isthmus/errors.h"

namespace isthmus::this_file {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

const std::vector<std::vector<double>> kShares = {
    {0.8, 0.2}, {1, 1}, {0.7, 0.2, 0.1}, {0.999, 0.001}, {3, 1, 4, 1, 5}, {1.0 / 3, 2.0 / 3}, {1}};

TEST(SourceMix, CountsWhatItGaveOneAfterAnother) {
  for (const auto& shares : kShares) {
    for (const std::uint64_t seed : {0U, 1U, 7U}) {
      const SourceMix mix(shares, seed);
      std::vector<std::int64_t> counts(shares.size(), 0);
      for (std::int64_t g = 0; g < 3000; ++g) {
        for (std::size_t k = 0; k < shares.size(); ++k) ASSERT_EQ(mix.count(k, g), counts[k]);
        const SourceMix::Place place = mix.at(g);
        ASSERT_LT(place.source, shares.size());
        ASSERT_EQ(place.index, counts[place.source]++);
      }
    }
  }
}

// A Kronecker sequence strays from an interval that begins at 0 by less than 3 samples and the sum
// of the partial quotients in use, which are below log2(n) / log2(1.6) twos (Kuipers and
// Niederreiter, Uniform Distribution of Sequences, 1974, theorem 2.3.4); from one of any place by
// twice that. What is found is far below the bound.
TEST(SourceMix, SharesAreExactButForAFewSamples) {
  for (const auto& shares : kShares) {
    const double all = std::accumulate(shares.begin(), shares.end(), 0.0);
    for (const std::uint64_t seed : {0U, 1U, 7U, 1234567U}) {
      const SourceMix mix(shares, seed);
      double worst = 0;
      for (std::int64_t g = 1; g < 20'000'000; g = g * 9 / 8 + 1) {
        for (std::size_t k = 0; k < shares.size(); ++k) {
          const double off =
              static_cast<double>(mix.count(k, g)) - shares[k] / all * static_cast<double>(g);
          const double bound = 2 * (3 + 2 * std::log2(static_cast<double>(g)) / std::log2(1.6));
          ASSERT_LE(std::abs(off), bound) << "source " << k << " after " << g;
          worst = std::max(worst, std::abs(off));
        }
      }
      EXPECT_LE(worst, 6);  // 0.03 %, after 20,000 samples
    }
  }
}

TEST(SourceMix, GoesOnFarBeyondAPeriod) {
  const SourceMix mix(std::vector{0.8, 0.2}, 3);
  constexpr std::int64_t kPeriod = std::int64_t{1} << 31;
  for (const std::int64_t g : {std::int64_t{5}, std::int64_t{100'000}, kPeriod - 1}) {
    for (const std::int64_t periods : {1, 2, 1000}) {
      EXPECT_EQ(mix.at(g + periods * kPeriod).source, mix.at(g).source);
      EXPECT_EQ(mix.count(0, g + periods * kPeriod),
                mix.count(0, g) + periods * mix.count(0, kPeriod));
    }
  }
  EXPECT_NEAR(static_cast<double>(mix.count(0, kPeriod)) / kPeriod, 0.8, 1e-9);
}

TEST(SourceMix, StreamsAndSeedsHaveSequencesOfTheirOwn) {
  const std::vector<double> shares = {0.5, 0.5};
  const auto first = [&](std::uint64_t seed, std::int64_t stream) {
    std::vector<std::size_t> sources;
    for (std::int64_t g = 0; g < 64; ++g) {
      sources.push_back(SourceMix(shares, seed, stream, 3).at(g).source);
    }
    return sources;
  };
  EXPECT_NE(first(1, 0), first(2, 0));
  EXPECT_NE(first(1, 0), first(1, 1));
  EXPECT_EQ(first(1, 2), first(1, 2));
}

TEST(SourceMix, KeepsItsValues) {
  // Resumed runs must mix alike for ever. Printed by this class on 2026-11-28.
  const SourceMix mix(std::vector{0.6, 0.4}, 42);
  std::vector<std::size_t> sources;
  for (std::int64_t g = 0; g < 12; ++g) sources.push_back(mix.at(g).source);
  EXPECT_THAT(sources, ElementsAre(1, 0, 1, 0, 0, 1, 0, 0, 1, 0, 1, 0));
}

/// Sources whose tokens say whose they are: those of "a" are below 10,000, of "b" from there on.
class MixedData : public testing::Test {
 protected:
  MixedData() {
    write("a.bin", 0, 1000);
    write("b.bin", 10'000, 3000);
    config_.sources = {{"a", "tokens:a.bin"}, {"b", "tokens:b.bin"}};
    config_.mix = {{"a", 3}, {"b", 1}};
  }
  void write(const std::string& name, std::uint16_t first, std::size_t tokens) {
    std::vector<std::uint16_t> ids(tokens);
    std::iota(ids.begin(), ids.end(), first);
    write_llmc_tokens(storage_, directory_ / name, ids);
  }
  [[nodiscard]] Dataset open() const { return Dataset::open(storage_, config_, directory_.path()); }
  static BatchPlan plan(int workers, DataOrder order = DataOrder::kShuffle,
                        DataPartition partition = DataPartition::kIid, std::uint64_t seed = 7) {
    return {.context = 10,
            .samples = 8,
            .workers = workers,
            .order = order,
            .partition = partition,
            .seed = seed,
            .vocab = 65536};
  }
  /// First tokens of the samples of steps [0, steps), by number of the sample in the run.
  static std::vector<std::int32_t> starts(const Dataset& data, const BatchPlan& plan,
                                          std::int64_t steps) {
    std::vector<std::int32_t> all(static_cast<std::size_t>(steps * plan.samples));
    for (int m = 0; m < plan.workers; ++m) {
      BatchSource source(data, plan, m);
      for (std::int64_t step = 0; step < steps; ++step) {
        const TokenBatch batch = source.at(step);
        for (std::int64_t i = 0; i < batch.sequences; ++i) {
          const std::int64_t g = step * plan.samples + i * plan.workers + m;
          const auto from = static_cast<std::size_t>(i * plan.context);
          all[static_cast<std::size_t>(g)] = batch.inputs[from];
          for (std::size_t t = 0; t < 10; ++t) {  // one source's window, with its targets
            EXPECT_EQ(batch.inputs[from + t], batch.inputs[from] + static_cast<std::int32_t>(t));
            EXPECT_EQ(batch.targets[from + t], batch.inputs[from + t] + 1);
          }
        }
      }
    }
    return all;
  }
  static bool of_b(std::int32_t id) { return id >= 10'000; }

  TemporaryDirectory directory_;
  SystemStorage storage_;
  DataConfig config_;
};

TEST_F(MixedData, EachSourceIsReadInItsShareAndEachWindowOnceAPass) {
  const Dataset data = open();
  ASSERT_EQ(data.tokens(), 4000);
  ASSERT_EQ(data.train_tokens(), 900 + 2700);
  for (const std::uint64_t seed : {1U, 2U, 9U}) {
    // Of 89 and 269 windows; a step has 6 samples of a and 2 of b.
    const auto all = starts(data, plan(2, DataOrder::kShuffle, DataPartition::kIid, seed), 150);
    std::map<std::int32_t, int> a, b;
    int of_b_in_step = 0;
    for (std::size_t g = 0; g < all.size(); ++g) {
      ++(of_b(all[g]) ? b : a)[all[g]];
      of_b_in_step += of_b(all[g]) ? 1 : 0;
      if (g % 8 == 7) {
        EXPECT_NEAR(of_b_in_step, 2, 1) << "step " << g / 8;
        of_b_in_step = 0;
      }
    }
    int samples_of_a = 0, samples_of_b = 0;
    for (const auto& [id, count] : a) {
      EXPECT_EQ(id % 10, 0);
      EXPECT_NEAR(count, 900.0 / 89, 1) << id;  // ten passes and a part of another one
      samples_of_a += count;
    }
    for (const auto& [id, count] : b) samples_of_b += count;
    EXPECT_EQ(a.size(), 89U);
    EXPECT_EQ(b.size(), 269U);
    EXPECT_NEAR(samples_of_a, 900, 4);
    EXPECT_NEAR(samples_of_b, 300, 4);
  }
}

TEST_F(MixedData, SamplesDoNotDependOnTheWorkersNorOnWhereARunResumes) {
  const Dataset data = open();
  for (const DataOrder order : {DataOrder::kShuffle, DataOrder::kSequential}) {
    const auto one = starts(data, plan(1, order), 40);
    for (const int workers : {2, 4, 8}) EXPECT_EQ(starts(data, plan(workers, order), 40), one);
    BatchSource late(data, plan(1, order), 0);
    const TokenBatch batch = late.at(33);
    for (std::size_t b = 0; b < 8; ++b) EXPECT_EQ(batch.inputs[b * 10], one[33 * 8 + b]);
  }
}

// Were sample b always of the same place of the sequence, a worker whose steps advance it by nearly
// nothing (8 is a Fibonacci number) would keep to one source for many steps.
TEST_F(MixedData, NoWorkerKeepsToOneSource) {
  const Dataset data = open();
  const auto all = starts(data, plan(8), 200);
  for (std::size_t worker = 0; worker < 8; ++worker) {
    int same = 0, longest = 0, b = 0;
    for (std::size_t step = 0; step < 200; ++step) {
      const bool here = of_b(all[step * 8 + worker]);
      same = step > 0 && here == of_b(all[step * 8 - 8 + worker]) ? same + 1 : 0;
      longest = std::max(longest, same);
      b += here ? 1 : 0;
    }
    EXPECT_LE(longest, 40);     // 0.75^40 = 1e-5
    EXPECT_NEAR(b, 50, 6 * 6);  // six standard deviations of a fair draw
  }
}

TEST_F(MixedData, AnotherSourceBesideDoesNotChangeTheOrderOfOne) {
  const auto order_of_a = [&] {
    BatchPlan one = plan(1);
    one.samples = 1;
    std::vector<std::int32_t> order;
    for (const std::int32_t id : starts(open(), one, 400)) {
      if (id < 1000) order.push_back(id);
    }
    order.resize(200);  // more than two passes
    return order;
  };
  const auto two = order_of_a();
  write("c.bin", 30'000, 500);
  config_.sources.emplace_back("c", "tokens:c.bin");
  config_.mix.emplace_back("c", 1);
  EXPECT_EQ(order_of_a(), two);
}

TEST_F(MixedData, ShardsKeepWorkersApartInEverySource) {
  const Dataset data = open();
  const auto all = starts(data, plan(4, DataOrder::kShuffle, DataPartition::kShards), 400);
  std::vector<std::set<std::int32_t>> seen(4);
  int b = 0;
  for (std::size_t g = 0; g < all.size(); ++g) {
    seen[g % 4].insert(all[g]);
    b += of_b(all[g]) ? 1 : 0;
  }
  std::size_t windows = 0;
  std::set<std::int32_t> together;
  for (const auto& own : seen) {
    windows += own.size();
    together.insert(own.begin(), own.end());
  }
  EXPECT_EQ(together.size(), windows);  // none twice
  EXPECT_EQ(windows, 89U + 269U);
  EXPECT_NEAR(b, 800, 4 * 6);
}

TEST_F(MixedData, ValidationTakesEachSourceInItsShare) {
  const Dataset data = open();  // 100 and 300 tokens: 9 and 29 windows
  ValidationSource source(data, {.context = 10, .tokens = 80, .vocab = 65536});
  ASSERT_EQ(source.windows(), 8);
  ASSERT_EQ(source.sources().size(), 2U);
  EXPECT_EQ(source.sources()[0].end, 6);
  EXPECT_EQ(source.sources()[1].end, 8);
  const TokenBatch batch = source.at(5, 3);
  EXPECT_EQ(batch.inputs[0], 950);
  EXPECT_EQ(batch.inputs[10], 12'700);
  EXPECT_EQ(batch.targets[19], 12'710);
  EXPECT_EQ(batch.inputs[20], 12'710);
  EXPECT_EQ(ValidationSource(data, {.context = 10, .vocab = 65536}).windows(), 38);
  EXPECT_THAT(message_of<ConfigError>(
                  [&] { ValidationSource(data, {.context = 10, .tokens = 160, .vocab = 65536}); }),
              AllOf(HasSubstr("data.sources.a"), HasSubstr("9 windows"), HasSubstr("share is 12"),
                    HasSubstr("lower eval.tokens")));
  EXPECT_THAT(windows_of_sources(data, 1), ElementsAre(1, 1));
  EXPECT_THAT(windows_of_sources(data, 5), ElementsAre(4, 1));
}

TEST_F(MixedData, FilesAreToldApartBySource) {
  const auto files = open().fingerprint();
  ASSERT_EQ(files.size(), 2U);
  EXPECT_THAT(files[0].reading, HasSubstr("of source a"));
  EXPECT_THAT(files[1].reading, HasSubstr("of source b"));
  std::swap(config_.sources[0].second, config_.sources[1].second);
  EXPECT_NE(open().fingerprint()[0].reading, files[0].reading);
}

TEST_F(MixedData, ErrorsNameTheSource) {
  config_.sources[1].second = "tokens:nowhere.bin";
  EXPECT_THAT(message_of<SystemError>([&] { (void)open(); }),
              AllOf(HasSubstr("data.sources.b"), HasSubstr("nowhere.bin")));
  config_.sources[1].second = "tokens:b.bin";
  write("b.bin", 10'000, 9);
  EXPECT_THAT(message_of<ConfigError>([&] { BatchSource(open(), plan(1), 0); }),
              AllOf(HasSubstr("train.context = 10"), HasSubstr("data.sources.b")));
  BatchPlan packed = plan(1);
  packed.documents = true;
  EXPECT_THAT(message_of<ConfigError>([&] { BatchSource(open(), packed, 0); }),
              AllOf(HasSubstr("data.sources.a"), HasSubstr("does not say where")));
}

}  // namespace
}  // namespace isthmus::this_file
