// SPDX-License-Identifier: Apache-2.0
// What TCP has counted on the connections dialled to one peer, over all there ever were: each
// begins at zero again when it breaks and comes back. For pages about a run. Pure; one task.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "transport/links/link_gauge.h"

namespace isthmus {

class LinkTally {
 public:
  /// Less between two looks tells nothing of what a link carries: heartbeats, a note.
  static constexpr std::uint64_t kTelling = 16 << 10;

  /// `each`: of every connection, in their order; nothing for one that does not stand or tell.
  /// Connections of another kind than before (by way of a relay, or no longer): call `forget`
  /// first.
  void add(std::span<const std::optional<LinkCounters>> each);
  /// What was seen last is no base for what comes.
  void forget() { last_.clear(); }
  [[nodiscard]] const LinkReading& reading() const { return reading_; }

 private:
  LinkReading reading_;
  std::vector<std::optional<LinkCounters>> last_;
};

}  // namespace isthmus
