// SPDX-License-Identifier: Apache-2.0
// The tasks that move mapped state between memory and its files: one task reads ahead, another
// writes back and drops pages. Requests are served in order. Any thread may make requests.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <mutex>
#include <thread>

#include "core/state/state_memory.h"

namespace isthmus {

/// Whole pages of a mapped file.
struct StatePages {
  int file = -1;
  std::byte* begin = nullptr;
  std::size_t bytes = 0;
  std::int64_t offset = 0;  // in the file
};

class StatePager {
 public:
  explicit StatePager(const StateMemory::Options& options);
  ~StatePager();
  StatePager(const StatePager&) = delete;
  StatePager& operator=(const StatePager&) = delete;

  // A failure on a task of the pager (a disk error, events that could not be written) is thrown by
  // every later call: SystemError, or the task's exception.

  /// Cancels a request to drop the same pages that has not begun.
  void fetch(const StatePages& pages, StateUse use);
  /// Blocks until requested pages are present.
  void await(const StatePages& pages);
  /// Blocks while more than kBacklog bytes wait to be written.
  void drop(const StatePages& pages, StateUse use);
  /// Blocks until no request for the file is running, and drops its waiting requests.
  void forget(int file);

  [[nodiscard]] StateTraffic traffic() const;  // throws too
  void begin_step(StepIndex t);
  /// Events and clock are not used after this call.
  void stop_recording();

  static constexpr std::size_t kBacklog = std::size_t{64} << 20;

 private:
  struct Request {
    StatePages pages;
    StateUse use = StateUse::kRead;
  };
  struct Lane {
    std::deque<Request> queue;
    Request active;  // file -1: none
  };
  void stop();
  void check() const;  // under mutex_
  [[noreturn]] void fail(const char* action, int error) const;
  void serve(Lane& lane, void (StatePager::*work)(const Request&));
  void read(const Request& request);
  void write(const Request& request);
  [[nodiscard]] TimePoint now();
  void note(EventKind kind, TimePoint begin, std::size_t bytes);
  template <typename Ready>
  void wait(std::unique_lock<std::mutex>& lock, const Ready& ready);

  std::mutex recording_;  // guards events and clock of options_
  StateMemory::Options options_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  Lane reads_, writes_;
  std::size_t backlog_ = 0;  // bytes of writes_ that were written to
  StateTraffic traffic_;
  std::int64_t step_ = 0;
  bool stopping_ = false;
  std::exception_ptr failure_;  // the first one
  std::thread reader_, writer_;
};

}  // namespace isthmus
