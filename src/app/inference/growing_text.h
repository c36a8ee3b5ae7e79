// SPDX-License-Identifier: Apache-2.0
// Decodes ids to text as they arrive. A token may end inside a character, and its text may depend
// on the token before it, so a few ids are decoded again with each new one, and text is returned
// once its last character is complete. One thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "text/tokenizer.h"

namespace isthmus::app {

class GrowingText {
 public:
  /// `tokenizer` is borrowed. before: ids before the text, which are not returned. skip_special:
  /// special tokens have no text.
  GrowingText(const Tokenizer& tokenizer, std::span<const std::uint32_t> before, bool skip_special);

  /// The text that this id completes: whole characters, or nothing yet.
  [[nodiscard]] std::string add(std::uint32_t id);
  /// The rest of the text, after the last id: an incomplete character becomes U+FFFD.
  [[nodiscard]] std::string rest();

 private:
  [[nodiscard]] std::string text(std::size_t begin, std::size_t end) const;

  const Tokenizer& tokenizer_;
  const bool skip_special_;
  std::vector<std::uint32_t> ids_;
  std::size_t context_ = 0;  // first id that is decoded again
  std::size_t given_ = 0;    // ids whose text was returned
};

}  // namespace isthmus::app
