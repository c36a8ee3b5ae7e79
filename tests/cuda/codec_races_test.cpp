// SPDX-License-Identifier: Apache-2.0
// What the kernels of codecs and of spsa give does not hang on the order of a block's threads.
#include <gtest/gtest.h>

#include "cuda/device_test.h"
#include "cuda/emulated/simt.h"
#include "kernels/cuda/spsa.h"
#include "quant/cuda/cuda_codec.h"

namespace isthmus::cuda::this_file {
namespace {

constexpr std::size_t kValues = 4096 + 501;

struct Outcome {
  std::vector<std::byte> bytes;
  std::vector<float> residual, sum;
  bool operator==(const Outcome& other) const {
    return bytes == other.bytes && same_bits(residual, other.residual) && same_bits(sum, other.sum);
  }
};

Outcome run(const DeviceCodec& codec) {
  Stream stream;
  FirstBadTile bad;
  const DeviceArray<float> x = on_device(stream, normal_floats(kValues, 1));
  const DeviceArray<float> residual = on_device(stream, normal_floats(kValues, 2, 0.1));
  const DeviceArray<float> sum = on_device(stream, normal_floats(kValues, 3));
  const DeviceArray<std::byte> bytes(encoded_bytes(codec.codec(), kValues));
  codec.encode_with_feedback(stream, residual.data(), 1, x.data(), kValues, bytes.data(),
                             {.seed = 3, .worker = 1, .tile = 2}, bad);
  codec.decode_add(stream, bytes.data(), kValues, sum.data(), bad);
  return {on_host(stream, bytes), on_host(stream, residual), on_host(stream, sum)};
}

TEST(CodecRaces, CodecsDoNotHangOnTheOrderOfThreads) {
  for (const char* spelling :
       {"bf16", "int8:1", "int8:256", "int8:4096:scale=fp16", "uint8-minmax", "nvfp4",
        "fp4-e2m1:rounding=stochastic", "lm3", "ternary:1024", "1bit:ef", "topk:64:value=2bit:ef",
        "topk:300:value=int8:index=rice", "topk:value=sign", "dct-topk:ef", "randk"}) {
    const auto codec = make_device_codec(spelling);
    const Outcome in_order = run(*codec);
    for (const std::uint64_t seed : {1, 2, 3}) {
      emulated::set_thread_order(seed);
      EXPECT_TRUE(run(*codec) == in_order) << spelling << ", order " << seed;
    }
    emulated::set_thread_order(0);
  }
}

TEST(CodecRaces, ReplayingDoesNotHangOnTheOrderOfThreads) {
  std::vector<kernels::SpsaEntry> entries;
  for (std::uint32_t e = 0; e < 70; ++e) {
    entries.push_back({.machine = e, .sample = 1, .d = std::int64_t{e} << 30});
  }
  const std::vector<kernels::SpsaStep> steps = {{.step = 1, .entries = entries, .c = 1e-12f},
                                                {.step = 2, .entries = entries, .c = 1e-12f}};
  const auto replayed = [&] {
    Stream stream;
    const SpsaSteps log(stream, steps);
    const DeviceArray<float> w = on_device(stream, normal_floats(3000, 4));
    spsa_apply(stream, 5, log, 100, 3000, w.data());
    return on_host(stream, w);
  };
  const std::vector<float> in_order = replayed();
  for (const std::uint64_t seed : {1, 2}) {
    emulated::set_thread_order(seed);
    EXPECT_TRUE(same_bits(replayed(), in_order)) << seed;
  }
  emulated::set_thread_order(0);
}

}  // namespace
}  // namespace isthmus::cuda::this_file
