// SPDX-License-Identifier: Apache-2.0
// The log's file form: what is written comes back, what was touched is refused, any bytes are
// survived.
#include "outer/parts/spsa_log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/base/rng.h"

namespace isthmus::outer::this_file {
namespace {

SpsaLogHeader some_header() {
  return {.run_key = 0x1122334455667788,
          .scale_log2 = -3,
          .divide_by_sqrt = true,
          .weight_decay = 0.25f,
          .members = 11,
          .elements = 123456,
          .layout = xxh3_128({}),
          .base_step = StepIndex(60)};
}

SpsaRecord some_record(std::int64_t step) {
  SpsaRecord record{.step = StepIndex(step), .epoch = 2, .lr = 1e-3f};
  for (std::uint32_t m = 0; m < 11; m += 1 + static_cast<std::uint32_t>(step % 3)) {
    record.machines.push_back(m);
    record.counts.push_back(static_cast<std::uint16_t>(1 + m % 4));
    for (std::uint32_t k = 0; k < 1 + m % 4; ++k) {
      record.codes.push_back(static_cast<std::uint8_t>(step * 13 + k));
    }
  }
  if (step % SpsaLog::kWeightsEvery == 0) record.weights = xxh3_128({});
  return record;
}

SpsaLog some_log(std::int64_t last) {
  SpsaLog log(some_header());
  for (std::int64_t t = 61; t <= last; ++t) log.append(some_record(t));
  return log;
}

TEST(SpsaLog, ComesBackAsItWasWritten) {
  const SpsaLog log = some_log(200);
  const auto read = SpsaLog::parse(log.bytes());
  ASSERT_TRUE(read.has_value()) << read.error().what;
  EXPECT_EQ(read->header(), some_header());
  EXPECT_EQ(read->last(), StepIndex(200));
  EXPECT_EQ(read->chain(), log.chain());
  EXPECT_EQ(read->entries(), log.entries());
  for (std::int64_t t = 61; t <= 200; ++t) {
    EXPECT_EQ(read->record(StepIndex(t)), some_record(t));
  }
}

// 16 fixed bytes, the bitmap, two a contributor, one an entry, four of the chain.
TEST(SpsaLog, TakesOneByteAnEntryBeyondItsHeaders) {
  SpsaLog log(some_header());
  const std::size_t header = log.bytes().size();
  EXPECT_EQ(header, 112u);
  SpsaRecord record{.step = StepIndex(61), .lr = 1};
  record.machines = {3};
  record.counts = {1000};
  record.codes.assign(1000, 64);
  log.append(record);
  EXPECT_EQ(log.bytes().size() - header, 16u + 2u + 2u + 1000u + 4u);
}

TEST(SpsaLog, AnyChangedByteIsFound) {
  const SpsaLog log = some_log(66);
  const std::vector<std::byte> good(log.bytes().begin(), log.bytes().end());
  for (std::size_t i = 0; i < good.size(); ++i) {
    for (const unsigned bit : {0u, 3u, 7u}) {
      std::vector<std::byte> bad = good;
      bad[i] ^= static_cast<std::byte>(1u << bit);
      EXPECT_FALSE(SpsaLog::parse(bad).has_value()) << "byte " << i << " bit " << bit;
    }
  }
}

TEST(SpsaLog, AnEndInsideARecordAndASwapAreFound) {
  const SpsaLog log = some_log(63);
  const SpsaLog shorter = some_log(62);
  const std::vector<std::byte> good(log.bytes().begin(), log.bytes().end());
  for (std::size_t size = 0; size < good.size(); ++size) {
    const auto read = SpsaLog::parse(std::span(good).first(size));
    const bool whole =
        size == 112 || size == some_log(61).bytes().size() || size == shorter.bytes().size();
    EXPECT_EQ(read.has_value(), whole) << size;
  }
  // The record of step 63 straight after that of 61.
  std::vector<std::byte> jump(
      good.begin(), good.begin() + static_cast<std::ptrdiff_t>(some_log(61).bytes().size()));
  jump.insert(jump.end(), good.begin() + static_cast<std::ptrdiff_t>(shorter.bytes().size()),
              good.end());
  const auto read = SpsaLog::parse(jump);
  ASSERT_FALSE(read.has_value());
  EXPECT_THAT(read.error().what, ::testing::HasSubstr("after step 61"));
}

TEST(SpsaLog, SurvivesAnyBytes) {
  const Rng rng{2, Stream::kTestData};
  const SpsaLog log = some_log(64);
  std::uint64_t draws = 0;
  for (int trial = 0; trial < 3000; ++trial) {
    std::vector<std::byte> bytes(log.bytes().begin(), log.bytes().end());
    bytes.resize(112 + rng.below(bytes.size() - 111, draws++));
    for (std::size_t i = 112; i < bytes.size(); ++i) {
      if (rng.below(8, draws++) == 0) bytes[i] = static_cast<std::byte>(rng.below(256, draws++));
    }
    (void)SpsaLog::parse(bytes);
  }
}

TEST(SpsaLog, ACutLogGoesOnWithTheSameChain) {
  SpsaLog log = some_log(100);
  SpsaLog rest = log.cut(StepIndex(80), xxh3_128({}));
  EXPECT_EQ(rest.header().base_step, StepIndex(80));
  EXPECT_EQ(rest.last(), StepIndex(100));
  EXPECT_EQ(rest.chain(), log.chain());
  log.append(some_record(101));
  rest.append(some_record(101));
  EXPECT_EQ(rest.chain(), log.chain());
  EXPECT_EQ(rest.cut(StepIndex(101), {}).chain(), log.cut(StepIndex(101), {}).chain());
}

}  // namespace
}  // namespace isthmus::outer::this_file
