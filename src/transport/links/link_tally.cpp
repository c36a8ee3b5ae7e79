// SPDX-License-Identifier: Apache-2.0
#include "transport/links/link_tally.h"

#include <algorithm>
#include <chrono>
#include <cstddef>

namespace isthmus {
namespace {

/// Of a count that begins anew with each connection.
template <typename Count>
Count grown(Count before, Count now) {
  return now < before ? now : now - before;
}

}  // namespace

void LinkTally::add(std::span<const std::optional<LinkCounters>> each) {
  last_.resize(std::max(last_.size(), each.size()));
  reading_.connections = 0;
  reading_.rtt.reset();
  Duration trips{0}, busy{0};
  std::uint64_t acked_bytes = 0;
  for (std::size_t k = 0; k < each.size(); ++k) {
    if (!each[k]) {
      last_[k].reset();  // the next one begins at zero
      continue;
    }
    const LinkCounters before = last_[k].value_or(LinkCounters{});
    const LinkCounters& now = *each[k];
    ++reading_.connections;
    trips += now.rtt;
    reading_.segments += grown(before.segments, now.segments);
    reading_.retransmits += grown(before.retransmits, now.retransmits);
    acked_bytes += grown(before.acked_bytes, now.acked_bytes);
    // They are busy at the same time.
    busy = std::max(busy, grown(before.busy, now.busy));
    last_[k] = now;
  }
  if (reading_.connections > 0) reading_.rtt = trips / reading_.connections;
  if (acked_bytes >= kTelling && busy > Duration{0}) {
    reading_.goodput_bits_per_s = 8 * static_cast<double>(acked_bytes) / in_seconds(busy);
  }
}

}  // namespace isthmus
