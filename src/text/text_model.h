// SPDX-License-Identifier: Apache-2.0
// The model of a tokenizer.json: a word becomes ids. Immutable; any thread. What a thread needs
// while it encodes is a scratch of its own.
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
  /// Ids of a word at the end of `ids`. REQUIRES: the word is UTF-8, or of a byte-level model any
  /// bytes; scratch is of this model. THROWS: SystemError for a character that is in no token,
  /// where the model has no token for unknown ones and `tokenizers` ends with an error too.
  virtual void encode(std::string_view word, Scratch& scratch,
                      std::vector<std::uint32_t>& ids) const = 0;
  /// The word as parts that no token joins, where the model can tell: their ids one after another
  /// are those of the word. Length of the first one.
  [[nodiscard]] virtual std::size_t independent_prefix(std::string_view word) const {
    return word.size();
  }
  /// Whether a word may be cut between a newline and `next`: no token joins them.
  [[nodiscard]] virtual bool parts_at_newline(char32_t next) const = 0;

  /// As the file spells them.
  [[nodiscard]] virtual std::optional<std::uint32_t> id_of(std::string_view token) const = 0;
  [[nodiscard]] virtual const std::string* token_of(std::uint32_t id) const = 0;
  /// How many tokens there are, and one more than the largest id.
  [[nodiscard]] virtual std::size_t tokens() const = 0;
  [[nodiscard]] virtual std::uint32_t id_bound() const = 0;
};

}  // namespace isthmus
