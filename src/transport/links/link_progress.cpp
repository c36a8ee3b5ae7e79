// SPDX-License-Identifier: Apache-2.0
#include "transport/links/link_progress.h"

#include <algorithm>
#include <cstddef>

namespace isthmus {

Movement LinkProgress::observe(std::span<const std::optional<LinkCounters>> each, bool passed_on) {
  last_.resize(each.size());
  bool moves = false, under_way = false, any = false;
  for (std::size_t k = 0; k < each.size(); ++k) {
    if (each[k] && each[k]->queued_bytes) {
      const LinkCounters& now = *each[k];
      // A connection that was dialled anew counts from zero.
      const bool known = last_[k] && last_[k]->acked_bytes <= now.acked_bytes;
      const std::uint64_t grown = now.acked_bytes - (known ? last_[k]->acked_bytes : 0);
      const bool had_values = known && last_[k]->queued_bytes.value_or(0) >= kValues;
      moves = moves || grown >= (had_values ? kSegment : kBurst) || (now.peer_full && !passed_on);
      under_way = under_way || *now.queued_bytes >= kValues;
      any = true;
    }
    last_[k] = each[k];
  }
  tells_ = tells_ || any;
  const bool delivered = any && !under_way;
  const bool twice = delivered && delivered_;
  delivered_ = delivered;
  if (!tells_ || moves) return Movement::kMoves;
  return twice ? Movement::kDelivered : Movement::kStalled;
}

}  // namespace isthmus
