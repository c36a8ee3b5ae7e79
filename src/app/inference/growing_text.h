// SPDX-License-Identifier: Apache-2.0
// Ids become text as they come. A token may end inside a character, and what a decoder makes of a
// token may depend on the token before it, so a few ids are decoded anew with each one, and text is
// given out once its last character is whole. One thread.
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
  /// `tokenizer` is borrowed. before: ids that the text goes on from, not given out.
  /// skip_special: special tokens have no text.
  GrowingText(const Tokenizer& tokenizer, std::span<const std::uint32_t> before, bool skip_special);

  /// The text that the next id completes: whole characters, or nothing yet.
  [[nodiscard]] std::string add(std::uint32_t id);
  /// What was held back: a character that never became whole is U+FFFD.
  [[nodiscard]] std::string rest();

 private:
  [[nodiscard]] std::string text(std::size_t begin, std::size_t end) const;

  const Tokenizer& tokenizer_;
  const bool skip_special_;
  std::vector<std::uint32_t> ids_;
  std::size_t context_ = 0;  // first id that is decoded anew
  std::size_t given_ = 0;    // ids whose text was given out
};

}  // namespace isthmus::app
