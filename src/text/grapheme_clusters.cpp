// SPDX-License-Identifier: Apache-2.0
#include "text/grapheme_clusters.h"

#include "text/unicode.h"

namespace isthmus {
namespace {

using enum ClusterPart;

bool extends(ClusterPart part) {
  return part == kExtend || part == kConjunctExtend || part == kLinker;
}

bool ends_cluster(ClusterPart part) {
  return part == kControl || part == kCarriageReturn || part == kLineFeed;
}

/// What the rules need to know of the characters so far.
struct ClusterState {
  ClusterPart last = kOther;
  bool pictograph = false;         // a pictograph and its extensions
  bool joined_pictograph = false;  // ... and a zero-width joiner
  bool consonant = false;          // a consonant, linkers and its extensions
  bool linked = false;             // ... with a linker among them
  bool half_flag = false;          // an odd number of regional indicators

  void take(ClusterPart part) {
    joined_pictograph = part == kJoiner && pictograph;
    pictograph = part == kPictographic || (pictograph && extends(part));
    linked = linked || part == kLinker;
    if (part == kConsonant) linked = false;
    consonant = part == kConsonant ||
                (consonant && (part == kConjunctExtend || part == kLinker || part == kJoiner));
    half_flag = part == kRegionalIndicator && !half_flag;
    last = part;
  }

  /// True if no boundary lies before `next`: the rules GB3 to GB13.
  [[nodiscard]] bool goes_on_with(ClusterPart next) const {
    if (last == kCarriageReturn) return next == kLineFeed;
    if (ends_cluster(last) || ends_cluster(next)) return false;
    if (extends(next) || next == kJoiner || next == kSpacingMark || last == kPrepend) return true;
    switch (next) {
      case kLead:
      case kLeadVowel:
      case kLeadVowelTrail:
        return last == kLead;
      case kVowel:
        return last == kLead || last == kVowel || last == kLeadVowel;
      case kTrail:
        return last == kVowel || last == kLeadVowel || last == kTrail || last == kLeadVowelTrail;
      case kConsonant:
        return consonant && linked;
      case kPictographic:
        return joined_pictograph;
      case kRegionalIndicator:
        return half_flag;
      default:
        return false;
    }
  }
};

}  // namespace

std::size_t cluster_length(std::string_view text, std::size_t at) {
  const UnicodeTables& tables = UnicodeTables::get();
  ClusterState state;
  std::size_t end = at;
  while (end < text.size()) {
    const DecodedCharacter c = decoded_at(text, end);
    const ClusterPart part = tables.cluster_part(c.value);
    if (end > at && !state.goes_on_with(part)) break;
    state.take(part);
    end += c.bytes;
  }
  return end - at;
}

}  // namespace isthmus
