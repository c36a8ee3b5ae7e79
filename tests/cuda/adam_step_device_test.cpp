// SPDX-License-Identifier: Apache-2.0
// 1-bit Adam's arithmetic on a device, against plain loops with one rounding an operation.
#include <cmath>
#include <memory>

#include "cuda/device_test.h"
#include "kernels/cuda/adam_step.h"

namespace isthmus::cuda::this_file {
namespace {

constexpr std::int64_t kElements = 60'000;

class AdamStepOnDevice : public DeviceTest {
 protected:
  void SetUp() override {
    DeviceTest::SetUp();
    if (!IsSkipped()) owned_ = std::make_unique<Stream>();
  }
  Stream& stream() { return *owned_; }

 private:
  std::unique_ptr<Stream> owned_;
};

/// Runs with gaps, single lanes, and one that takes several blocks; not in the order of elements.
std::vector<LaneRun> lanes_with_gaps() {
  std::vector<LaneRun> runs = {{.begin = 40'000, .at = 0, .n = 20'000}, {.begin = 0, .n = 1}};
  for (std::int64_t begin = 3; begin < 39'000; begin += 977) {
    runs.push_back({.begin = begin, .n = 1 + begin % 800});
  }
  std::int64_t at = 0;
  for (LaneRun& run : runs) {
    run.at = at;
    at += run.n;
  }
  return runs;
}

TEST_F(AdamStepOnDevice, PartsAreTheRunsInBlocks) {
  const std::vector<LaneRun> runs = lanes_with_gaps();
  std::vector<std::int64_t> whole, parts;
  for (const LaneRun& run : runs) {
    for (std::int64_t i = 0; i < run.n; ++i) {
      EXPECT_EQ(run.at + i, static_cast<std::int64_t>(whole.size()));
      whole.push_back(run.begin + i);
    }
  }
  for (const LaneRun& part : parts_of(runs)) {
    EXPECT_LE(part.n, 16384);
    EXPECT_EQ(part.at, static_cast<std::int64_t>(parts.size()));
    for (std::int64_t i = 0; i < part.n; ++i) parts.push_back(part.begin + i);
  }
  EXPECT_EQ(parts, whole);
}

TEST_F(AdamStepOnDevice, MomentaOfLanesComeTogetherAndGoBack) {
  const std::vector<LaneRun> runs = lanes_with_gaps(), host_parts = parts_of(runs);
  std::vector<float> m = normal_floats(kElements, 1);
  const std::vector<float> g = normal_floats(kElements, 2, 1e-3);
  const auto dm = on_device(stream(), m), dg = on_device(stream(), g);
  const auto parts = on_device(stream(), host_parts);
  const LaneParts lanes{parts.data(), static_cast<std::int64_t>(parts.size())};
  const float keep = 0.9f, own = 0.037f;
  std::vector<float> expected;
  for (const LaneRun& run : runs) {
    for (std::int64_t i = run.begin; i < run.begin + run.n; ++i) {
      const auto e = static_cast<std::size_t>(i);
      const float kept = keep * m[e];
      expected.push_back(kept + own * g[e]);
    }
  }
  const DeviceArray<float> vector(expected.size());
  gather_momentum(stream(), lanes, keep, dm.data(), own, dg.data(), vector.data());
  EXPECT_TRUE(same_bits(on_host(stream(), vector), expected));
  const std::vector<float> mean = normal_floats(expected.size(), 3);
  std::size_t next = 0;
  for (const LaneRun& run : runs) {
    for (std::int64_t i = 0; i < run.n; ++i) {
      m[static_cast<std::size_t>(run.begin + i)] = mean[next++];
    }
  }
  const auto dmean = on_device(stream(), mean);
  scatter_momentum(stream(), lanes, dmean.data(), dm.data());
  EXPECT_TRUE(same_bits(on_host(stream(), dm), m));  // masked ones as they were
}

TEST_F(AdamStepOnDevice, StepsAreAdamsWithDecayWhereThereIsAny) {
  std::vector<float> x = normal_floats(kElements, 4);
  const std::vector<float> m = normal_floats(kElements, 5, 1e-3);
  std::vector<float> v = normal_floats(kElements, 6, 1e-4);
  for (float& each : v) each *= each;
  for (std::size_t i = 0; i < v.size(); i += 11) v[i] = 0;  // masked
  for (std::size_t i = 1; i < v.size(); i += 13) v[i] = 3e-41f;
  const std::vector<ParameterRun> runs = {{.begin = 0, .n = 35'001, .weight_decay = 1},
                                          {.begin = 35'001, .n = 24'999, .weight_decay = 0}};
  const kernels::AdamStep step{
      .lr = 0.013f, .momentum_scale = 1.37f, .eps = 1e-8f, .weight_decay = 0.11f};
  const auto dx = on_device(stream(), x), dm = on_device(stream(), m), dv = on_device(stream(), v);
  const auto parts = on_device(stream(), parts_of(runs));
  adam_step(stream(), step, {parts.data(), static_cast<std::int64_t>(parts.size())}, dx.data(),
            dm.data(), dv.data());
  for (std::size_t i = 0; i < x.size(); ++i) {
    const float decay = i < 35'001 ? step.weight_decay : 0.0f;
    const float direction = step.momentum_scale * m[i] / (std::sqrt(v[i]) + step.eps);
    x[i] -= step.lr * (direction + decay * x[i]);
  }
  EXPECT_TRUE(same_bits(on_host(stream(), dx), x));
}

}  // namespace
}  // namespace isthmus::cuda::this_file
