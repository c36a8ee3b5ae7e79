// SPDX-License-Identifier: Apache-2.0
// The input up to its first zero byte is a tokenizer.json, the rest a text. Checked: no crash, no
// read outside, every id of an accepted tokenizer is below its vocabulary, ids decode, and a text
// that may be cut has the ids of its parts.
#include <cstdint>
#include <cstdlib>
#include <string_view>
#include <vector>

#include "isthmus/errors.h"
#include "text/tokenizer.h"

namespace {

using namespace isthmus;

void use(const Tokenizer& tokenizer, std::string_view text) {
  TextEncoder encoder(tokenizer);
  std::vector<std::uint32_t> ids, parts;
  encoder.encode(text, {}, ids);
  for (const std::uint32_t id : ids) {
    if (id >= tokenizer.vocabulary() || !tokenizer.token_of(id)) std::abort();
  }
  (void)tokenizer.decode(ids, false);
  (void)tokenizer.decode(ids, true);
  if (const auto cut = tokenizer.last_cut(text)) {
    encoder.encode(text.substr(0, *cut), {}, parts);
    encoder.encode(text.substr(*cut), {.continues = true}, parts);
    if (parts != ids) std::abort();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  constexpr std::size_t kMostText = 4096;  // a merge of long words takes its time
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const std::size_t zero = input.find('\0');
  const std::string_view text = zero == std::string_view::npos ? "" : input.substr(zero + 1);
  try {
    use(Tokenizer(input.substr(0, zero), "input"), text.substr(0, kMostText));
  } catch (const SystemError&) {
    // Refused, as most inputs must be.
  }
  return 0;
}
