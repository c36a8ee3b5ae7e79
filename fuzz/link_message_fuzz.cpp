// SPDX-License-Identifier: Apache-2.0
// Bytes as a message of a link and as the bodies of its greeting, as they are and with the
// checksums that get them past the first look. Checked: no crash, no read outside; what is read
// writes back to the same bytes, but for what was made printable; and nobody whose hello differs is
// welcome.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "transport/links/link_message.h"
#include "transport/wire/frame.h"

namespace {

using namespace isthmus;
using Bytes = std::span<const std::byte>;

void require(bool condition) {
  if (!condition) std::abort();
}

bool all_printable(const std::string& text) {
  return std::ranges::none_of(
      text, [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; });
}

/// `written`: of what was read from `body`, whose last `text.size()` bytes are for people.
void require_same(Bytes written, Bytes body, const std::string& text) {
  require(written.size() == body.size());
  require(all_printable(text));
  const std::size_t fixed = body.size() - text.size();
  require(std::ranges::equal(written.first(fixed), body.first(fixed)));
  for (std::size_t i = fixed; i < body.size(); ++i) {
    require(written[i] == body[i] || written[i] == std::byte{'?'});
  }
}

void check_message(Bytes header, Bytes body) {
  const auto parsed = parse_link_message(header, body);
  if (!parsed) {
    require(!parsed.error().what.empty());
    return;
  }
  require(std::ranges::equal(write_link_header(*parsed, body), header));
}

void check_hello(Bytes body) {
  const auto hello = read_hello(body);
  if (!hello) return;
  require_same(write_hello(*hello), body, hello->name);
  // As if each had said it to the other: only the two ends of one link in one run fit.
  Hello mine = *hello;
  require(!accept(*hello, mine));  // nobody dials itself, nor reaches who it is itself
  std::swap(mine.from, mine.to);
  const bool fits = accept(mine, *hello).has_value();
  const int from = hello->from.value();
  require(fits == (hello->from != hello->to && from < hello->members));
  mine.configuration[0] = mine.configuration[0] == '0' ? '1' : '0';
  require(!accept(mine, *hello));
}

void check_bodies(Bytes body) {
  check_hello(body);
  if (const auto refusal = read_refusal(body)) {
    require_same(write_refusal(*refusal), body, refusal->what);
    require(name_of(refusal->field) != nullptr);
  }
  if (const auto incarnation = read_incarnation(body)) {
    require(std::ranges::equal(write_incarnation(*incarnation), body));
  }
}

/// The header with the length of its body and with both checksums.
std::vector<std::byte> repaired(Bytes header, Bytes body) {
  std::vector<std::byte> bytes(header.begin(), header.end());
  const auto put = [&bytes](std::size_t at, std::uint32_t value, std::size_t size) {
    for (std::size_t i = 0; i < size; ++i) {
      bytes[at + i] = static_cast<std::byte>(value >> (8 * i) & 0xffu);
    }
  };
  put(0, kLinkMagic, 4);
  put(4, kLinkVersion, 2);
  put(8, static_cast<std::uint32_t>(body.size()), 4);
  const bool data = bytes[6] == std::byte{4} && bytes[7] == std::byte{0};
  put(32, data ? 0 : crc32c(body), 4);
  put(36, crc32c(Bytes(bytes).first(kLinkHeaderBytes - 4)), 4);
  return bytes;
}

/// DATA in a row are taken off one by one, and nothing is read beyond them.
void check_row(Bytes rest) {
  while (true) {
    const std::size_t before = rest.size();
    const auto piece = next_data(rest);
    if (!piece) break;
    if (piece->header.size() + piece->body.size() + rest.size() != before) __builtin_trap();
    check_message(piece->header, piece->body);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const Bytes bytes = std::as_bytes(std::span(data, size));
  check_bodies(bytes);
  const Bytes header = bytes.first(std::min(kLinkHeaderBytes, size));
  const Bytes body = bytes.subspan(header.size());
  check_message(header, body);
  if (header.size() == kLinkHeaderBytes) {
    check_message(repaired(header, body), body);
    check_bodies(body);
  }
  check_row(bytes);
  return 0;
}
