// SPDX-License-Identifier: Apache-2.0
// Byte 0 odd: the rest is a Megatron pair, bytes 1-2 the length of its index; even: the rest is a
// token file without an index. Checked: no crash, no read outside, and every token of an accepted
// file can be read, or is refused as no id.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <vector>

#include "data/token_file.h"
#include "isthmus/errors.h"

namespace {

using namespace isthmus;

void use(const TokenSpan& tokens) {
  std::vector<std::int32_t> ids(static_cast<std::size_t>(tokens.count));
  const std::int64_t wrong = tokens.read(0, ids);
  const auto end = wrong < 0 ? ids.end() : ids.begin() + wrong;
  if (std::any_of(ids.begin(), end, [](std::int32_t id) { return id < 0; })) std::abort();
  if (wrong >= 0 && tokens.at(wrong) >= 0 && tokens.at(wrong) <= INT32_MAX) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 3) return 0;
  try {
    if (data[0] % 2 == 0) {
      TokenSpan tokens;
      (void)locate_tokens(std::as_bytes(std::span(data + 1, size - 1)), "input", tokens);
      use(tokens);
    } else {
      const auto rest = std::as_bytes(std::span(data + 3, size - 3));
      const auto cut = std::min<std::size_t>(rest.size(), data[1] + 256U * data[2]);
      use(locate_megatron_tokens(rest.subspan(cut), rest.first(cut), "bin", "idx"));
    }
  } catch (const SystemError&) {
    // Refused, as most inputs must be.
  }
  return 0;
}
