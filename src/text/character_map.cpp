// SPDX-License-Identifier: Apache-2.0
#include "text/character_map.h"

#include <fmt/format.h>

#include "core/base/base64.h"
#include "core/base/utf8_text.h"
#include "text/grapheme_clusters.h"
#include "text/unicode.h"

namespace isthmus {
namespace {

constexpr std::size_t kUnitBytes = 4;
constexpr std::uint32_t kLastLabel = 0xFF;
constexpr std::size_t kLongestCluster = 5;  // bytes that are looked up as a whole

// A unit: label in bits 0 to 7, whether a value follows in bit 8, the offset of its children in
// bits 10 to 30, times 256 where bit 9 is set. A unit with bit 31 is a value.
bool is_value(std::uint32_t unit) { return unit >> 31 != 0; }
bool has_value(std::uint32_t unit) { return (unit >> 8 & 1U) != 0; }
std::uint32_t value_of(std::uint32_t unit) { return unit & 0x7FFFFFFFU; }
std::uint32_t label_of(std::uint32_t unit) { return unit & (0x80000000U | kLastLabel); }
std::size_t children_of(std::size_t place, std::uint32_t unit) {
  return place ^ (std::size_t{unit >> 10 & 0x1FFFFFU} << ((unit & 0x200U) >> 6));
}

std::uint32_t unit_at(std::string_view bytes, std::size_t at) {
  std::uint32_t unit = 0;
  for (std::size_t i = kUnitBytes; i-- > 0;) {
    unit = unit << 8 | static_cast<unsigned char>(bytes[at + i]);
  }
  return unit;
}

}  // namespace

CharacterMap::CharacterMap(const TokenizerPart& part) {
  const std::optional<std::string> bytes = base64_bytes(part.text());
  if (!bytes) part.bad("is no base64: copy the file again from its source");
  read(part, *bytes);
  for (std::size_t c = 0; c < kept_.size(); ++c) {
    const char key = static_cast<char>(c);
    kept_[c] = key != '\r' && !replacement({&key, 1});  // \r begins the cluster \r\n
  }
}

void CharacterMap::read(const TokenizerPart& part, std::string_view bytes) {
  const auto refuse = [&](const std::string& defect) {
    part.bad(fmt::format("{}: copy the file again from its source", defect));
  };
  if (bytes.size() < kUnitBytes) refuse("has no size of a trie");
  const std::uint32_t size = unit_at(bytes, 0);
  bytes.remove_prefix(kUnitBytes);
  if (size == 0 || size % kUnitBytes != 0 || size > bytes.size()) {
    refuse(fmt::format("says that its trie has {} bytes, and {} follow", size, bytes.size()));
  }
  for (std::size_t at = 0; at < size; at += kUnitBytes) units_.push_back(unit_at(bytes, at));
  replacements_ = bytes.substr(size);
  if (invalid_utf8(replacements_) != std::string::npos)
    refuse("has a replacement that is no UTF-8");
  for (std::size_t place = 0; place < units_.size(); ++place) {
    const std::uint32_t unit = units_[place];
    if (is_value(unit)) continue;
    const std::size_t children = children_of(place, unit);
    if ((children | kLastLabel) >= units_.size()) {
      refuse(fmt::format("unit {} of its trie points outside of {} units", place, units_.size()));
    }
    if (!has_value(unit)) continue;
    const std::size_t value = value_of(units_[children]);
    if (value >= replacements_.size() ||
        (static_cast<unsigned char>(replacements_[value]) & 0xC0U) == 0x80U) {
      refuse(fmt::format("unit {} of its trie names no replacement: offset {} of {} bytes", place,
                         value, replacements_.size()));
    }
  }
}

std::optional<std::string_view> CharacterMap::replacement(std::string_view key) const {
  std::size_t children = children_of(0, units_[0]);
  for (const char c : key) {
    const auto label = static_cast<unsigned char>(c);
    const std::size_t place = children ^ label;
    const std::uint32_t unit = units_[place];
    if (label == 0 || label_of(unit) != label) return {};
    children = children_of(place, unit);
    if (!has_value(unit)) continue;
    const std::string_view found =
        std::string_view(replacements_).substr(value_of(units_[children]));
    return found.substr(0, found.find('\0'));
  }
  return {};
}

std::string CharacterMap::apply(std::string_view text) const {
  const auto byte = [&](std::size_t at) { return static_cast<unsigned char>(text[at]); };
  std::string out;
  out.reserve(text.size());
  for (std::size_t at = 0; at < text.size();) {
    // An ASCII character in front of another is a cluster, except \r\n.
    std::size_t end = at;
    while (end < text.size() && byte(end) < kept_.size() && kept_[byte(end)]) ++end;
    if (end > at && end < text.size() && byte(end) >= kept_.size()) --end;
    out.append(text.substr(at, end - at));
    at = end;
    if (at == text.size()) break;
    const std::string_view cluster = text.substr(at, cluster_length(text, at));
    at += cluster.size();
    const auto whole = cluster.size() <= kLongestCluster ? replacement(cluster)
                                                         : std::optional<std::string_view>();
    if (whole) {
      out.append(*whole);
      continue;
    }
    for (std::size_t i = 0; i < cluster.size();) {
      const std::string_view character = cluster.substr(i, decoded_at(cluster, i).bytes);
      out.append(replacement(character).value_or(character));
      i += character.size();
    }
  }
  return out;
}

}  // namespace isthmus
