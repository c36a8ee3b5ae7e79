// SPDX-License-Identifier: Apache-2.0
// Bytes as a hub's log, as they are and as the body of one record of each kind behind a right head.
// Checked: no crash; what counts as whole is read again to the same, and cut off nowhere it is
// more.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <vector>

#include "core/base/hash.h"
#include "session/hub/hub_log.h"
#include "transport/wire/byte_fields.h"

namespace {

using namespace isthmus;

void require(bool condition) {
  if (!condition) std::abort();
}

void parse(std::span<const std::byte> bytes) {
  const auto contents = app::read_hub_log(bytes);
  if (!contents) return;
  require(contents->whole_bytes <= bytes.size());
  const auto again = app::read_hub_log(bytes.first(contents->whole_bytes));
  require(again && again->whole_bytes == contents->whole_bytes);
  require(again->history.size() == contents->history.size());
  require(again->agreed.size() == contents->agreed.size());
  require(again->session.has_value() == contents->session.has_value());
}

void put_record(std::uint32_t kind, std::span<const std::byte> body, std::vector<std::byte>& log) {
  std::vector<std::byte> head(16);
  FieldWriter out(head);
  out.put(static_cast<std::uint32_t>(body.size()));
  out.put(kind);
  out.put(crc32c(std::span<const std::byte>(head).first(8)));
  out.put(crc32c(body));
  log.insert(log.end(), head.begin(), head.end());
  log.insert(log.end(), body.begin(), body.end());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::span<const std::byte> bytes = std::as_bytes(std::span(data, size));
  parse(bytes);
  std::vector<std::byte> head(16);
  FieldWriter out(head);
  out.put_text("ISTHHUB\n");
  out.put(std::uint32_t{1});
  out.put(std::uint32_t{0});
  // A session of two sites, in CBOR: ["s", "r", 2, []].
  const std::vector<std::uint8_t> session = {0x84, 0x61, 's', 0x61, 'r', 0x02, 0x80};
  for (const std::uint32_t kind : {1U, 2U, 16U, 17U, 18U}) {
    std::vector<std::byte> log = head;
    put_record(16, std::as_bytes(std::span(session)), log);
    put_record(kind, bytes, log);
    parse(log);
  }
  return 0;
}
