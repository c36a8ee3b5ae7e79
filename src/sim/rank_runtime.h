// SPDX-License-Identifier: Apache-2.0
// A world as seen by one rank: its compute regions last `slowdown` times as long.
#pragma once

#include <cmath>
#include <memory>
#include <string>
#include <utility>

#include "isthmus/runtime.h"

namespace isthmus {

class RankRuntime final : public Runtime {
 public:
  /// Borrows `world`. REQUIRES: slowdown > 0.
  RankRuntime(Runtime& world, double slowdown) : world_(world), slowdown_(slowdown) {}

  [[nodiscard]] const Clock& clock() const override { return world_.clock(); }
  void sleep_until(TimePoint time) override { world_.sleep_until(time); }
  [[nodiscard]] std::unique_ptr<Task> spawn(std::string name, std::function<void()> body) override {
    return world_.spawn(std::move(name), std::move(body));
  }
  [[nodiscard]] std::unique_ptr<WaitQueue> make_wait_queue() override {
    return world_.make_wait_queue();
  }
  void compute(Duration duration, const std::function<void()>& work) override {
    if (slowdown_ != 1) {
      duration = Duration(std::llround(static_cast<double>(duration.count()) * slowdown_));
    }
    world_.compute(duration, work);
  }
  [[nodiscard]] bool simulated() const override { return world_.simulated(); }

 private:
  Runtime& world_;
  double slowdown_;
};

}  // namespace isthmus
