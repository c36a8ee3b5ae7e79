// SPDX-License-Identifier: Apache-2.0
// Bytes as a peer's state, as they are and behind a head and before a digest that hold, so that
// scalars and tensors are reached. Checked: no crash, no read outside; what is accepted can be
// read.
#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <vector>

#include "core/base/hash.h"
#include "core/state/state_bytes.h"
#include "isthmus/errors.h"

namespace {

using namespace isthmus;

constexpr std::size_t kHeadBytes = 24;

void read(std::vector<std::byte> bytes) {
  const auto reader = read_state(std::move(bytes));
  if (!reader) return;
  try {
    std::array<float, 2> values{};
    if ((*reader)->contains("step")) (void)(*reader)->integer("step");
    if ((*reader)->contains("bytes")) (void)(*reader)->bytes("bytes");
    if ((*reader)->contains("anchor")) (*reader)->tensor("anchor", values);
  } catch (const Error&) {
    // Of another type or size, by name.
  }
}

/// The first two bytes of the input say how long the scalars are.
void mended(std::span<const std::byte> input) {
  if (input.size() < 2) return;
  std::vector<std::byte> bytes = write_state(StateSnapshot());
  bytes.resize(kHeadBytes);
  bytes.insert(bytes.end(), input.begin() + 2, input.end());
  const std::uint32_t scalars =
      std::to_integer<std::uint32_t>(input[0]) | std::to_integer<std::uint32_t>(input[1]) << 8;
  const std::uint64_t whole = bytes.size() + sizeof(Digest128);
  std::memcpy(bytes.data() + 12, &scalars, sizeof scalars);
  std::memcpy(bytes.data() + 16, &whole, sizeof whole);
  const Digest128 digest = xxh3_128(bytes);
  const auto seal = std::as_bytes(std::span(digest.bytes));
  bytes.insert(bytes.end(), seal.begin(), seal.end());
  read(std::move(bytes));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::span<const std::byte> bytes = std::as_bytes(std::span(data, size));
  read({bytes.begin(), bytes.end()});
  mended(bytes);
  return 0;
}
