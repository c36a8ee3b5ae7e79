// SPDX-License-Identifier: Apache-2.0
// SimWorld's monitor. There is no lock: a running task holds the baton. An update evaluates the
// waiters' conditions itself, first come, first served, and wakes only those whose condition holds.
#pragma once

#include <string>
#include <vector>

#include "isthmus/runtime.h"

namespace isthmus {

class Scheduler;
struct SimTask;

class SimWaitQueue final : public WaitQueue {
 public:
  explicit SimWaitQueue(Scheduler& scheduler);
  ~SimWaitQueue() override;

  void update(const std::function<void()>& change) override;
  bool wait(const std::function<bool()>& ready, TimePoint deadline) override;

  void add(SimTask& task) { waiters_.push_back(&task); }
  void remove(SimTask& task);
  [[nodiscard]] const std::string& name() const { return name_; }
  void set_name(std::string name) { name_ = std::move(name); }

 private:
  void wake_ready();

  Scheduler& scheduler_;
  std::string name_;
  std::vector<SimTask*> waiters_;
};

}  // namespace isthmus
