// SPDX-License-Identifier: Apache-2.0
// Byte 0 odd: the rest is a Megatron pair, bytes 1-2 the length of its index; even: the rest is a
// token file without an index, or by byte 0: 2 to 10 one of a width that is said, 12 a text, 14 and
// 16 gzip and zstd data. Checked: no crash, no read outside, and every token of an accepted
// file can be read, or is refused as no id.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <vector>

#include "data/compressed_text.h"
#include "data/file_format.h"
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
    const auto rest = std::as_bytes(std::span(data + 1, size - 1));
    constexpr std::int64_t kMostInflated = 1 << 20;
    if (data[0] >= 2 && data[0] <= 10 && data[0] % 2 == 0) {
      constexpr TokenType kWidths[] = {TokenType::kU8, TokenType::kU16, TokenType::kU32,
                                       TokenType::kI32, TokenType::kI64};
      TokenSpan tokens;
      (void)locate_tokens(rest, "input", tokens, kWidths[data[0] / 2 - 1]);
      use(tokens);
    } else if (data[0] == 12) {
      (void)signed_format(rest);
      (void)wide_text(rest);
    } else if (data[0] == 14 || data[0] == 16) {
      const Compression compression = data[0] == 14 ? Compression::kGzip : Compression::kZstd;
      if (inflated(rest, compression, "input", kMostInflated).size() > kMostInflated) std::abort();
    } else if (data[0] % 2 == 0) {
      TokenSpan tokens;
      (void)locate_tokens(std::as_bytes(std::span(data + 1, size - 1)), "input", tokens);
      use(tokens);
    } else {
      const auto pair = rest.subspan(2);
      const auto cut = std::min<std::size_t>(pair.size(), data[1] + 256U * data[2]);
      use(locate_megatron_tokens(pair.subspan(cut), pair.first(cut), "bin", "idx"));
    }
  } catch (const SystemError&) {
    // Refused, as most inputs must be.
  }
  return 0;
}
