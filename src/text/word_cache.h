// SPDX-License-Identifier: Apache-2.0
// Cache of words and their ids: texts repeat words so often that most are found here. Bounded: a
// full cache is emptied. Belongs to one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace isthmus {

class WordCache {
 public:
  WordCache();

  /// The ids of `word`; `known`: true if it is in the cache. The ids are valid until the next
  /// `put`.
  [[nodiscard]] std::span<const std::uint32_t> find(std::string_view word, bool& known);
  /// Stores the ids of the word that the last `find` did not know. Long words are not stored.
  void put(std::string_view word, std::span<const std::uint32_t> ids);

 private:
  static constexpr std::size_t kInlineIds = 4;
  /// A word of up to 16 bytes and 4 ids is in its slot, others in the arena.
  struct Slot {
    std::uint64_t low = 0, high = 0;  // the word's bytes, or its hash and its arena offset
    std::uint32_t ids[kInlineIds] = {};
    std::uint16_t bytes = 0;  // of the word; 0: the slot is free
    std::uint16_t count = 0;
  };
  struct Key {
    std::uint64_t low, high, hash;
  };
  [[nodiscard]] static Key key_of(std::string_view word);
  [[nodiscard]] bool is_inline(std::size_t bytes, std::size_t ids) const;
  void clear();

  std::vector<Slot> slots_;
  std::vector<std::uint32_t> arena_;  // ids, then the word's bytes
  std::size_t used_ = 0;
};

}  // namespace isthmus
