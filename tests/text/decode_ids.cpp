// SPDX-License-Identifier: Apache-2.0
// Turns token ids into texts with a tokenizer.json, for check_with_tokenizers.py: a filter that is
// run by hand.
//   decode_ids TOKENIZER [--skip-special] < IDS > TEXTS
// IDS: for each document a count and as many ids, 32 bits each, little-endian. TEXTS: for each
// document the number of bytes, 32 bits, and the bytes.
#include <fmt/format.h>

#include <cstdint>
#include <iostream>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/storage.h"
#include "isthmus/errors.h"
#include "text/tokenizer.h"

namespace isthmus {
namespace {

bool read_words(std::vector<std::uint32_t>& words) {
  const auto size = static_cast<std::streamsize>(words.size() * sizeof(std::uint32_t));
  std::cin.read(reinterpret_cast<char*>(words.data()), size);
  return std::cin.gcount() == size;
}

int decode_all(const std::string& path, bool skip_special) {
  const Tokenizer tokenizer = Tokenizer::open(SystemStorage(), path);
  std::vector<std::uint32_t> count(1), ids;
  while (read_words(count)) {
    ids.resize(count[0]);
    if (!read_words(ids)) {
      fmt::print(stderr, "decode_ids: the input ends within a document of {} ids\n", count[0]);
      return 1;
    }
    const std::string text = tokenizer.decode(ids, skip_special);
    const auto size = static_cast<std::uint32_t>(text.size());
    std::cout.write(reinterpret_cast<const char*>(&size), sizeof(size));
    std::cout.write(text.data(), static_cast<std::streamsize>(text.size()));
  }
  return std::cout.flush() ? 0 : 1;
}

}  // namespace
}  // namespace isthmus

int main(int argc, char** argv) {
  const bool skip_special = argc == 3 && std::string_view(argv[2]) == "--skip-special";
  if (argc != 2 && !skip_special) {
    fmt::print(stderr, "decode_ids TOKENIZER [--skip-special] < IDS > TEXTS\n");
    return 2;
  }
  try {
    std::ios::sync_with_stdio(false);
    return isthmus::decode_all(argv[1], skip_special);
  } catch (const isthmus::Error& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 1;
  }
}
