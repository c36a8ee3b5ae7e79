// SPDX-License-Identifier: Apache-2.0
#include "transport/links/frame_queue.h"

#include <algorithm>
#include <utility>

#include "transport/wire/frame.h"

namespace isthmus {

void FrameQueue::push(FrameBytes frame) {
  const std::optional<FrameOrder> order = order_of(frame);
  Line* line = &words_;
  if (order && is_values(order->kind)) {
    line = &values_[order->sent.value()];
  } else if (order && (order->kind == FrameKind::kEcho || order->kind == FrameKind::kBye)) {
    line = &last_;
  }
  line->push_back({pushed_++, std::move(frame)});
}

bool FrameQueue::waits_before(std::uint64_t number) const {
  const auto before = [&](const Line& line) {
    return !line.empty() && line.front().number < number;
  };
  return before(words_) ||
         std::ranges::any_of(values_, [&](const auto& each) { return before(each.second); });
}

FrameBytes FrameQueue::pop() {
  Line& line = next_of(*this);
  FrameBytes frame = std::move(line.front().frame);
  line.pop_front();
  if (!values_.empty() && values_.begin()->second.empty()) values_.erase(values_.begin());
  return frame;
}

void FrameQueue::clear() {
  words_.clear();
  values_.clear();
  last_.clear();
}

}  // namespace isthmus
