// SPDX-License-Identifier: Apache-2.0
// The bytes as compressed values (bytes 0-1: how many are wanted), and as values to compress.
// Checked: no crash, no memory beyond what is wanted, and values come back bit for bit.
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "quant/codecs/lossless.h"

namespace {

void require(bool condition) {
  if (!condition) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  constexpr std::size_t kHeader = 2;
  if (size < kHeader) return 0;
  const auto bytes = std::as_bytes(std::span(data + kHeader, size - kHeader));
  std::vector<float> wanted(data[0] + 256u * data[1]);
  (void)isthmus::decompress_floats(bytes, wanted);
  std::vector<float> values(bytes.size() / sizeof(float));
  if (!values.empty()) std::memcpy(values.data(), bytes.data(), values.size() * sizeof(float));
  const std::vector<std::byte> compressed = isthmus::compress_floats(values);
  require(isthmus::compressed_values(compressed).value() == values.size());
  std::vector<float> back(values.size());
  require(isthmus::decompress_floats(compressed, back).has_value());
  require(values.empty() ||
          std::memcmp(values.data(), back.data(), values.size() * sizeof(float)) == 0);
  return 0;
}
