// SPDX-License-Identifier: Apache-2.0
// Storage of the large arrays of a training state: in memory, or in files (train.offload) that are
// mapped, so that code accesses them as memory and results keep their bits. The kernel could page
// such files itself, but it does not know the order of a pass. So passes announce which values they
// need next and which they have finished with: one task reads ahead, another writes back and drops
// pages, both concurrently with the computation. If nothing is in files, an announcement costs one
// load of a counter.
//
// Files have no name (or lose it at once), so a killed process leaves nothing behind. Their space
// is reserved at creation, so that a disk that fills up later cannot make a mapped page fail
// (SIGBUS). Announcements may come from any thread; an array belongs to one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>

#include "core/base/events.h"
#include "isthmus/runtime.h"

namespace isthmus {

class StatePager;

/// Traffic between memory and files since the start.
struct StateTraffic {
  std::uint64_t read_bytes = 0;     // bytes that were not in memory when they were announced
  std::uint64_t written_bytes = 0;  // bytes passed to state_done as written
  double wait_s = 0;                // time for which callers were blocked, waiting for pages or for
                                    // room
};

/// The files of one worker.
class StateMemory {
 public:
  struct Options {
    std::filesystem::path folder;   // created if absent, accessible only to its owner
    WorkerId worker = WorkerId(0);  // named in events
    EventSink* events = nullptr;    // gets kRead and kWrite; may be null. Borrowed, as is the clock
    const Clock* clock = nullptr;   // a real clock
  };
  /// THROWS: SystemError when the folder cannot be made.
  explicit StateMemory(const Options& options);
  /// Arrays may outlive this object; their traffic is then not recorded.
  ~StateMemory();
  StateMemory(const StateMemory&) = delete;
  StateMemory& operator=(const StateMemory&) = delete;

  /// THROWS: as the announcements below, after a failure.
  [[nodiscard]] StateTraffic traffic() const;
  /// Sets the inner step of the following events.
  void begin_step(StepIndex t);

  /// Destination of arrays that this thread creates; null: in memory.
  [[nodiscard]] static StateMemory* current();

 private:
  friend class StateArray;
  std::filesystem::path folder_;
  std::shared_ptr<StatePager> pager_;  // shared with the arrays, which may outlive the worker
};

/// While the scope exists, large arrays that this thread creates are in `memory`. Borrows `memory`;
/// null changes nothing.
class StateMemoryScope {
 public:
  explicit StateMemoryScope(StateMemory* memory);
  ~StateMemoryScope();
  StateMemoryScope(const StateMemoryScope&) = delete;
  StateMemoryScope& operator=(const StateMemoryScope&) = delete;

 private:
  StateMemory* before_;
};

/// Floats that start as zeros, in a file of the current StateMemory if the array is large, else in
/// memory, aligned for kernels and huge pages. Move-only.
class StateArray {
 public:
  StateArray() = default;
  /// THROWS: std::bad_alloc; SystemError naming folder, bytes needed and free.
  explicit StateArray(std::size_t size);
  /// Uninitialised values, which the caller must write before reading. THROWS: as above.
  [[nodiscard]] static StateArray unfilled(std::size_t size);
  /// A copy.
  explicit StateArray(std::span<const float> values);
  ~StateArray();
  StateArray(StateArray&& other) noexcept;
  StateArray& operator=(StateArray&& other) noexcept;
  StateArray(const StateArray&) = delete;
  StateArray& operator=(const StateArray&) = delete;

  [[nodiscard]] float* data() const { return data_; }
  [[nodiscard]] std::size_t size() const { return size_; }
  [[nodiscard]] bool empty() const { return size_ == 0; }
  [[nodiscard]] float* begin() const { return data_; }
  [[nodiscard]] float* end() const { return data_ + size_; }
  [[nodiscard]] float& operator[](std::size_t i) const { return data_[i]; }
  [[nodiscard]] std::span<float> span() const { return {data_, size_}; }
  [[nodiscard]] bool in_file() const { return pager_ != nullptr; }
  /// Sets all values to zero; in a file without writing its pages.
  void fill_zero();

 private:
  enum class Start { kZeros, kUnfilled };
  StateArray(std::size_t size, Start start);
  void take_file(const StateMemory& memory);
  float* data_ = nullptr;
  std::size_t size_ = 0;
  std::shared_ptr<StatePager> pager_;  // shared with its StateMemory
};

enum class StateUse { kRead, kWrite };

// A failure of a pager's task (write, read, record) is thrown by the next announcement for its
// files: SystemError naming the folder, or the task's exception.

/// True if the values are in a file.
[[nodiscard]] bool state_in_file(std::span<const float> values);
/// Announces that these values are used next: starts reading them. Does not block.
void state_needed(std::span<const float> values, StateUse use = StateUse::kRead);
/// Blocks until a read started by `state_needed` for these values has completed.
void state_await(std::span<const float> values);
/// Announces that these values are not used for a while, and were written or only read: starts
/// writing them back and drops them from memory. Blocks while much data waits to be written.
void state_done(std::span<const float> values, StateUse use);

/// Keeps a window of the files in memory during a front-to-back pass over arrays.
class StateWalk {
 public:
  using Visit = std::function<void(std::span<const float> values, StateUse use)>;
  /// Calls `visit` for the values that [begin, end) of the pass uses, and their use.
  using Ranges = std::function<void(std::size_t begin, std::size_t end, const Visit& visit)>;

  /// size: positions of the pass. Does nothing if nothing is in files.
  StateWalk(std::size_t size, Ranges ranges);
  /// Releases the last window. A failure is thrown by the next announcement.
  ~StateWalk();
  StateWalk(const StateWalk&) = delete;
  StateWalk& operator=(const StateWalk&) = delete;

  /// Moves the pass to `position`, not before that of the last call: releases the previous window,
  /// announces the next one, and waits for this one.
  void at(std::size_t position);
  /// Calls body(begin, end) for consecutive ranges of [0, size), each in memory; a single range if
  /// nothing is in files.
  void run(const std::function<void(std::size_t begin, std::size_t end)>& body);

 private:
  void leave();
  std::size_t size_;
  std::size_t window_;  // positions; 0: nothing is in files
  std::size_t end_ = 0;
  std::size_t begin_ = 0;  // [begin_, end_) is in memory
  Ranges ranges_;
};

/// One array, read or written front to back.
[[nodiscard]] StateWalk::Ranges ranges_of(std::span<const float> values, StateUse use);

}  // namespace isthmus
