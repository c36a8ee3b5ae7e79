// SPDX-License-Identifier: Apache-2.0
// Where the large arrays of a training state lie: in memory, or in files (train.offload), mapped so
// that code reads and writes them as memory and results keep their bits. The kernel could page such
// files by itself; what it cannot know is the order of a pass. So passes say what they will need
// and what they are done with: a task of its own reads ahead, another writes behind and drops, both
// beside the computing. Where nothing is in files, the hints cost a look at a counter.
//
// Files have no name (or lose it at once), so a killed process leaves nothing. Their space is
// reserved when they are made: a disk that fills later is no fault of a mapped page (SIGBUS).
// Hints may come from any thread; an array belongs to one.
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

/// What went between memory and files since the start.
struct StateTraffic {
  std::uint64_t read_bytes = 0;     // that were not in memory when they were asked for
  std::uint64_t written_bytes = 0;  // given back as written
  double wait_s = 0;                // of those who asked, until pages were there or there was room
};

/// The files of one worker.
class StateMemory {
 public:
  struct Options {
    std::filesystem::path folder;   // made if it is not there, for its owner alone
    WorkerId worker = WorkerId(0);  // in events
    EventSink* events = nullptr;    // kRead and kWrite; may be null. Borrowed, as the clock is
    const Clock* clock = nullptr;   // a real one
  };
  /// THROWS: SystemError when the folder cannot be made.
  explicit StateMemory(const Options& options);
  /// Arrays may still be there; what is done to them is recorded no more.
  ~StateMemory();
  StateMemory(const StateMemory&) = delete;
  StateMemory& operator=(const StateMemory&) = delete;

  /// THROWS: what the hints below throw, if something has gone wrong.
  [[nodiscard]] StateTraffic traffic() const;
  /// The inner step that events belong to from now on.
  void begin_step(StepIndex t);

  /// Where arrays that this thread makes lie; null: in memory.
  [[nodiscard]] static StateMemory* current();

 private:
  friend class StateArray;
  std::filesystem::path folder_;
  std::shared_ptr<StatePager> pager_;  // with the arrays, which may outlive their worker
};

/// Large arrays that this thread makes lie there as long as the scope is. Borrows `memory`; null
/// changes nothing.
class StateMemoryScope {
 public:
  explicit StateMemoryScope(StateMemory* memory);
  ~StateMemoryScope();
  StateMemoryScope(const StateMemoryScope&) = delete;
  StateMemoryScope& operator=(const StateMemoryScope&) = delete;

 private:
  StateMemory* before_;
};

/// Floats that start as zeros, in the current StateMemory's files when there are many, else in
/// memory, aligned for kernels and huge pages. Move-only.
class StateArray {
 public:
  StateArray() = default;
  /// THROWS: std::bad_alloc; SystemError naming folder, bytes needed and free.
  explicit StateArray(std::size_t size);
  /// Values that the caller writes before it reads them. THROWS: as above.
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
  /// In a file without writing its pages.
  void fill_zero();

 private:
  enum class Start { kZeros, kUnfilled };
  StateArray(std::size_t size, Start start);
  void take_file(const StateMemory& memory);
  float* data_ = nullptr;
  std::size_t size_ = 0;
  std::shared_ptr<StatePager> pager_;  // with its StateMemory
};

enum class StateUse { kRead, kWrite };

// What a pager's task could not do (write, read, record) is thrown by the next hints for its files:
// SystemError naming the folder, or what was thrown there.

/// True when the values lie in a file.
[[nodiscard]] bool state_in_file(std::span<const float> values);
/// These values come next: starts reading them. Does not block.
void state_needed(std::span<const float> values, StateUse use = StateUse::kRead);
/// Blocks until what `state_needed` asked for of these is there.
void state_await(std::span<const float> values);
/// These are not used for a while, and were written or only read since they were there: starts to
/// write them and drops them from memory. Blocks while much waits to be written.
void state_done(std::span<const float> values, StateUse use);

/// Keeps a window of the files in memory on a walk through arrays from their front to their back.
class StateWalk {
 public:
  using Visit = std::function<void(std::span<const float> values, StateUse use)>;
  /// Calls `visit` for what [begin, end) of the walk touches, and how.
  using Ranges = std::function<void(std::size_t begin, std::size_t end, const Visit& visit)>;

  /// size: positions of the walk. Nothing is in files: does nothing.
  StateWalk(std::size_t size, Ranges ranges);
  /// Gives back the last window. What that throws is thrown by the next hint again.
  ~StateWalk();
  StateWalk(const StateWalk&) = delete;
  StateWalk& operator=(const StateWalk&) = delete;

  /// The walk is at `position`, at or after that of the last call: what lies a window behind is
  /// given back, the window after this one asked for, this one awaited.
  void at(std::size_t position);
  /// Calls body(begin, end) for consecutive stretches of [0, size), each in memory: all of it at
  /// once where nothing is in files.
  void run(const std::function<void(std::size_t begin, std::size_t end)>& body);

 private:
  void leave();
  std::size_t size_;
  std::size_t window_;  // positions; 0: nothing is in files
  std::size_t end_ = 0;
  std::size_t begin_ = 0;  // [begin_, end_) is in memory
  Ranges ranges_;
};

/// One array, read or written from front to back.
[[nodiscard]] StateWalk::Ranges ranges_of(std::span<const float> values, StateUse use);

}  // namespace isthmus
