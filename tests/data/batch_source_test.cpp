// SPDX-License-Identifier: Apache-2.0
#include "data/batch_source.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <set>

#include "core/temporary_directory.h"
#include "isthmus/errors.h"

namespace isthmus::this_file {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

// A corpus whose token i has id i: a window shows where it was read. 65535 tokens at most.
class CountingCorpus {
 public:
  CountingCorpus(std::int64_t tokens, double val_fraction) {
    std::vector<std::uint16_t> ids(static_cast<std::size_t>(tokens));
    std::iota(ids.begin(), ids.end(), std::uint16_t{0});
    SystemStorage storage;
    write_llmc_tokens(storage, directory_ / "x.bin", ids);
    DataConfig config;
    config.source = "tokens:x.bin";
    config.val_fraction = val_fraction;
    data_ = Dataset::open(storage, config, directory_.path());
  }
  [[nodiscard]] const Dataset& data() const { return data_; }

 private:
  TemporaryDirectory directory_;
  Dataset data_;
};

BatchPlan plan_of(std::int64_t context, std::int64_t samples, int workers, DataOrder order,
                  DataPartition partition = DataPartition::kIid) {
  BatchPlan plan;
  plan.context = context;
  plan.samples = samples;
  plan.workers = workers;
  plan.order = order;
  plan.partition = partition;
  plan.seed = 7;
  plan.vocab = 65536;
  return plan;
}

TEST(BatchSource, FollowsTheSequentialFormulaAndShiftsTargetsByOne) {
  const CountingCorpus corpus(103, 0.1);  // n = 93
  constexpr std::int64_t kT = 8;
  constexpr std::int64_t kB = 6;
  for (int worker = 0; worker < 3; ++worker) {
    BatchSource source(corpus.data(), plan_of(kT, kB, 3, DataOrder::kSequential), worker);
    for (std::int64_t step = 0; step < 40; ++step) {
      const TokenBatch batch = source.at(step);
      ASSERT_EQ(batch.sequences, 2);
      for (std::int64_t i = 0; i < 2; ++i) {
        const std::int64_t b = 3 * i + worker;
        const std::int64_t begin = (step * kB + b) * kT % (93 - kT - 1);
        for (std::int64_t j = 0; j < kT; ++j) {
          const auto at = static_cast<std::size_t>(i * kT + j);
          ASSERT_EQ(batch.inputs[at], begin + j) << "step " << step << " sample " << b;
          ASSERT_EQ(batch.targets[at], begin + j + 1) << "step " << step << " sample " << b;
        }
      }
    }
  }
}

// First tokens of all samples of the first `steps` steps, for all workers.
std::vector<std::vector<std::int64_t>> starts(const Dataset& data, const BatchPlan& plan,
                                              std::int64_t steps) {
  std::vector<std::vector<std::int64_t>> result;
  for (int worker = 0; worker < plan.workers; ++worker) {
    BatchSource source(data, plan, worker);
    std::vector<std::int64_t>& seen = result.emplace_back();
    for (std::int64_t step = 0; step < steps; ++step) {
      const TokenBatch batch = source.at(step);
      for (std::int64_t i = 0; i < batch.sequences; ++i) {
        seen.push_back(batch.inputs[static_cast<std::size_t>(i * plan.context)]);
      }
    }
  }
  return result;
}

TEST(BatchSource, ShuffleGivesEveryWindowOnceAnEpochToOneWorker) {
  const CountingCorpus corpus(961, 0);  // W = 120 windows of 8, as many as 30 steps of 4 samples
  const BatchPlan plan = plan_of(8, 4, 2, DataOrder::kShuffle);
  const auto seen = starts(corpus.data(), plan, 60);
  for (const std::size_t epoch : {0U, 1U}) {
    std::multiset<std::int64_t> windows;
    for (const auto& worker : seen) {
      ASSERT_EQ(worker.size(), 120U);
      windows.insert(worker.begin() + static_cast<std::ptrdiff_t>(60 * epoch),
                     worker.begin() + static_cast<std::ptrdiff_t>(60 * (epoch + 1)));
    }
    std::int64_t expected = 0;
    for (const std::int64_t start : windows) {
      ASSERT_EQ(start, expected) << "epoch " << epoch;
      expected += 8;
    }
  }
  const auto half = seen[0].begin() + 60;
  EXPECT_FALSE(std::equal(seen[0].begin(), half, half)) << "epochs have orders of their own";
}

TEST(BatchSource, ShuffleDoesNotDependOnHowManyWorkersShareTheSamples) {
  const CountingCorpus corpus(961, 0);
  const auto one = starts(corpus.data(), plan_of(8, 4, 1, DataOrder::kShuffle), 5);
  const auto two = starts(corpus.data(), plan_of(8, 4, 2, DataOrder::kShuffle), 5);
  for (std::size_t g = 0; g < 20; ++g) {
    // Sample g = 4 s + b belongs to worker b mod 2, as its number floor(g / 2).
    EXPECT_EQ(one[0][g], two[g % 2][g / 2]) << g;
  }
}

TEST(BatchSource, ShardsKeepWorkersInDisjointRunsAndSeeAllOfThem) {
  const CountingCorpus corpus(8 * 31 + 1, 0);  // 31 windows: shards of 10, 10 and 11
  for (const DataOrder order : {DataOrder::kShuffle, DataOrder::kSequential}) {
    const auto seen = starts(corpus.data(), plan_of(8, 3, 3, order, DataPartition::kShards), 11);
    const std::int64_t first[] = {0, 10, 20, 31};
    for (std::size_t worker = 0; worker < 3; ++worker) {
      for (const std::int64_t start : seen[worker]) {
        EXPECT_GE(start, 8 * first[worker]);
        EXPECT_LT(start, 8 * first[worker + 1]);
      }
      const std::set<std::int64_t> distinct(seen[worker].begin(), seen[worker].end());
      if (order == DataOrder::kShuffle) {
        EXPECT_EQ(static_cast<std::int64_t>(distinct.size()), first[worker + 1] - first[worker]);
      }
    }
  }
}

TEST(Permuted, IsAPermutationOfEverySizeAndDependsOnEveryKey) {
  for (std::uint64_t size = 1; size < 300; ++size) {
    std::set<std::uint64_t> image;
    for (std::uint64_t i = 0; i < size; ++i) image.insert(permuted(i, size, 3, 0, 0));
    ASSERT_EQ(image.size(), size);
    ASSERT_LT(*image.rbegin(), size);
  }
  const auto first_values = [](std::uint64_t seed, std::uint32_t slot, std::uint32_t epoch) {
    std::vector<std::uint64_t> values;
    for (std::uint64_t i = 0; i < 8; ++i) values.push_back(permuted(i, 1 << 20, seed, slot, epoch));
    return values;
  };
  EXPECT_NE(first_values(1, 0, 0), first_values(2, 0, 0));
  EXPECT_NE(first_values(1, 0, 0), first_values(1, 1, 0));
  EXPECT_NE(first_values(1, 0, 0), first_values(1, 0, 1));
}

TEST(Permuted, SpreadsNeighboursEvenly) {
  // Of W = 4096 positions, those in the first half of the order that land in the first half of the
  // windows: 1024 expected, standard deviation about sqrt(1024)/2 = 16; 6 sd are allowed.
  int low = 0;
  for (std::uint64_t i = 0; i < 2048; ++i) low += permuted(i, 4096, 11, 0, 0) < 2048 ? 1 : 0;
  EXPECT_NEAR(low, 1024, 96);
}

TEST(Permuted, KeepsItsValues) {
  // Resumed runs must draw the same order for ever. Printed by this function on 2026-11-21.
  std::vector<std::uint64_t> values;
  for (std::uint64_t i = 0; i < 8; ++i) values.push_back(permuted(i, 1000, 42, 0, 3));
  EXPECT_THAT(values, ElementsAre(134, 94, 398, 316, 350, 51, 284, 90));
}

TEST(BatchSource, RefusesTooLittleDataWithTheNumbers) {
  const CountingCorpus corpus(20, 0.1);  // n = 18
  EXPECT_NO_THROW(BatchSource(corpus.data(), plan_of(16, 1, 1, DataOrder::kSequential), 0));
  EXPECT_THAT(message_of<ConfigError>([&] {
                BatchSource(corpus.data(), plan_of(17, 1, 1, DataOrder::kSequential), 0);
              }),
              AllOf(HasSubstr("train.context = 17"), HasSubstr("at least 19"), HasSubstr("has 18"),
                    HasSubstr("20 less 2")));
  EXPECT_THAT(message_of<ConfigError>([&] {
                BatchSource(corpus.data(),
                            plan_of(8, 3, 3, DataOrder::kShuffle, DataPartition::kShards), 0);
              }),
              AllOf(HasSubstr("shards"), HasSubstr("2 windows"), HasSubstr("3 workers")));
  EXPECT_THAT(message_of<ConfigError>(
                  [&] { BatchSource(corpus.data(), plan_of(4, 3, 2, DataOrder::kShuffle), 0); }),
              AllOf(HasSubstr("train.global_batch = 12 tok"), HasSubstr("2 workers")));
}

TEST(BatchSource, NamesATokenTheModelHasNoRowFor) {
  const CountingCorpus corpus(400, 0);
  BatchPlan plan = plan_of(8, 1, 1, DataOrder::kSequential);
  plan.vocab = 20;
  BatchSource source(corpus.data(), plan, 0);
  EXPECT_NO_THROW((void)source.at(1));
  EXPECT_THAT(message_of<ConfigError>([&] { (void)source.at(2); }),
              AllOf(HasSubstr("model.vocab = 20"), HasSubstr("token id 20 at position 20 of"),
                    HasSubstr("at least 21")));
  plan.vocab = {20, "models/m"};  // which no key of the configuration sets
  BatchSource of_folder(corpus.data(), plan, 0);
  EXPECT_THAT(
      message_of<ConfigError>([&] { (void)of_folder.at(2); }),
      AllOf(HasSubstr("models/m/config.json: vocab_size = 20: token id 20 at position 20"),
            HasSubstr("a model of at least 21 ids"), testing::Not(HasSubstr("model.vocab"))));
}

TEST(ValidationSource, GivesConsecutiveWindowsOfTheValidationPart) {
  const CountingCorpus corpus(1000, 0.1);  // validation: 900 .. 999
  ValidationSource source(corpus.data(), {.context = 8, .tokens = 50, .vocab = 65536});
  EXPECT_EQ(source.windows(), 6);
  const TokenBatch batch = source.at(1, 2);
  EXPECT_EQ(batch.sequences, 2);
  EXPECT_EQ(batch.inputs[0], 908);
  EXPECT_EQ(batch.inputs[15], 923);
  EXPECT_EQ(batch.targets[15], 924);
  EXPECT_EQ(ValidationSource(corpus.data(), {.context = 8, .tokens = 0, .vocab = 65536}).windows(),
            12);  // floor(99 / 8)
  EXPECT_EQ(ValidationSource(corpus.data(), {.context = 99, .tokens = 0, .vocab = 65536}).windows(),
            1);
  EXPECT_THAT(message_of<ConfigError>([&] {
                ValidationSource(corpus.data(), {.context = 8, .tokens = 104, .vocab = 65536});
              }),
              AllOf(HasSubstr("eval.tokens = 104"), HasSubstr("from 8 to 96")));
  EXPECT_THAT(message_of<ConfigError>([&] {
                ValidationSource(corpus.data(), {.context = 8, .tokens = 7, .vocab = 65536});
              }),
              HasSubstr("from 8 to 96"));
  EXPECT_THAT(message_of<ConfigError>([&] {
                ValidationSource(corpus.data(), {.context = 100, .tokens = 0, .vocab = 65536});
              }),
              HasSubstr("0 windows"));
}

TEST(ValidationSource, HalvesShareNoWindow) {
  const CountingCorpus corpus(1000, 0.1);  // 12 windows of 8 tokens from 900 on
  ValidationSource first(
      corpus.data(), {.context = 8, .tokens = 0, .vocab = 65536, .part = ValidationPart::kFirst});
  ValidationSource second(
      corpus.data(), {.context = 8, .tokens = 0, .vocab = 65536, .part = ValidationPart::kSecond});
  EXPECT_EQ(first.windows(), 6);
  EXPECT_EQ(second.windows(), 6);
  EXPECT_EQ(first.at(0, 1).inputs[0], 900);
  EXPECT_EQ(first.at(5, 1).targets[7], 948);
  EXPECT_EQ(second.at(0, 1).inputs[0], 948);
  EXPECT_EQ(second.at(5, 1).targets[7], 996);
  EXPECT_THAT(message_of<ConfigError>([&] {
                ValidationSource(
                    corpus.data(),
                    {.context = 8, .tokens = 56, .vocab = 65536, .part = ValidationPart::kSecond});
              }),
              AllOf(HasSubstr("a half of"), HasSubstr("from 8 to 48")));
}

}  // namespace
}  // namespace isthmus::this_file
