// SPDX-License-Identifier: Apache-2.0
// Attention by cuDNN against the plain loops in double on the same values: on a device, and on the
// emulated one, which has loops in its place.
#include "cuda/attention_device_case.h"
#include "kernels/cuda/cudnn/cudnn_attention.h"

namespace isthmus::cuda::this_file {
namespace {

using kernels::Bf16;
using Passes = CudnnAttention::Passes;

class CudnnOnDevice : public DeviceTest {
 protected:
  void SetUp() override {
    DeviceTest::SetUp();
    if (!IsSkipped() && !cudnn_missing().empty()) GTEST_SKIP() << cudnn_missing();
  }
};

// Causal all; windows of two tokens, around tiles of 64 and 128 and beyond; one key head per query
// head, several, and one for all.
constexpr AttentionCase kCases[] = {
    {2, 2, 1, 1, 64},          {2, 3, 6, 2, 128, true},  {4, 5, 3, 3, 16, true},
    {2, 40, 4, 2, 64, true},   {2, 63, 2, 1, 128, true}, {1, 64, 2, 2, 64, true},
    {4, 65, 3, 1, 64},         {4, 127, 1, 1, 96, true}, {2, 128, 4, 4, 64, true},
    {2, 129, 2, 2, 64, true},  {1, 200, 3, 1, 80, true}, {2, 256, 4, 1, 128, true},
    {1, 1024, 2, 1, 64, true}, {1, 32, 2, 2, 8, true}};

AttentionLayout layout_of(const AttentionCase& c) {
  const QkvLayout layout(c);
  const Bf16* const nothing = nullptr;
  const auto strides = [](HeadsView<const Bf16> view) {
    view.data = nullptr;
    return view;
  };
  // Made over memory, whose addresses are then dropped: strides alone are the layout.
  const std::vector<Bf16> memory(layout.size());
  const Bf16* const data = memory.data();
  return {c.shape(), strides(layout.q(data)), strides(layout.k(data)), strides(layout.v(data)),
          layout.out(nothing)};
}

/// Both passes; recorded: once outside of a graph, then once in one.
AttentionResult<Bf16> by_cudnn(const AttentionCase& c, const AttentionInputs<Bf16>& inputs,
                               bool recorded = false) {
  Stream stream;
  const QkvLayout layout(c);
  CudnnAttention attention(layout_of(c), Passes::kBoth);
  EXPECT_TRUE(attention.takes(c.shape()));
  const DeviceArray<Bf16> qkv = on_device(stream, inputs.qkv);
  const DeviceArray<Bf16> d_out = on_device(stream, inputs.d_out);
  const DeviceArray<Bf16> d_qkv = on_device(stream, std::vector<Bf16>(layout.size(), Bf16(7.0f)));
  const DeviceArray<Bf16> out(inputs.d_out.size());
  const DeviceArray<float> lse(static_cast<std::size_t>(c.batch * c.q_heads * c.seq));
  const DeviceArray<std::byte> workspace(attention.workspace_bytes());
  const Bf16* const in = qkv.data();
  const auto queue = [&] {
    attention.forward(stream, layout.q(in), layout.k(in), layout.v(in), layout.out(out.data()),
                      lse.data(), workspace.data());
    attention.backward(stream,
                       {.q = layout.q(in),
                        .k = layout.k(in),
                        .v = layout.v(in),
                        .out = layout.out<const Bf16>(out.data()),
                        .d_out = layout.out<const Bf16>(d_out.data()),
                        .lse = lse.data(),
                        .d_q = layout.q(d_qkv.data()),
                        .d_k = layout.k(d_qkv.data()),
                        .d_v = layout.v(d_qkv.data())},
                       workspace.data());
  };
  queue();
  stream.synchronize();
  if (recorded) {
    fill_zero(stream, lse.data(), lse.size());
    fill_zero(stream, out.data(), out.size());
    fill_zero(stream, d_qkv.data(), layout.used());
    const Graph graph(stream, [&](const Graph::Mark&) { queue(); });
    graph.launch(stream);
  }
  return {on_host(stream, out), on_host(stream, d_qkv), on_host(stream, lse)};
}

TEST_F(CudnnOnDevice, FollowsTheFormulas) {
  for (const AttentionCase& c : kCases) {
    SCOPED_TRACE(c.name());
    ASSERT_EQ(cudnn_refusal_here(c.shape()), "");
    const AttentionInputs<Bf16> inputs(c);
    const AttentionResult<Bf16> got = by_cudnn(c, inputs);
    std::vector<double> lse;
    const AttentionResult<double> expected = attention_in_double(c, inputs, got.out, lse);
    expect_results_near(c, got, expected);
    // Sums are float; their powers may be a device's fast ones.
    for (std::size_t i = 0; i < lse.size(); ++i) {
      ASSERT_NEAR(got.lse[i], lse[i], 1e-4 * (1 + std::abs(lse[i]))) << c.name() << ", row " << i;
    }
  }
}

TEST_F(CudnnOnDevice, TheScaleIsTheCallers) {
  const AttentionCase c{
      .batch = 1, .seq = 70, .q_heads = 2, .kv_heads = 1, .head_dim = 64, .scale = 0.31};
  const AttentionInputs<Bf16> inputs(c);
  const AttentionResult<Bf16> got = by_cudnn(c, inputs);
  std::vector<double> lse;
  expect_results_near(c, got, attention_in_double(c, inputs, got.out, lse));
}

TEST_F(CudnnOnDevice, GivesTheSameBitsInEachRunAndInARecordedOne) {
  const AttentionCase c{2, 200, 4, 2, 64, true};
  const AttentionInputs<Bf16> inputs(c);
  const AttentionResult<Bf16> once = by_cudnn(c, inputs);
  EXPECT_TRUE(by_cudnn(c, inputs).same_bits_as(once));
  EXPECT_TRUE(by_cudnn(c, inputs, true).same_bits_as(once));
}

// Statistics are those of the own kernels: either's backward pass reads what the other has kept.
TEST_F(CudnnOnDevice, KeepsWhatTheOwnKernelsKeep) {
  for (const AttentionCase& c : kCases) {
    const AttentionInputs<Bf16> inputs(c);
    const AttentionResult<Bf16> own = attention_on_device(c, inputs);
    const AttentionResult<Bf16> got = by_cudnn(c, inputs);
    for (std::size_t i = 0; i < own.lse.size(); ++i) {
      ASSERT_NEAR(got.lse[i], own.lse[i], 1e-4 * (1 + std::abs(own.lse[i]))) << c.name();
    }
  }
}

TEST_F(CudnnOnDevice, TakesTheWindowsItWasMadeForAlone) {
  const AttentionCase c{2, 40, 4, 2, 64, true};
  const CudnnAttention attention(layout_of(c), Passes::kForward);
  AttentionShape other = c.shape();
  other.batch = 1;
  EXPECT_TRUE(attention.takes(c.shape()));
  EXPECT_FALSE(attention.takes(other));
}

}  // namespace
}  // namespace isthmus::cuda::this_file
