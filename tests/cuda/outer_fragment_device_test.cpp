// SPDX-License-Identifier: Apache-2.0
// One fragment on the host and its twin on the device, over the same values.
#include <algorithm>
#include <memory>
#include <stdexcept>
#include <utility>

#include "cuda/device_test.h"
#include "cuda/resident_loop.h"
#include "isthmus/errors.h"
#include "outer/parts/fragment_state.h"
#include "outer/parts/settings.h"
#include "outer/place/device_fragment.h"
#include "outer/toy_loops.h"

namespace isthmus::this_file {
namespace {

using testing_support::MemoryState;
using testing_support::QuadraticLoop;
using testing_support::ResidentLoop;

outer::FragmentedSettings settings_of(const std::string& method, const OuterOptions& options,
                                      const InnerLoop& inner) {
  for (const MethodInfo& info : methods()) {
    if (info.name == method) return outer::resolve(info, options, inner.parameters());
  }
  throw std::logic_error(method);
}

/// A fragment in both places over one loop, whose values nobody else writes.
struct Twins {
  Twins(const std::string& codec, std::size_t size, outer::KeptIn kept)
      : real({.tensors = {{0, size}}}),
        inner(real),
        settings(settings_of("diloco", {.codec = codec}, inner)),
        host(outer::fragments_on_host(settings, inner)(settings.fragments[0])),
        device(outer::fragments_on_device(settings, inner.parameters(), inner,
                                          kept)(settings.fragments[0])) {}

  void set_local(const std::vector<float>& values) {
    std::ranges::copy(values, inner.parameters()[0].values.begin());
    inner.wrote_values(isthmus::all_elements(inner));
  }
  /// Encodes in both places. RETURNS: the host's.
  outer::OuterGradient encode(std::uint64_t seed) {
    const EncodeKey key{.seed = seed, .worker = 3, .tile = 0};
    const auto fit = [](double) { return true; };
    outer::OuterGradient here = host->outer_gradient(*settings.codec, key, fit);
    const outer::OuterGradient there = device->outer_gradient(*settings.codec, key, fit);
    EXPECT_EQ(here.norm, there.norm);
    EXPECT_TRUE(here.encoded.bytes == there.encoded.bytes);
    EXPECT_EQ(here.sample.codec_error(), there.sample.codec_error());
    EXPECT_TRUE(states(*host) == states(*device));
    return here;
  }
  static MemoryState states(const outer::OuterFragment& fragment) {
    MemoryState state;
    fragment.save(state);
    return state;
  }

  /// The host's.
  [[nodiscard]] std::vector<float> residual() const {
    std::vector<float> values(static_cast<std::size_t>(settings.fragments[0].elements));
    states(*host).tensor("residual/0", std::span(values));
    return values;
  }

  QuadraticLoop real;
  ResidentLoop inner;
  outer::FragmentedSettings settings;
  std::unique_ptr<outer::OuterFragment> host, device;
};

class FragmentOnDevice : public cuda::DeviceTest,
                         public ::testing::WithParamInterface<outer::KeptIn> {
 protected:
  static void inner_equals(Twins& twins, std::vector<float> local, const std::vector<float>& more) {
    for (std::size_t i = 0; i < local.size(); ++i) local[i] += more[i];
    twins.inner.read_values(isthmus::all_elements(twins.inner));
    const std::span<const float> values = twins.inner.parameters()[0].values;
    EXPECT_TRUE(cuda::same_bits(local, std::vector<float>(values.begin(), values.end())));
  }
};

// Tiles 1 and 3 of every five overflow with their residual in the second encoding: what came before
// them has then lost nothing.
TEST_P(FragmentOnDevice, AResidualThatOverflowsStartsAnew) {
  for (const auto& [codec, size] : {std::pair("topk:64:ef", 66 * kTileValues + 7),
                                    {"int4:64:rounding=stochastic:ef", 5 * kTileValues + 100}}) {
    SCOPED_TRACE(codec);
    Twins twins(codec, size, GetParam());
    std::vector<float> local = cuda::normal_floats(size, 1);
    for (std::size_t i = 0; i < size; ++i) {
      const std::size_t tile = i / kTileValues % 5;
      if (tile == 1 || tile == 3) local[i] = -3.3e38f - local[i] * 1e36f;
    }
    twins.set_local(local);
    static_cast<void>(twins.encode(1));
    const std::vector<float> before = twins.residual();
    EXPECT_TRUE(
        std::any_of(before.begin(), before.begin() + kTileValues, [](float x) { return x != 0; }));
    static_cast<void>(twins.encode(2));
    const std::vector<float> after = twins.residual();
    EXPECT_TRUE(
        std::all_of(after.begin(), after.begin() + kTileValues, [](float x) { return x == 0; }));
    static_cast<void>(twins.encode(3));
  }
}

TEST_P(FragmentOnDevice, WhatWasSentComesBack) {
  Twins twins("int4:64:ef", 2 * kTileValues + 9, GetParam());
  twins.set_local(cuda::normal_floats(2 * kTileValues + 9, 2));
  const outer::OuterGradient sent = twins.encode(1);
  for (outer::OuterFragment* const one : {twins.host.get(), twins.device.get()}) {
    one->take_back(*twins.settings.codec, sent.encoded);
    EXPECT_THROW(one->take_back(*twins.settings.codec, Encoded{}), RunError);
  }
  static_cast<void>(twins.encode(2));
}

TEST_P(FragmentOnDevice, UncommittedDeltaIsTakenAndPutBackAlike) {
  constexpr std::size_t kSize = kTileValues + 9;
  Twins twins("fp32", kSize, GetParam());
  const std::vector<float> local = cuda::normal_floats(kSize, 4),
                           more = cuda::normal_floats(kSize, 5);
  twins.set_local(local);
  EXPECT_TRUE(cuda::same_bits(twins.host->beyond(), twins.device->beyond()));
  twins.device->add_to_local(more);
  inner_equals(twins, local, more);
  twins.set_local(local);
  twins.host->add_to_local(more);
  inner_equals(twins, local, more);
}

INSTANTIATE_TEST_SUITE_P(All, FragmentOnDevice,
                         ::testing::Values(outer::KeptIn::kDevice, outer::KeptIn::kPinned),
                         [](const auto& param) {
                           return param.param == outer::KeptIn::kDevice ? "kept_there"
                                                                        : "kept_on_the_host";
                         });

}  // namespace
}  // namespace isthmus::this_file
