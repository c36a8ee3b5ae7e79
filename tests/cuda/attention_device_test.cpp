// SPDX-License-Identifier: Apache-2.0
// Attention on a device against the plain loops in double on the same values.
#include "cuda/attention_device_case.h"

namespace isthmus::cuda::this_file {
namespace {

using kernels::Bf16;

template <typename T>
void expect_right(const AttentionCase& c) {
  SCOPED_TRACE(c.name());
  const AttentionInputs<T> inputs(c);
  const AttentionResult<T> got = attention_on_device(c, inputs);
  std::vector<double> lse;
  const AttentionResult<double> expected = attention_in_double(c, inputs, got.out, lse);
  expect_results_near(c, got, expected);
  for (std::size_t i = 0; i < lse.size(); ++i) {
    ASSERT_NEAR(got.lse[i], lse[i], 1e-5 * (1 + std::abs(lse[i]))) << c.name() << ", row " << i;
  }
}

class AttentionOnDevice : public DeviceTest {};

// Lengths of one token, around a tile of 32, 64 and 128 and beyond; one key head per query head,
// several, and one for all; padded and full head dimensions.
constexpr AttentionCase kCases[] = {
    {1, 1, 1, 1, 64},         {3, 1, 6, 2, 128, true},  {2, 5, 3, 3, 16, true},
    {1, 31, 5, 1, 64, true},  {2, 32, 1, 1, 64},        {1, 33, 2, 2, 32, true},
    {1, 63, 2, 1, 128, true}, {1, 64, 2, 1, 64, true},  {1, 65, 3, 1, 64},
    {1, 127, 1, 1, 96, true}, {1, 128, 1, 1, 128},      {1, 129, 2, 2, 64, true},
    {1, 200, 3, 1, 80, true}, {1, 70, 2, 1, 256, true}, {1, 40, 1, 1, 136}};

TEST_F(AttentionOnDevice, FloatFollowsTheFormulas) {
  for (const AttentionCase& c : kCases) expect_right<float>(c);
}

TEST_F(AttentionOnDevice, FloatTakesHeadsOfAnySize) {
  for (const std::int64_t head_dim : {1, 3, 33, 65, 255}) {
    expect_right<float>({2, 35, 4, 2, head_dim, true});
  }
}

TEST_F(AttentionOnDevice, Bf16FollowsTheFormulas) {
  for (const AttentionCase& c : kCases) expect_right<Bf16>(c);
}

TEST_F(AttentionOnDevice, Bf16TakesHeadsAndRowsThatNoVectorFits) {
  expect_right<Bf16>({.batch = 2, .seq = 35, .q_heads = 2, .kv_heads = 1, .head_dim = 20});
  expect_right<Bf16>({.batch = 1,
                      .seq = 70,
                      .q_heads = 2,
                      .kv_heads = 1,
                      .head_dim = 64,
                      .fused = true,
                      .offset = 1});
}

// The largest logits are some hundreds: without the row's maximum the powers would overflow.
TEST_F(AttentionOnDevice, LargeLogitsLeaveOneKey) {
  for (const std::int64_t head_dim : {64, 128}) {
    const AttentionCase c{1, 150, 2, 1, head_dim, true, 64};
    expect_right<float>(c);
    expect_right<Bf16>(c);
  }
}

TEST_F(AttentionOnDevice, TheScaleIsTheCallers) {
  const AttentionCase c{
      .batch = 1, .seq = 70, .q_heads = 1, .kv_heads = 1, .head_dim = 64, .scale = 0.31};
  expect_right<float>(c);
  expect_right<Bf16>(c);
}

TEST_F(AttentionOnDevice, WithoutQueriesNothingIsDone) {
  const AttentionCase no_batch{0, 5, 2, 1, 64};
  const AttentionCase no_tokens{2, 0, 2, 1, 64};
  for (const AttentionCase& c : {no_batch, no_tokens}) {
    expect_right<float>(c);
    expect_right<Bf16>(c);
  }
}

TEST_F(AttentionOnDevice, RefusesShapesByName) {
  using ::testing::HasSubstr;
  const AttentionShape good{1, 8, 4, 2, 64, 0.125};
  EXPECT_EQ(attention_refusal<float>(good, kMostSharedBytes), "");
  EXPECT_EQ(attention_refusal<Bf16>(good, kMostSharedBytes), "");
  AttentionShape shape = good;
  shape.kv_heads = 3;
  EXPECT_THAT(attention_refusal<float>(shape, kMostSharedBytes),
              HasSubstr("4 query heads are no multiple of 3"));
  shape = good;
  shape.head_dim = 264;
  EXPECT_THAT(attention_refusal<float>(shape, kMostSharedBytes),
              HasSubstr("264; 1 to 256 are possible"));
  shape = good;
  shape.scale = 0;
  EXPECT_THAT(attention_refusal<float>(shape, kMostSharedBytes), HasSubstr("must be above 0"));
}

}  // namespace
}  // namespace isthmus::cuda::this_file
