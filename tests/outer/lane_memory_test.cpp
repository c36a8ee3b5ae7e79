// SPDX-License-Identifier: Apache-2.0
// What lanes are said to take for a moment, against what the machine counts. Not under sanitizers,
// which add memory of their own.
#include "outer/place/lane_memory.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "core/base/freed_memory.h"
#include "outer/lane_ranks.h"
#include "outer/parts/settings.h"
#include "outer/toy_loops.h"

namespace isthmus::this_file {
namespace {

using testing_support::LaneRanks;
using testing_support::QuadraticLoop;

constexpr int kRanks = 4;
// Its counts are some 100 kB a core behind, of 35 MB and more.
constexpr double kNear = 0.05;

MethodInfo diloco() {
  for (const MethodInfo& method : methods()) {
    if (method.name == "diloco") return method;
  }
  return {};
}

/// Bytes of /proc/self/status.
std::int64_t own_bytes(const std::string& name) {
  std::ifstream file("/proc/self/status");
  for (std::string word; file >> word;) {
    std::int64_t kib = 0;
    if (word == name + ":" && file >> kib) return kib * 1024;
  }
  return 0;
}

/// The most that was there meanwhile beside what was there before; nothing where that cannot be
/// told. All ranks take part in gathering anchors once they are done with what they did before.
template <typename Body>
std::int64_t peak_of(outer::OuterFragment& fragment, Body&& body) {
  static_cast<void>(fragment.anchor());
  fragment.drop_anchor_copy();
  give_freed_memory_back();
  if (!(std::ofstream("/proc/self/clear_refs") << 5 << std::flush)) return 0;
  const std::int64_t before = own_bytes("VmHWM") + own_bytes("VmSwap");
  body();
  return own_bytes("VmHWM") + own_bytes("VmSwap") - before;
}

class LaneMemory : public testing::TestWithParam<const char*> {
 protected:
  LaneMemory() {
    model_.tensors = {{kNoLayer, 3'000'000}, {0, 4'100'000}, {kNoLayer, 1'000'033}};
    options_.codec = GetParam();
  }
  QuadraticLoop::Options model_;
  OuterOptions options_;
};

// All ranks of this process together: each has its scratch when the first one's codes are whole.
TEST_P(LaneMemory, IsWhatTheMachineCounts) {
  QuadraticLoop inner(model_);
  const MethodInfo method = diloco();
  const outer::LaneDemand demand = outer::lane_demand(method, options_, inner.parameters());
  std::int64_t encoding = 0, anchors = 0;
  for (int rank = 0; rank < kRanks; ++rank) {
    const outer::LaneMemory memory = outer::lane_memory(demand, kRanks, rank);
    EXPECT_EQ(memory.scratch(), std::max(memory.encoding, memory.anchors)) << rank;
    encoding += memory.encoding;
    anchors += memory.anchors;
  }
  LaneRanks site(method.name, options_, inner.parameters(), kRanks);
  const outer::FragmentedSettings settings = outer::resolve(method, options_, inner.parameters());
  const outer::FragmentMaker make = outer::fragments_on_ranks(settings, inner, site.call());
  const std::unique_ptr<outer::OuterFragment> fragment = make(settings.fragments.front());
  for (float& value : inner.parameters()[1].values) value += 0.25f;
  const auto near = [](std::int64_t found, std::int64_t said) {
    EXPECT_NEAR(static_cast<double>(found), static_cast<double>(said),
                kNear * static_cast<double>(said));
  };
  outer::OuterGradient delta;
  const auto encode = [&] {
    delta = fragment->outer_gradient(*settings.codec, {}, [](double norm) { return norm > 0; });
  };
  encode();  // residuals and momenta are zeros that nobody has written to before: they come to be
  delta = {};
  const std::int64_t encoded = peak_of(*fragment, encode);
  if (encoded == 0) GTEST_SKIP() << "the peak of this process cannot be set back";
  near(encoded, encoding);
  const std::int64_t gathered = peak_of(*fragment, [&] { static_cast<void>(fragment->anchor()); });
  near(gathered, anchors);
  // A step takes a mean's share in place of local values, and no codes.
  const std::vector<float> mean(static_cast<std::size_t>(settings.fragments.front().elements), 1);
  fragment->step(mean);
  const std::int64_t stepped = peak_of(*fragment, [&] { fragment->step(mean); });
  EXPECT_LE(static_cast<double>(stepped), (1 + kNear) * static_cast<double>(encoding));
  std::printf(
      "%s: an outer gradient takes %.1f MB (said: %.1f), anchors %.1f (%.1f), a step %.1f\n",
      GetParam(), static_cast<double>(encoded) / 1e6, static_cast<double>(encoding) / 1e6,
      static_cast<double>(gathered) / 1e6, static_cast<double>(anchors) / 1e6,
      static_cast<double>(stepped) / 1e6);
}

INSTANTIATE_TEST_SUITE_P(Codecs, LaneMemory, testing::Values("fp32", "int8", "int4:ef"));

}  // namespace
}  // namespace isthmus::this_file
