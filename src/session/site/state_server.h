// SPDX-License-Identifier: Apache-2.0
// The task that sends the parts that a StateSource serves, as fast as its throttle allows.
#pragma once

#include <functional>
#include <memory>

#include "isthmus/runtime.h"
#include "session/site/state_source.h"

namespace isthmus::app {

class StateServer {
 public:
  /// Borrows both. `send` and `round_open` are called by its own task.
  StateServer(Runtime& runtime, StateSource& source,
              std::function<void(WorkerId to, const Note&)> send, std::function<bool()> round_open);
  /// Blocks until the task has ended.
  ~StateServer();
  StateServer(const StateServer&) = delete;
  StateServer& operator=(const StateServer&) = delete;

  /// A part may have been requested. Any task.
  void wake();

 private:
  void run();

  Runtime& runtime_;
  StateSource& source_;
  const std::function<void(WorkerId to, const Note&)> send_;
  const std::function<bool()> round_open_;
  std::unique_ptr<WaitQueue> queue_;
  // Under queue_'s lock:
  bool woken_ = false;
  bool ends_ = false;
  std::unique_ptr<Task> task_;
};

}  // namespace isthmus::app
