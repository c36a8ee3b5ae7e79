// SPDX-License-Identifier: Apache-2.0
#include "transport/links/link_flow.h"

#include <algorithm>
#include <utility>

#include "core/base/check.h"

namespace isthmus {

const FrameBytes* LinkSender::next() const {
  if (!again_.empty()) {
    return &in_flight_[*again_.begin() - first_].frame;
  }
  if (waiting_.empty()) {
    return nullptr;
  }
  const FrameBytes& first = waiting_.front();
  return bytes_in_flight_ + link_charge(first->size()) <= std::min(window_, own_bound_) ? &first
                                                                                        : nullptr;
}

std::uint64_t LinkSender::next_number() const {
  return again_.empty() ? numbered() : *again_.begin();
}

void LinkSender::sent(int stream) {
  ISTHMUS_CHECK(next() != nullptr);
  if (!again_.empty()) {
    in_flight_[*again_.begin() - first_].stream = stream;
    again_.erase(again_.begin());
    return;
  }
  bytes_in_flight_ += link_charge(waiting_.front()->size());
  in_flight_.push_back({waiting_.pop(), stream});
}

bool LinkSender::acknowledge(std::uint64_t number) {
  if (number > numbered()) {
    return false;
  }
  for (; first_ < number; ++first_) {
    bytes_in_flight_ -= link_charge(in_flight_.front().frame->size());
    in_flight_.pop_front();
    again_.erase(first_);
  }
  return true;
}

void LinkSender::stream_lost(int stream) {
  for (std::size_t i = 0; i < in_flight_.size(); ++i) {
    if (in_flight_[i].stream == stream) {
      again_.insert(first_ + i);
    }
  }
}

void LinkSender::clear() {
  first_ = numbered();
  in_flight_.clear();
  again_.clear();
  waiting_.clear();
  bytes_in_flight_ = 0;
}

LinkReceiver::Verdict LinkReceiver::receive(std::uint64_t number, FrameBytes frame,
                                            std::vector<FrameBytes>& in_order) {
  if (number < next_ || early_.contains(number)) {
    return Verdict::kRepeated;
  }
  const std::size_t charge = link_charge(frame->size());
  if (held_ + charge > window_) {
    return Verdict::kBeyondWindow;
  }
  held_ += charge;
  early_.emplace(number, std::move(frame));
  for (auto it = early_.begin(); it != early_.end() && it->first == next_; it = early_.erase(it)) {
    in_order.push_back(std::move(it->second));
    ++next_;
  }
  return Verdict::kTaken;
}

void LinkReceiver::taken(std::size_t frame_bytes) {
  ISTHMUS_CHECK(taken_ < next_, taken_, next_);
  held_ -= link_charge(frame_bytes);
  since_ack_ += link_charge(frame_bytes);
  ++taken_;
}

void LinkReceiver::drop_held() {
  taken_ = next_;
  held_ = 0;
  for (const auto& [number, frame] : early_) {
    held_ += link_charge(frame->size());
  }
  since_ack_ = window_;
}

}  // namespace isthmus
