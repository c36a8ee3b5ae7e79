// SPDX-License-Identifier: Apache-2.0
// Perturbing and replaying on a device give the CPU's bits: oracle SPSA (1) of
// docs/internals/spsa.md's source, a late joiner that replays on a GPU what a veteran did on a CPU.
#include "cuda/device_test.h"
#include "kernels/cuda/spsa.h"
#include "kernels/spsa_code.h"

namespace isthmus::cuda::this_file {
namespace {

using kernels::SpsaEntry;
using kernels::SpsaStep;

constexpr std::uint64_t kRunKey = 0x0123'4567'89AB'CDEF;

struct Span {
  std::int64_t first;
  std::size_t n;
};
// On and off the borders of words, counters and blocks; far out; where a counter's word carries.
constexpr Span kSpans[] = {{0, 1},
                           {0, 1024},
                           {0, 5000},
                           {31, 2},
                           {1023, 2},
                           {4 * 129, 3000},
                           {777, 4096},
                           {(std::int64_t{1} << 39) - 1030, 2100},
                           {(std::int64_t{1} << 47) - 130, 130}};

class SpsaOnDevice : public DeviceTest {
 protected:
  kernels::ThreadTeam team_{1};
};

TEST_F(SpsaOnDevice, PerturbsToTheBitsOfTheCpu) {
  Stream stream;
  const kernels::SpsaDirection z{.step = 9, .machine = 4'000'000'000U, .sample = (1U << 24) - 1};
  for (const auto& [first, n] : kSpans) {
    const std::vector<float> w = normal_floats(n, 0);
    std::vector<float> expected(n);
    kernels::spsa_perturb(team_, kRunKey, z, 1e-3f, first, w, expected);
    const DeviceArray<float> w_device = on_device(stream, w);
    const DeviceArray<float> out(n);
    spsa_perturb(stream, kRunKey, z, 1e-3f, first, n, w_device.data(), out.data());
    EXPECT_TRUE(same_bits(expected, on_host(stream, out))) << first << ", " << n;
    EXPECT_TRUE(same_bits(w, on_host(stream, w_device))) << first << ", " << n;
    for (std::size_t i = 0; i < n; ++i) {  // the definition, one element at a time
      const float sign =
          static_cast<float>(kernels::spsa_sign(kRunKey, z, first + static_cast<std::int64_t>(i)));
      ASSERT_EQ(expected[i], w[i] + sign * 1e-3f);
    }
  }
}

TEST_F(SpsaOnDevice, ReplaysALogToTheBitsOfTheCpu) {
  // No entry, one, as many as a block draws at once, one more, many; the largest scalars wrap.
  const std::size_t counts[] = {1, 0, 32, 33, 3, 100};
  std::vector<std::vector<SpsaEntry>> entries;
  std::vector<SpsaStep> steps;
  for (std::uint32_t s = 0; s < std::size(counts); ++s) {
    std::vector<SpsaEntry> some;
    for (std::uint32_t e = 0; e < counts[s]; ++e) {
      const auto code = static_cast<std::uint8_t>(37 * e + 101 * s + 1);
      some.push_back({.machine = e / 3, .sample = e % 3, .d = kernels::spsa_decode_q31(code)});
    }
    entries.push_back(std::move(some));
  }
  for (std::uint32_t s = 0; s < std::size(counts); ++s) {
    steps.push_back({.step = 100 + s,
                     .entries = entries[s],
                     .c = 1e-3f * 0x1p-31f / static_cast<float>(s + 1),
                     .decay = s % 2 == 0 ? 1.0f : 0.999f});
  }
  Stream stream;
  const SpsaSteps log(stream, steps);
  for (const auto& [first, n] : kSpans) {
    std::vector<float> w = normal_floats(n, 1);
    const DeviceArray<float> w_device = on_device(stream, w);
    kernels::spsa_apply(team_, kRunKey, steps, first, w);
    spsa_apply(stream, kRunKey, log, first, n, w_device.data());
    EXPECT_TRUE(same_bits(w, on_host(stream, w_device))) << first << ", " << n;
  }
}

}  // namespace
}  // namespace isthmus::cuda::this_file
