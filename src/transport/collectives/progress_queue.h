// SPDX-License-Identifier: Apache-2.0
// Runs functions one after another on its own thread, which starts with the first one. One thread
// at a time calls it. `runtime` is borrowed and outlives it.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>

#include "isthmus/runtime.h"
#include "transport/collectives/communicator.h"

namespace isthmus {

class ProgressQueue {
 public:
  ProgressQueue(Runtime& runtime, std::string name);
  /// Runs the started functions to their end.
  ~ProgressQueue();
  ProgressQueue(const ProgressQueue&) = delete;
  ProgressQueue& operator=(const ProgressQueue&) = delete;

  /// THROWS: SystemError when the system refuses a thread.
  [[nodiscard]] std::unique_ptr<Work> start(std::function<void()> function);
  /// Blocks until all started functions have ended, with or without an error.
  void drain();

 private:
  struct Started;
  class StartedWork;
  void serve();

  Runtime& runtime_;
  const std::string name_;
  // Shared with the Work objects, which may outlive the queue.
  std::shared_ptr<WaitQueue> changed_;
  std::deque<std::shared_ptr<Started>> waiting_;  // under changed_'s lock; shared with its Work
  bool closing_ = false;                          // under changed_'s lock
  std::atomic<std::int64_t> unfinished_{0};
  std::unique_ptr<Task> task_;
};

}  // namespace isthmus
