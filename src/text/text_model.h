// SPDX-License-Identifier: Apache-2.0
// The model of a tokenizer.json: encodes a word to ids. Immutable; any thread. Each encoding thread
// has its own scratch.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace isthmus {

class TextModel {
 public:
  virtual ~TextModel() = default;
  /// Buffers of one thread.
  class Scratch {
   public:
    virtual ~Scratch() = default;
  };
  [[nodiscard]] virtual std::unique_ptr<Scratch> make_scratch() const = 0;
  /// Appends the ids of a word to `ids`. REQUIRES: the word is UTF-8, or any bytes for a byte-level
  /// model; scratch was made by this model. THROWS: SystemError for a character in no token, if the
  /// model has no unknown token and `tokenizers` fails too.
  virtual void encode(std::string_view word, Scratch& scratch,
                      std::vector<std::uint32_t>& ids) const = 0;
  /// Length of the first of the parts of a word that no token joins, as far as the model can tell:
  /// the parts' ids concatenated are those of the word.
  [[nodiscard]] virtual std::size_t independent_prefix(std::string_view word) const {
    return word.size();
  }
  /// True if a word may be cut between a newline and `next`, since no token joins them.
  [[nodiscard]] virtual bool parts_at_newline(char32_t next) const = 0;

  /// Tokens are in the file's spelling.
  [[nodiscard]] virtual std::optional<std::uint32_t> id_of(std::string_view token) const = 0;
  [[nodiscard]] virtual const std::string* token_of(std::uint32_t id) const = 0;
  /// tokens: number of tokens; id_bound: the largest id plus one.
  [[nodiscard]] virtual std::size_t tokens() const = 0;
  [[nodiscard]] virtual std::uint32_t id_bound() const = 0;
};

}  // namespace isthmus
