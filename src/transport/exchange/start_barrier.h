// SPDX-License-Identifier: Apache-2.0
// Holds back frames until all members have met at the start of a run
// (PeerExchangeOptions::gathers). A peer met early may be an old process that has not noticed that
// its previous run is over. So before all have met, a loss of it does not count, and its frames
// wait. Pure.
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

  /// True until all members have met.
  [[nodiscard]] bool closed() const { return closed_; }
  /// Holds the frame unless it is a note or the barrier is open. RETURNS: whether the frame was
  /// held.
  [[nodiscard]] bool hold(WorkerId from, FrameKind kind, const FrameBytes& bytes) {
    if (!closed_ || kind == FrameKind::kNote) return false;
    held_.emplace_back(from, bytes);
    return true;
  }
  /// A process is gone: drops its held frames.
  void drop_from(WorkerId peer) {
    std::erase_if(held_, [&](const auto& each) { return each.first == peer; });
  }
  /// A new process of the member has connected.
  void count_return(WorkerId peer) { ++returns_[static_cast<std::size_t>(peer.value())]; }

  /// All members have met. `members`: their number, equal to the number of processes.
  void open(std::size_t members) {
    ISTHMUS_CHECK(closed_);
    ISTHMUS_CHECK(members == returns_.size(), members, returns_.size());
    closed_ = false;
  }
  /// `met`: the peer's restart count when this member met it. True if it has restarted since.
  [[nodiscard]] bool started_anew(WorkerId peer, std::uint64_t met) const {
    return returns_[static_cast<std::size_t>(peer.value())] != met;
  }
  [[nodiscard]] Held take_held() { return std::exchange(held_, {}); }
  /// Opens the barrier and drops the held frames: this member is not in the run that begins.
  void lift() {
    closed_ = false;
    held_.clear();
  }

 private:
  bool closed_;
  std::vector<std::uint64_t> returns_;  // restart count by process
  Held held_;
};

}  // namespace isthmus
