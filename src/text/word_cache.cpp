// SPDX-License-Identifier: Apache-2.0
#include "text/word_cache.h"

#include <algorithm>
#include <cstring>

namespace isthmus {
namespace {

constexpr std::size_t kSlots = std::size_t{1} << 15;
constexpr std::size_t kMostUsed = kSlots / 2;
constexpr std::size_t kInlineBytes = 16;
constexpr std::size_t kLongestWord = 255;
constexpr std::size_t kMostArena = std::size_t{1} << 20;  // of 4 bytes each

std::uint64_t mixed(std::uint64_t value) {
  value ^= value >> 32;
  value *= 0x9E3779B97F4A7C15U;
  value ^= value >> 29;
  return value;
}

std::uint64_t eight_bytes(const char* from) {
  std::uint64_t value = 0;
  std::memcpy(&value, from, sizeof(value));
  return value;
}

/// The first `count` bytes, at most 8, as a number.
std::uint64_t few_bytes(const char* from, std::size_t count) {
  std::uint64_t value = 0;
  std::memcpy(&value, from, count);
  return value;
}

}  // namespace

WordCache::WordCache() : slots_(kSlots) {}

WordCache::Key WordCache::key_of(std::string_view word) {
  constexpr std::size_t kHalf = kInlineBytes / 2;
  Key key{};
  if (word.size() <= kHalf) {
    key.low = few_bytes(word.data(), word.size());
  } else if (word.size() <= kInlineBytes) {
    key.low = eight_bytes(word.data());
    key.high = few_bytes(word.data() + kHalf, word.size() - kHalf);
  } else {
    std::uint64_t hash = word.size();
    std::size_t at = 0;
    for (; at + kHalf <= word.size(); at += kHalf) {
      hash = mixed(hash ^ eight_bytes(word.data() + at)) + at;
    }
    key.low = mixed(hash ^ few_bytes(word.data() + at, word.size() - at));
  }
  key.hash = mixed(key.low + mixed(key.high + word.size()));
  return key;
}

bool WordCache::is_inline(std::size_t bytes, std::size_t ids) const {
  return bytes <= kInlineBytes && ids <= kInlineIds;
}

std::span<const std::uint32_t> WordCache::find(std::string_view word, bool& known) {
  known = true;
  const Key key = key_of(word);
  for (std::size_t at = key.hash % kSlots; slots_[at].bytes != 0; at = (at + 1) % kSlots) {
    const Slot& slot = slots_[at];
    if (slot.bytes != word.size()) continue;
    if (is_inline(slot.bytes, slot.count)) {
      if (slot.low == key.low && slot.high == key.high) return {slot.ids, slot.count};
      continue;
    }
    if (slot.low != key.hash) continue;
    const std::uint32_t* const ids = arena_.data() + slot.high;
    if (std::memcmp(ids + slot.count, word.data(), word.size()) == 0) return {ids, slot.count};
  }
  known = false;
  return {};
}

void WordCache::clear() {
  std::ranges::fill(slots_, Slot{});
  arena_.clear();
  used_ = 0;
}

void WordCache::put(std::string_view word, std::span<const std::uint32_t> ids) {
  if (word.empty() || word.size() > kLongestWord) return;
  const std::size_t words = ids.size() + (word.size() + 3) / 4;
  if (used_ >= kMostUsed || arena_.size() + words > kMostArena) clear();
  const Key key = key_of(word);
  std::size_t at = key.hash % kSlots;
  while (slots_[at].bytes != 0) at = (at + 1) % kSlots;
  Slot& slot = slots_[at];
  slot.bytes = static_cast<std::uint16_t>(word.size());
  slot.count = static_cast<std::uint16_t>(ids.size());
  if (is_inline(word.size(), ids.size())) {
    slot.low = key.low;
    slot.high = key.high;
    std::ranges::copy(ids, slot.ids);
  } else {
    slot.low = key.hash;
    slot.high = arena_.size();
    arena_.insert(arena_.end(), ids.begin(), ids.end());
    arena_.resize(arena_.size() + (word.size() + 3) / 4);
    std::memcpy(arena_.data() + slot.high + ids.size(), word.data(), word.size());
  }
  ++used_;
}

}  // namespace isthmus
