// SPDX-License-Identifier: Apache-2.0
// Inputs that codecs are tested with. Pure functions; one thread.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "core/base/rng.h"
#include "isthmus/codec.h"

namespace isthmus::testing_support {

inline std::vector<float> normal_vector(std::size_t n, std::uint64_t seed = 1, double scale = 1) {
  const Rng rng(seed, Stream::kTestData);
  std::vector<float> x(n);
  for (std::size_t i = 0; i < n; ++i) x[i] = static_cast<float>(scale * rng.normal(i));
  return x;
}

/// Any bit pattern: NaNs, infinities, subnormals and all exponents.
inline std::vector<float> bit_vector(std::size_t n, std::uint64_t seed = 1) {
  const Rng rng(seed, Stream::kTestData);
  std::vector<float> x(n);
  for (std::size_t i = 0; i < n; ++i) x[i] = std::bit_cast<float>(rng.words(i)[0]);
  return x;
}

/// Any finite bit pattern.
inline std::vector<float> finite_bit_vector(std::size_t n, std::uint64_t seed = 1) {
  std::vector<float> x = bit_vector(n, seed);
  for (float& value : x) {
    if (!std::isfinite(value)) value = std::numeric_limits<float>::max();
  }
  return x;
}

/// Every codec of the table at its defaults, then spellings that take another path.
inline std::vector<std::string> every_spelling() {
  std::vector<std::string> all;
  for (const CodecInfo& info : codecs()) all.push_back(info.name);
  for (const char* spelling : {"int8:1",
                               "int8:32",
                               "int8:64",
                               "int8:4096",
                               "int8:64:scale=fp16",
                               "int8:64:scale=e8m0",
                               "int8:256:rounding=stochastic",
                               "int4:32",
                               "int4:256:scale=fp16",
                               "int4:32:scale=e8m0",
                               "int4:64:rounding=stochastic:ef",
                               "uint8-minmax:64",
                               "uint8-minmax:256:rounding=stochastic",
                               "nf4:256:scale=fp16",
                               "nf4:rounding=stochastic",
                               "fp4-e2m1:16",
                               "fp4-e2m1:256:scale=fp16",
                               "fp4-e2m1:32:scale=e8m0",
                               "mxfp4:rounding=stochastic",
                               "nvfp4:rounding=stochastic",
                               "fp4-e3m0:256:midpoint=log",
                               "fp4-e3m0:32:scale=fp16:rounding=stochastic",
                               "fp8-e4m3:32:scale=e8m0",
                               "fp8-e4m3:scale=fp16",
                               "fp8-e5m2:32:scale=e8m0",
                               "fp8-e5m2:rounding=stochastic",
                               "lm3:64:scale=fp16",
                               "lm2:1024:ef",
                               "ternary:64:scale=fp16",
                               "ternary:rounding=stochastic",
                               "1bit:64:scale=fp16:norm=l1",
                               "1bit:256:norm=l2",
                               "1bit:ef",
                               "topk:64:value=2bit:ef",
                               "topk:301:value=2bit:index=rice",
                               "dct-topk:64:value=2bit"}) {
    all.emplace_back(spelling);
  }
  return all;
}

/// A spelling as the name of a test.
inline std::string test_name(std::string spelling) {
  for (char& c : spelling) {
    if (c == ':' || c == '-' || c == '=') c = '_';
  }
  return spelling;
}

struct NamedValues {
  std::string name;
  std::vector<float> x;
};

/// Finite vectors of n values that have broken codecs elsewhere.
inline std::vector<NamedValues> hard_vectors(std::size_t n) {
  constexpr float kDenormal = std::numeric_limits<float>::denorm_min();
  std::vector<NamedValues> all = {
      {"normal", normal_vector(n)},
      {"tiny as outer gradients are", normal_vector(n, 2, 1e-5)},
      {"subnormal", normal_vector(n, 3, 1e-40)},
      {"a few smallest units", normal_vector(n, 4, 100 * static_cast<double>(kDenormal))},
      {"near overflow", normal_vector(n, 5, 1e38)},
      {"any finite bits", finite_bit_vector(n)},
      {"all zero", std::vector<float>(n, 0.0f)},
      {"minus zero", std::vector<float>(n, -0.0f)},
      {"all equal", std::vector<float>(n, 0.3f)},
      {"largest", std::vector<float>(n, std::numeric_limits<float>::max())},
      {"lowest", std::vector<float>(n, std::numeric_limits<float>::lowest())},
      {"smallest", std::vector<float>(n, kDenormal)},
      {"sixty-three smallest units", std::vector<float>(n, 63 * kDenormal)},
  };
  std::vector<float> negative = normal_vector(n, 6);
  for (float& value : negative) value = -std::fabs(value);
  all.push_back({"all negative", negative});
  // Blocks whose largest value is 127 have scale 1, so halves are exact ties.
  std::vector<float> ties(n);
  for (std::size_t i = 0; i < n; ++i) {
    ties[i] = i % 8 == 0 ? 127.0f : static_cast<float>(i % 253) - 126.5f;
  }
  all.push_back({"int8 ties", ties});
  // Halfway between two bf16 and, two bits lower, between two fp16 values.
  std::vector<float> half_ties(n);
  for (std::size_t i = 0; i < n; ++i) {
    const auto k = static_cast<std::uint32_t>(i);
    half_ties[i] = std::bit_cast<float>(0x3F80'0000u + (k << (i % 2 == 0 ? 15 : 12)));
  }
  all.push_back({"two-byte ties", half_ties});
  return all;
}

}  // namespace isthmus::testing_support
