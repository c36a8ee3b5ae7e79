// SPDX-License-Identifier: Apache-2.0
// Byte 0 picks the codec, bytes 1-2 the number of values; the rest is decoded as their encoding
// and, read as floats, encoded. Checked: no crash, and what the encoder makes always decodes or is
// refused for values that are not finite.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

#include "isthmus/codec.h"

namespace {

// Old entries keep their place: the corpus names them by number.
constexpr std::array kSpellings = {"fp32",
                                   "bf16",
                                   "fp16",
                                   "int8:1",
                                   "int8:16",
                                   "int8",
                                   "int8:4096",
                                   "int8:64:scale=fp16",
                                   "int8:64:scale=e8m0",
                                   "int4",
                                   "int4:rounding=stochastic",
                                   "uint8-minmax:64",
                                   "nf4",
                                   "fp4-e2m1:32:scale=fp16",
                                   "mxfp4",
                                   "nvfp4",
                                   "fp4-e3m0",
                                   "fp8-e4m3",
                                   "fp8-e5m2:32:scale=e8m0",
                                   "lm3",
                                   "lm2:64:scale=fp16",
                                   "ternary",
                                   "1bit",
                                   "topk:300:index=rice",
                                   "topk:64:value=sign",
                                   "topk:999:value=int8:index=rice",
                                   "randk:77",
                                   "dct-topk:50",
                                   "topk:64:value=2bit"};

void require(bool condition) {
  if (!condition) std::abort();
}

void decode_bytes(const isthmus::Codec& codec, std::span<const std::byte> bytes, std::size_t n) {
  std::vector<float> out(n);
  std::vector<float> sum(n, 1.0f);
  const bool decoded = isthmus::decode(codec, bytes, out).has_value();
  require(decoded == isthmus::decode_add(codec, bytes, sum).has_value());
  require(!decoded || bytes.size() == isthmus::encoded_bytes(codec, n));
  const std::string name = codec.name();
  const bool keeps_nan = name == "fp32" || name == "bf16" || name == "fp16";
  for (std::size_t i = 0; decoded && !keeps_nan && i < n; ++i) require(std::isfinite(out[i]));
}

void encode_floats(const isthmus::Codec& codec, std::span<const std::byte> bytes) {
  std::vector<float> x(bytes.size() / sizeof(float));
  if (!x.empty()) std::memcpy(x.data(), bytes.data(), x.size() * sizeof(float));
  const isthmus::Encoded encoded = isthmus::encode(codec, x);
  std::vector<float> y(x.size());
  const bool decoded = isthmus::decode(codec, encoded.bytes, y).has_value();
  const bool finite = std::all_of(x.begin(), x.end(), [](float v) { return std::isfinite(v); });
  require(decoded || !finite);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  constexpr std::size_t kHeader = 3;
  if (size < kHeader) return 0;
  const auto codec = isthmus::make_codec(kSpellings[data[0] % kSpellings.size()]);
  const std::size_t n = data[1] + 256u * data[2] % 10000u;
  const auto bytes = std::as_bytes(std::span(data + kHeader, size - kHeader));
  decode_bytes(*codec, bytes, n);
  encode_floats(*codec, bytes);
  return 0;
}
