// SPDX-License-Identifier: Apache-2.0
// What is wrong about the length of a run and the size of its batches.
#include <gtest/gtest.h>

#include <string>

#include "config_fixture.h"

namespace isthmus::this_file {
namespace {

struct BatchCase {
  const char* batch;
  int workers;
  const char* nearest;
};

class GlobalBatch : public testing::TestWithParam<BatchCase> {};

TEST_P(GlobalBatch, NamesTheNearestWorkingValue) {
  const auto found = diagnostics_of(
      kMinimal, {"train.context=16", std::string("train.global_batch=") + GetParam().batch,
                 "run.workers=" + std::to_string(GetParam().workers)});
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0].code, "E-DIVISIBLE");
  EXPECT_NE(found[0].message.find(GetParam().nearest), std::string::npos) << found[0].message;
}

INSTANTIATE_TEST_SUITE_P(Table, GlobalBatch,
                         testing::Values(BatchCase{"200 tok", 4, "\"192 tok\""},
                                         BatchCase{"230 tok", 4, "\"256 tok\""},
                                         BatchCase{"10 tok", 4, "\"64 tok\""},
                                         BatchCase{"100 tok", 1, "\"96 tok\""}));

TEST(ConfigErrors, StepsAndTokensExcludeOneAnother) {
  const auto both = diagnostics_of(kMinimal, {"train.tokens=3M"});
  ASSERT_EQ(both.size(), 1U);
  EXPECT_EQ(both[0].code, "E-CONFLICT");
  const auto neither =
      diagnostics_of("[data]\nsource = \"synth:x\"\n[train]\nglobal_batch = \"128 tok\"\n");
  ASSERT_EQ(neither.size(), 1U);
  EXPECT_EQ(neither[0].code, "E-KEY-MISSING");
}

TEST(ConfigErrors, AGlobalBatchNeedsItsUnit) {
  const auto found = diagnostics_of(kMinimal, {"train.global_batch=1280"});
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0].code, "E-UNIT-MISSING");
}

}  // namespace
}  // namespace isthmus::this_file
