// SPDX-License-Identifier: Apache-2.0
// The durations of all rounds at one worker, as its exchange reports them
// (PeerExchangeOptions::on_round), to compare with the predicted ones. Any task.
#pragma once

#include <chrono>
#include <mutex>

#include "isthmus/transport.h"
#include "record/round_times.h"

namespace isthmus::app {

class MeasuredRounds {
 public:
  void took(const SyncId& id, Duration time) {
    const std::scoped_lock lock(mutex_);
    times_.add(id.fragment, id.sent, in_seconds(time));
  }
  [[nodiscard]] RoundTimes so_far() const {
    const std::scoped_lock lock(mutex_);
    return times_;
  }

 private:
  mutable std::mutex mutex_;  // two tasks may report at once, and a third one may read
  RoundTimes times_;
};

}  // namespace isthmus::app
