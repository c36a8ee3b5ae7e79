// SPDX-License-Identifier: Apache-2.0
#include "transport/exchange/divergent_results.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>

namespace isthmus {

bool DivergentResults::single_out(const SyncId& id, const std::map<WorkerId, Digest128>& digests) {
  const auto with = [&](const Digest128& digest) {
    return static_cast<std::size_t>(
        std::ranges::count_if(digests, [&](const auto& each) { return each.second == digest; }));
  };
  const auto half = std::ranges::find_if(
      digests, [&](const auto& each) { return 2 * with(each.second) > digests.size(); });
  if (!options_.exchange.elastic || half == digests.end() ||
      static_cast<int>(with(half->second)) < options_.exchange.min_members) {
    return false;
  }
  std::map<WorkerId, std::string> odd;
  for (const auto& [rank, digest] : digests) {
    if (digest == half->second) continue;
    if (rank == members_.coordinator() || once_excluded_.contains(rank)) return false;
    odd[rank] = fmt::format(
        "its result of fragment {} of step {} differs: digest {}, that of {} workers is {}",
        id.fragment.value(), id.sent.value(), digest.hex(), with(half->second), half->second.hex());
  }
  found_.merge(odd);
  return true;
}

}  // namespace isthmus
