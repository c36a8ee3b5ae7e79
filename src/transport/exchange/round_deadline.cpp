// SPDX-License-Identifier: Apache-2.0
#include "transport/exchange/round_deadline.h"

#include <algorithm>
#include <chrono>
#include <vector>

#include "core/base/check.h"

namespace isthmus {
namespace {

constexpr Duration kShortest = std::chrono::seconds(1);

Duration median(std::vector<Duration> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::ranges::nth_element(values, middle);
  return *middle;
}

}  // namespace

RoundDeadline RoundDeadline::adaptive(Duration longest) {
  ISTHMUS_CHECK(longest > Duration{0}, longest.count());
  RoundDeadline deadline(Duration{0});
  deadline.longest_ = longest;
  return deadline;
}

Duration RoundDeadline::get() const {
  if (fixed_ > Duration{0}) return fixed_;
  if (late_.size() < kFewest) return longest_;
  const Duration middle = median({late_.begin(), late_.end()});
  std::vector<Duration> apart;
  for (const Duration late : late_) apart.push_back(std::chrono::abs(late - middle));
  // No sum may leave the range: values beyond the longest deadline are cut off first.
  const Duration spread = std::min(median(std::move(apart)), longest_ / 4);
  // A member that is as late as before each time would exceed the median itself half of the time.
  return std::min(std::min(middle, longest_) + std::max(kShortest, 4 * spread), longest_);
}

void RoundDeadline::began(Duration late) {
  late_.push_back(std::max(late, Duration{0}));
  if (late_.size() > kRounds) late_.pop_front();
}

}  // namespace isthmus
