// SPDX-License-Identifier: Apache-2.0
// What the kernel tests share: seeded values, instruction sets and team sizes to run over.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "core/base/rng.h"
#include "kernels/bf16.h"
#include "kernels/isa.h"
#include "kernels/thread_team.h"

namespace isthmus::kernels {

inline constexpr double kFloatEpsilon = 1.0 / (1 << 23);  // spacing of floats at 1
inline constexpr int kTeamSizes[] = {1, 2, 3, 5};

template <typename Real>
std::vector<Real> normal_values(std::int64_t n, std::uint64_t seed) {
  // Cases draw the same values over and over, which takes most of their time.
  static std::map<std::uint64_t, std::vector<RealOf<Real>>> drawn;
  const Rng rng{seed, Stream::kTestData};
  std::vector<RealOf<Real>>& values = drawn[seed];
  for (std::size_t i = values.size(); i < static_cast<std::size_t>(n); ++i) {
    values.push_back(static_cast<RealOf<Real>>(rng.normal(i)));
  }
  std::vector<Real> x(static_cast<std::size_t>(n));
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<Real>(values[i]);
  return x;
}

/// Whole numbers in [-4, 4]: products of them add without rounding.
template <typename Real>
std::vector<Real> whole_values(std::int64_t n, std::uint64_t seed) {
  const Rng rng{seed, Stream::kTestData};
  std::vector<Real> x(static_cast<std::size_t>(n));
  for (std::size_t i = 0; i < x.size(); ++i) {
    x[i] = static_cast<Real>(static_cast<int>(rng.below(9, i)) - 4);
  }
  return x;
}

template <typename Real>
std::vector<double> in_double(const std::vector<Real>& x) {
  return {x.begin(), x.end()};
}

/// Runs with one instruction set and gives the machine's own back afterwards.
class IsaTest : public testing::TestWithParam<Isa> {
 protected:
  void SetUp() override { use_isa(GetParam()); }
  void TearDown() override { use_isa(available_isas().back()); }
};

inline std::string isa_test_name(const testing::TestParamInfo<Isa>& info) {
  return std::string(name_of(info.param));
}

#define ISTHMUS_EVERY_ISA(Suite) \
  INSTANTIATE_TEST_SUITE_P(EveryIsa, Suite, testing::ValuesIn(available_isas()), isa_test_name)

}  // namespace isthmus::kernels
