// SPDX-License-Identifier: Apache-2.0
#include "data/compressed_text.h"

#include <fmt/format.h>

#include <memory>

#include "data/inflater.h"
#include "isthmus/errors.h"

namespace isthmus {
namespace {
constexpr std::size_t kInflatedPiece = std::size_t{1} << 18;
}

std::vector<std::byte> inflated(std::span<const std::byte> bytes, Compression compression,
                                const std::string& label, std::int64_t most) {
  const std::unique_ptr<Inflater> inflater = make_inflater(compression, label);
  std::vector<std::byte> text;
  std::vector<std::byte> piece(kInflatedPiece);
  while (const std::size_t made = inflater->inflate(bytes, piece)) {
    if (made > static_cast<std::size_t>(most) - text.size()) {
      throw SystemError(
          fmt::format("{}: {} data of more than {} bytes of text, the most that may still be "
                      "unpacked into memory of this source; unpack the file on disk and name "
                      "that",
                      label, compression == Compression::kGzip ? "gzip" : "zstd", most));
    }
    text.insert(text.end(), piece.begin(), piece.begin() + static_cast<std::ptrdiff_t>(made));
  }
  inflater->finish();
  return text;
}

}  // namespace isthmus
