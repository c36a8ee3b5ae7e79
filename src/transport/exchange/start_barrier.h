// SPDX-License-Identifier: Apache-2.0
// The time before a run begins, in which its members meet (PeerExchangeOptions::gathers). A member
// that is met may be the end of a former life of its process, which has not noticed yet that the
// run before is over. So none of that counts before all have met: neither its going, nor its
// frames. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "core/base/check.h"
#include "isthmus/transport.h"
#include "transport/wire/frame.h"

namespace isthmus {

class StartBarrier {
 public:
  using Held = std::vector<std::pair<WorkerId, FrameBytes>>;

  StartBarrier(std::size_t processes, bool closed) : closed_(closed), returns_(processes) {}

  /// The members have not all met.
  [[nodiscard]] bool closed() const { return closed_; }
  /// Of frames that come meanwhile, notes alone count. RETURNS: whether the frame has to wait.
  [[nodiscard]] bool hold(WorkerId from, FrameKind kind, const FrameBytes& bytes) {
    if (!closed_ || kind == FrameKind::kNote) return false;
    held_.emplace_back(from, bytes);
    return true;
  }
  /// What a process has sent that is gone.
  void drop_from(WorkerId peer) {
    std::erase_if(held_, [&](const auto& each) { return each.first == peer; });
  }
  /// A new process of a member has come.
  void count_return(WorkerId peer) { ++returns_[static_cast<std::size_t>(peer.value())]; }

  /// The members have met. `members`: so many have been named.
  void open(std::size_t members) {
    ISTHMUS_CHECK(closed_);
    ISTHMUS_CHECK(members == returns_.size(), members, returns_.size());
    closed_ = false;
  }
  /// `met`: how often it had returned when it was met.
  [[nodiscard]] bool started_anew(WorkerId peer, std::uint64_t met) const {
    return returns_[static_cast<std::size_t>(peer.value())] != met;
  }
  [[nodiscard]] Held take_held() { return std::exchange(held_, {}); }
  /// This member is no part of the run that begins.
  void lift() {
    closed_ = false;
    held_.clear();
  }

 private:
  bool closed_;
  std::vector<std::uint64_t> returns_;  // by process
  Held held_;
};

}  // namespace isthmus
