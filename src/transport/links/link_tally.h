// SPDX-License-Identifier: Apache-2.0
// TCP's counters over all connections ever dialled to one peer: a connection's own counters restart
// at zero when it reopens. For pages about a run. Pure; one task.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "transport/links/link_gauge.h"

namespace isthmus {

class LinkTally {
 public:
  /// Less traffic between two looks (heartbeats, a note) does not show a link's goodput.
  static constexpr std::uint64_t kTelling = 16 << 10;

  /// `each`: one entry for every connection, in order; nothing for one that is not open or has no
  /// counters. Before connections of the other kind (over a relay, or direct again) call `forget`.
  void add(std::span<const std::optional<LinkCounters>> each);
  /// The counters seen last are no base for the next ones.
  void forget() { last_.clear(); }
  [[nodiscard]] const LinkReading& reading() const { return reading_; }

 private:
  LinkReading reading_;
  std::vector<std::optional<LinkCounters>> last_;
};

}  // namespace isthmus
