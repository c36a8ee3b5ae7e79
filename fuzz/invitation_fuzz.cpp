// SPDX-License-Identifier: Apache-2.0
// Bytes as an invitation, as they are and with the right beginning and checksum, as what its holder
// asks of a hub, as a table of keys and as a hub's book of them. Checked: no crash, what is read
// writes back to the same.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <string>
#include <vector>

#include "core/base/hash.h"
#include "isthmus/errors.h"
#include "session/hub/hub_keys.h"
#include "session/site/invitation.h"
#include "transport/links/key_table.h"

namespace {

using namespace isthmus;

void require(bool condition) {
  if (!condition) std::abort();
}

void parse(const std::string& text) {
  const auto invitation = app::read_invitation(text);
  if (invitation) require(app::write_invitation(*invitation) == text);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::span<const std::byte> bytes = std::as_bytes(std::span(data, size));
  const std::string text(reinterpret_cast<const char*>(data), size);
  parse(text);
  parse("isthmus1." + text);
  std::vector<std::byte> summed(bytes.begin(), bytes.end());
  const std::uint32_t sum = crc32c(summed);
  for (int i = 0; i < 4; ++i) summed.push_back(static_cast<std::byte>(sum >> (8 * i) & 0xffu));
  parse("isthmus1." + write_base64(summed));
  if (const auto request = read_enrol_request(bytes)) {
    require(std::ranges::equal(write_enrol_request(*request), bytes));
  }
  for (const int members : {1, 3}) {
    const auto table = read_key_table(bytes, members);
    if (table) require(std::ranges::equal(write_key_table(*table), bytes));
  }
  try {
    const app::HubKeyBook book = app::HubKeyBook::read(text, "book");
    require(app::HubKeyBook::read(book.write(), "again").write() == book.write());
  } catch (const Error&) {
  }
  return 0;
}
