// SPDX-License-Identifier: Apache-2.0
// Bytes as a request to a relay and as a word of one, as they are and behind the right beginning
// with the right checksum. Checked: no crash, what is read writes back to the same bytes.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <span>

#include "transport/links/relay/relay_message.h"

namespace {

using namespace isthmus;

void require(bool condition) {
  if (!condition) std::abort();
}

template <std::size_t N>
using Bytes = std::array<std::byte, N>;

template <std::size_t N, typename Read, typename Write>
void parse(const Bytes<N>& bytes, const Read& read, const Write& write) {
  const auto message = read(bytes);
  if (message) {
    require(std::ranges::equal(write(*message), bytes));
  } else {
    require(message.error() == RelayWordKind::kVersion ||
            message.error() == RelayWordKind::kMalformed);
  }
}

template <std::size_t N, typename Read, typename Write>
void parse_both(std::span<const std::byte> data, const Read& read, const Write& write) {
  constexpr std::size_t kBeginning = 6, kChecksum = 4;
  Bytes<N> bytes{};
  std::ranges::copy(data.first(std::min(N, data.size())), bytes.begin());
  parse(bytes, read, write);
  std::memcpy(bytes.data(), "ISRL\x02\0", kBeginning);
  const std::uint32_t sum = crc32c(std::span(bytes).first(N - kChecksum));
  for (std::size_t i = 0; i < kChecksum; ++i) {
    bytes[N - kChecksum + i] = static_cast<std::byte>(sum >> (8 * i) & 0xffu);
  }
  parse(bytes, read, write);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::span<const std::byte> bytes = std::as_bytes(std::span(data, size));
  parse_both<kRelayRequestBytes>(
      bytes, [](const auto& each) { return read_relay_request(each); },
      [](const auto& each) { return write_relay_request(each); });
  parse_both<kRelayWordBytes>(
      bytes, [](const auto& each) { return read_relay_word(each); },
      [](const auto& each) { return write_relay_word(each); });
  return 0;
}
