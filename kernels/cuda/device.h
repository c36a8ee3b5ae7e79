// SPDX-License-Identifier: Apache-2.0
// Memory and work of a CUDA device, for host code without CUDA's headers: streams, events, owning
// arrays, copies, graphs. There are two implementations: runtime.cpp over the CUDA runtime, and
// emulated/runtime.cpp, which tests link to run the kernels on the CPU.
//
// Unless a function says that it blocks, it queues work on a stream and returns; its arguments must
// live until the stream has executed that work. THROWS (everything here): SystemError naming the
// CUDA call and its result; OutOfDeviceMemory when an array does not fit.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "isthmus/errors.h"

namespace isthmus::cuda {

/// Lack of device memory; the text gives the bytes requested and available.
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
/// Devices that this process may use; empty if there is none, see `unavailable`.
[[nodiscard]] std::vector<DeviceInfo> devices();

/// Why no device can be used, for example "this build has no CUDA kernels"; empty if one can.
[[nodiscard]] std::string unavailable();

/// "driver for CUDA 13.0, runtime 12.9"; empty if there is neither.
[[nodiscard]] std::string versions();

/// Makes device `ordinal` the current device of this thread. A thread starts with device 0.
void use_device(int ordinal);

/// Largest shared memory of a block on the calling thread's device, in bytes; without a device
/// kMostSharedBytes, that of the largest devices.
[[nodiscard]] std::size_t shared_bytes_of_block();
inline constexpr std::size_t kMostSharedBytes = 227 << 10;

struct DeviceMemory {
  std::size_t free_bytes = 0;
  std::size_t total_bytes = 0;
};
[[nodiscard]] DeviceMemory device_memory();

class Event;

/// A queue of work in order, on the device that was current when it was made; kernels and events
/// must come from threads with the same current device. One thread drives a stream at a time.
class Stream {
 public:
  /// Order in which the device starts thread blocks of several streams: the inner loop is in the
  /// middle, work that fills its gaps is low, and NCCL, for whose sums other ranks wait, is high.
  enum class Priority { kHigh, kMiddle, kLow };
  explicit Stream(Priority priority = Priority::kMiddle);
  ~Stream();  // blocks until its work is done
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  /// Blocks until all queued work is done.
  void synchronize();
  /// Work queued here after this call begins after `event`.
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
  /// Timing makes records and waits slower; only benchmarks use it.
  enum class Timing { kOff, kOn };
  explicit Event(Timing timing = Timing::kOff);
  ~Event();
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;

  void record(Stream& stream);
  /// Blocks until the point is reached.
  void synchronize() const;
  [[nodiscard]] bool reached() const;
  /// Milliseconds from `begin` to this event. REQUIRES: both made with timing, recorded and
  /// reached. The emulation returns 0.
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

/// An owning array of n values of T (trivially copyable), uninitialised. Allocation and release may
/// block until the device is idle: allocate once, not in a step.
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
/// Pinned host memory, which copies can access while the CPU does other work.
template <typename T>
using PinnedArray = OwnedArray<T, detail::allocate_pinned, detail::free_pinned>;

/// to[0, n) := from[0, n), each on the device or in host memory. Unpinned host memory may be
/// accessed during the call, which then blocks, or later: it must not change until the stream has
/// executed the copy, and such a copy must not be captured in a graph.
template <typename T>
void copy(Stream& stream, T* to, const T* from, std::size_t n) {
  detail::copy(stream, to, from, n * sizeof(T));
}

/// All bits zero, on the device.
template <typename T>
void fill_zero(Stream& stream, T* data, std::size_t n) {
  detail::fill_zero(stream, data, n * sizeof(T));
}

/// A CUDA graph: work captured once and launched any number of times, with the same addresses and
/// sizes.
class Graph {
 public:
  /// Called while work is queued: records an event at this point, for code outside the graph that
  /// waits for it.
  using Mark = std::function<void(Event&)>;
  /// Captures the work that `queue` queues on `stream` (and on streams that wait for its events and
  /// that it waits for again) in place of executing it. At a mark the graph is split: each launch
  /// launches its parts, and records the event between them as on any stream. REQUIRES: `queue`
  /// allocates no array and does not block; events of marks outlive the graph.
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
