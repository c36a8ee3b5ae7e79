// SPDX-License-Identifier: Apache-2.0
#include "transport/exchange/ring/ring_plan.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>
#include <string>
#include <utility>

#include "core/base/check.h"
#include "core/base/hash.h"

namespace isthmus {

RingPlan make_ring_plan(const Codec& codec, std::size_t n, int members, std::vector<int> order) {
  ISTHMUS_CHECK(!codec.sparse(), codec.name());
  ISTHMUS_CHECK(members >= 2, members);
  std::vector<int> numbers(static_cast<std::size_t>(members));
  std::iota(numbers.begin(), numbers.end(), 0);
  if (order.empty()) order = numbers;
  std::vector<int> sorted = order;
  std::ranges::sort(sorted);
  ISTHMUS_CHECK(sorted == numbers, members);
  RingPlan plan{.cut = make_reduction_plan(codec, n, members, ReductionKind::kReduce),
                .next = numbers,
                .before = numbers};
  for (std::size_t i = 0; i < order.size(); ++i) {
    const int next = order[(i + 1) % order.size()];
    plan.next[static_cast<std::size_t>(order[i])] = next;
    plan.before[static_cast<std::size_t>(next)] = order[i];
  }
  const std::string agreed = fmt::format("{} ring {}", plan.cut.layout, fmt::join(order, " "));
  plan.cut.layout = crc32c(std::as_bytes(std::span(agreed)));
  return plan;
}

}  // namespace isthmus
