// SPDX-License-Identifier: Apache-2.0
// What cuDNN is told of our layouts, and what it is not asked for. Needs neither cuDNN nor a
// device.
#include "kernels/cuda/cudnn/cudnn_layout.h"

#include <gmock/gmock.h>

#include <cmath>
#include <vector>

#include "cuda/attention_device_case.h"

namespace isthmus::cuda::this_file {
namespace {
using kernels::Bf16;
using testing::HasSubstr;

/// Where cuDNN looks for a value.
std::int64_t place(const CudnnTensor& x, std::int64_t b, std::int64_t h, std::int64_t t,
                   std::int64_t i) {
  return b * x.strides[0] + h * x.strides[1] + t * x.strides[2] + i * x.strides[3];
}

TEST(CudnnLayout, FindsEachValueWhereTheOwnKernelsDo) {
  for (const bool fused : {false, true}) {
    const AttentionCase c{
        .batch = 2, .seq = 5, .q_heads = 6, .kv_heads = 2, .head_dim = 8, .fused = fused};
    const QkvLayout layout(c);
    const std::vector<Bf16> memory(layout.size());
    const auto expect = [&](const HeadsView<const Bf16>& view, std::int64_t heads) {
      const CudnnTensor tensor = cudnn_heads(c.shape(), heads, view);
      EXPECT_EQ(tensor.sizes, (std::array<std::int64_t, 4>{2, heads, 5, 8}));
      for (std::int64_t b = 0; b < c.batch; ++b) {
        for (std::int64_t h = 0; h < heads; ++h) {
          for (std::int64_t t = 0; t < c.seq; ++t) {
            for (std::int64_t i = 0; i < c.head_dim; ++i) {
              ASSERT_EQ(view.data + place(tensor, b, h, t, i), view.at(b, t, h) + i);
            }
          }
        }
      }
    };
    expect(layout.q(memory.data()), c.q_heads);
    expect(layout.k(memory.data()), c.kv_heads);
    expect(layout.v(memory.data()), c.kv_heads);
    expect(layout.out(memory.data()), c.q_heads);
  }
}

// The order in which the reference writes them: each row's is told by a value that no other has.
TEST(CudnnLayout, FindsEachLogSumExpWhereTheReferenceWritesIt) {
  const AttentionShape shape{
      .batch = 2, .seq = 3, .q_heads = 4, .kv_heads = 2, .head_dim = 1, .scale = 1};
  kernels::ThreadTeam team(1);
  const auto view = [&](auto* data, std::int64_t heads) {
    return kernels::heads_in_rows(data, shape.seq, heads, 1);
  };
  std::vector<double> q(24), ones(12, 1.0), out(24), lse(24);
  for (std::size_t i = 0; i < q.size(); ++i) q[i] = static_cast<double>(i);
  const double *const from = q.data(), *const keys = ones.data();
  kernels::attention_forward_reference<double>(team, shape, view(from, 4), view(keys, 2),
                                               view(keys, 2), view(out.data(), 4), lse.data());
  const CudnnTensor tensor = cudnn_statistics(shape);
  EXPECT_EQ(tensor.sizes, (std::array<std::int64_t, 4>{2, 4, 3, 1}));
  for (std::int64_t b = 0; b < 2; ++b) {
    for (std::int64_t h = 0; h < 4; ++h) {
      for (std::int64_t t = 0; t < 3; ++t) {
        // t + 1 keys, each with the score q k = q.
        const double expected = *view(from, 4).at(b, t, h) + std::log(static_cast<double>(t + 1));
        EXPECT_NEAR(lse[static_cast<std::size_t>(place(tensor, b, h, t, 0))], expected, 1e-12);
      }
    }
  }
}

TEST(CudnnLayout, RefusesShapesByName) {
  const AttentionShape good{2, 64, 4, 2, 128, 0.125};
  for (const int major : {8, 9, 10, 12}) EXPECT_EQ(cudnn_refusal(good, major), "") << major;
  AttentionShape shape = good;
  shape.head_dim = 136;
  EXPECT_EQ(cudnn_refusal(shape, 9), "");
  EXPECT_THAT(cudnn_refusal(shape, 8), HasSubstr("head dimension 136; cuDNN takes multiples of 8 "
                                                 "up to 128"));
  shape.head_dim = 264;
  EXPECT_THAT(cudnn_refusal(shape, 9), HasSubstr("up to 256"));
  shape.head_dim = 20;
  EXPECT_THAT(cudnn_refusal(shape, 9), HasSubstr("head dimension 20"));
  shape = good;
  shape.kv_heads = 3;
  EXPECT_THAT(cudnn_refusal(shape, 9), HasSubstr("4 query heads are no multiple of 3"));
  shape = good;
  shape.seq = 1;
  EXPECT_THAT(cudnn_refusal(shape, 9), HasSubstr("windows of 1 token"));
  shape = {1, 65, 3, 1, 64, 0.125};
  EXPECT_THAT(cudnn_refusal(shape, 9), HasSubstr("1 windows of 65 tokens with 3 query heads"));
  shape.batch = 4;
  EXPECT_EQ(cudnn_refusal(shape, 9), "");
}

}  // namespace
}  // namespace isthmus::cuda::this_file
