// SPDX-License-Identifier: Apache-2.0
// Memory and work of a CUDA device, as host code without CUDA's headers sees them: streams, events,
// arrays with an owner, copies, graphs. Two implementations have these names: runtime.cpp over the
// CUDA runtime, and emulated/runtime.cpp, which the tests link to run the kernels on the CPU.
//
// Unless a function says that it blocks, it queues work on a stream and returns; what it was given
// must live until the stream has got that far. THROWS (everything here): SystemError naming the
// CUDA call and its answer; OutOfDeviceMemory where an array does not fit.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "isthmus/errors.h"

namespace isthmus::cuda {

/// Says how many bytes were asked for and how many there were.
class OutOfDeviceMemory : public SystemError {
 public:
  using SystemError::SystemError;
};

struct DeviceInfo {
  int ordinal = 0;
  std::string name;
  int compute_major = 0, compute_minor = 0;
  std::size_t memory_bytes = 0;
};
/// Devices that this process may use; empty when there is none, and `unavailable` says why.
[[nodiscard]] std::vector<DeviceInfo> devices();

/// Why no device can be used, for example "this build has no CUDA kernels"; empty when one can.
[[nodiscard]] std::string unavailable();

/// "driver for CUDA 13.0, runtime 12.9"; empty where there is neither.
[[nodiscard]] std::string versions();

/// Makes device `ordinal` the one that this thread's calls mean. A thread starts with device 0.
void use_device(int ordinal);

/// Bytes of shared memory that a block may have on the calling thread's device; where there is
/// none, what the largest devices have.
[[nodiscard]] std::size_t shared_bytes_of_block();
inline constexpr std::size_t kMostSharedBytes = 227 << 10;

struct DeviceMemory {
  std::size_t free_bytes = 0;
  std::size_t total_bytes = 0;
};
[[nodiscard]] DeviceMemory device_memory();

class Event;

/// Work in order, on the device that was the thread's when it was made: kernels and events come to
/// it from threads whose device that is. One thread drives a stream at a time.
class Stream {
 public:
  /// Which of several streams' thread blocks the device starts first. The inner loop is in the
  /// middle, what fills its gaps is low, and NCCL, whose sums others wait for, is high.
  enum class Priority { kHigh, kMiddle, kLow };
  explicit Stream(Priority priority = Priority::kMiddle);
  ~Stream();  // waits for its work
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  /// Blocks until all that is queued has been done.
  void synchronize();
  /// What is queued here afterwards begins after `event`.
  void wait(const Event& event);
  /// cudaStream_t, for kernels and libraries.
  [[nodiscard]] void* handle() const { return handle_; }

 private:
  void* handle_ = nullptr;
};

/// A point in the work of streams of the device on which it was made. Before the first `record` it
/// counts as reached.
class Event {
 public:
  /// Timing makes records and waits dearer: benches alone ask for times.
  enum class Timing { kOff, kOn };
  explicit Event(Timing timing = Timing::kOff);
  ~Event();
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;

  void record(Stream& stream);
  /// Blocks until the point is reached.
  void synchronize() const;
  [[nodiscard]] bool reached() const;
  /// Milliseconds from `begin` to here. REQUIRES: both were made with timing, are recorded and
  /// reached. The emulation says 0.
  [[nodiscard]] double milliseconds_since(const Event& begin) const;
  [[nodiscard]] void* handle() const { return handle_; }

 private:
  void* handle_ = nullptr;
};

namespace detail {
[[nodiscard]] void* allocate_device(std::size_t bytes);
void free_device(void* data) noexcept;
[[nodiscard]] void* allocate_pinned(std::size_t bytes);
void free_pinned(void* data) noexcept;
void copy(Stream& stream, void* to, const void* from, std::size_t bytes);
void fill_zero(Stream& stream, void* data, std::size_t bytes);
}  // namespace detail

/// n values of T (trivially copyable), unfilled, with an owner. Making and freeing one may block
/// until the device is idle: make them once, not in a step.
template <typename T, void* (*kAllocate)(std::size_t), void (*kFree)(void*) noexcept>
class OwnedArray {
 public:
  OwnedArray() = default;
  explicit OwnedArray(std::size_t n)
      : data_(n == 0 ? nullptr : static_cast<T*>(kAllocate(n * sizeof(T)))), size_(n) {}
  ~OwnedArray() { release(); }
  OwnedArray(OwnedArray&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}
  OwnedArray& operator=(OwnedArray&& other) noexcept {
    if (this == &other) return *this;
    release();
    data_ = std::exchange(other.data_, nullptr);
    size_ = std::exchange(other.size_, 0);
    return *this;
  }

  [[nodiscard]] T* data() const { return data_; }
  [[nodiscard]] std::size_t size() const { return size_; }
  [[nodiscard]] std::size_t bytes() const { return size_ * sizeof(T); }
  [[nodiscard]] bool empty() const { return size_ == 0; }

 private:
  void release() noexcept {
    if (data_ != nullptr) kFree(data_);
  }
  T* data_ = nullptr;
  std::size_t size_ = 0;
};

/// In the device's memory, aligned to 256 bytes.
template <typename T>
using DeviceArray = OwnedArray<T, detail::allocate_device, detail::free_device>;
/// In host memory that copies can reach while the CPU does other work.
template <typename T>
using PinnedArray = OwnedArray<T, detail::allocate_pinned, detail::free_pinned>;

/// to[0, n) := from[0, n), either on the device or in host memory. Host memory that is not pinned
/// may be read or written at once, while the call blocks, or later: leave it alone until the stream
/// has got that far, and record no such copy in a graph.
template <typename T>
void copy(Stream& stream, T* to, const T* from, std::size_t n) {
  detail::copy(stream, to, from, n * sizeof(T));
}

/// All bits zero, on the device.
template <typename T>
void fill_zero(Stream& stream, T* data, std::size_t n) {
  detail::fill_zero(stream, data, n * sizeof(T));
}

/// Work recorded once and launched at once as often as wanted, with the same addresses and sizes.
class Graph {
 public:
  /// Called while work is queued: an event is recorded here, for who waits outside of the work.
  using Mark = std::function<void(Event&)>;
  /// Records what `queue` queues on `stream` (and on streams that wait for its events and that it
  /// waits for again) instead of doing it. At a mark the graph is cut: each launch launches its
  /// parts, and records the event between them as on any stream.
  /// REQUIRES: `queue` makes no array and blocks nowhere; events of marks outlive the graph.
  Graph(Stream& stream, const std::function<void(const Mark&)>& queue);
  ~Graph();
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;
  void launch(Stream& stream) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace isthmus::cuda
