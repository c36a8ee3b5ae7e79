// SPDX-License-Identifier: Apache-2.0
// Bytes as a message of a measurement, as they are and behind the right first eight bytes. Checked:
// no crash, what is read can be, and writes back to the same bytes (a load's filler apart).
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <vector>

#include "transport/links/probe/probe_message.h"

namespace {

using namespace isthmus;

void require(bool condition) {
  if (!condition) std::abort();
}

void parse(std::span<const std::byte> bytes) {
  const auto message = read_probe(bytes);
  if (!message) {
    require(!message.error().empty());
    return;
  }
  const std::vector<std::byte> again = write_probe(*message);
  require(again.size() <= bytes.size());
  require(std::ranges::equal(again, bytes.first(again.size())));
  require(again.size() == bytes.size() || std::holds_alternative<ProbeLoad>(*message));
  if (const auto* result = std::get_if<ProbeResult>(&*message)) {
    require(fault_of(result->result).empty());
    require(result->result.up.bits_per_s > 0 && result->result.a < result->result.b);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::span<const std::byte> bytes = std::as_bytes(std::span(data, size));
  parse(bytes);
  if (!bytes.empty()) {  // its first byte as the kind
    std::vector<std::byte> mended = write_probe(ProbePing{});
    mended.resize(8);
    mended[6] = static_cast<std::byte>(std::to_integer<int>(bytes[0]) % 13);
    mended.insert(mended.end(), bytes.begin() + 1, bytes.end());
    parse(mended);
  }
  return 0;
}
