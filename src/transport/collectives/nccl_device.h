// SPDX-License-Identifier: Apache-2.0
// The CUDA side of one communicator between GPUs: a stream of the highest priority (a sum's few
// thread blocks would otherwise wait behind those of the concurrent pass), its end event, and
// staging memory for host values. One thread at a time uses it, after enter().
//
// NCCL and copies access only staging memory or values on the device; the calling thread copies
// host values into and out of pinned memory. So a call that ends early leaves no work behind that
// refers to host memory.
#pragma once

#include <cstddef>

#include "transport/collectives/nccl_calls.h"

namespace isthmus {

class NcclDevice {
 public:
  /// THROWS: NcclFailure when there is no such device, or CUDA refuses.
  NcclDevice(const NcclCalls& calls, int ordinal);
  /// Unfinished work leaks the stream and the memory.
  ~NcclDevice();
  NcclDevice(const NcclDevice&) = delete;
  NcclDevice& operator=(const NcclDevice&) = delete;

  [[nodiscard]] const NcclCalls& calls() const { return calls_; }
  [[nodiscard]] int ordinal() const { return ordinal_; }
  [[nodiscard]] cudaStream_t stream() const { return stream_; }
  /// Makes this device the calling thread's. THROWS: NcclFailure (all below).
  void enter() const;
  [[nodiscard]] bool try_enter() const noexcept;
  /// Whether values are on this device. Values on another device are refused; managed and pinned
  /// memory counts as the host's.
  [[nodiscard]] bool holds(const void* data) const;
  void copy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind) const;
  /// Work queued from now on begins after the event, a cudaEvent_t of this device.
  void wait_for(void* event) const;
  /// Whether the device has reached the event.
  [[nodiscard]] bool reached(void* event) const;
  /// Records the end event after all queued work.
  void mark() const;
  /// Whether the stream has reached the end event.
  [[nodiscard]] bool reached() const;
  /// Whether no work is unfinished; also true after an error, which ends all work.
  [[nodiscard]] bool idle() const noexcept;
  /// NCCL has not returned: from now on the device counts as never idle, and nothing is freed.
  void give_up() noexcept { given_up_ = true; }
  [[nodiscard]] bool given_up() const noexcept { return given_up_; }

 private:
  const NcclCalls& calls_;
  const int ordinal_;
  cudaStream_t stream_ = nullptr;
  cudaEvent_t end_ = nullptr;
  bool given_up_ = false;
};

/// One argument of a call as NCCL sees it: in place if it is on the device, else in device memory
/// with an equal amount of pinned host memory. Both grow and are kept.
class NcclStage {
 public:
  explicit NcclStage(const NcclDevice& device) : device_(device) {}
  ~NcclStage();
  NcclStage(const NcclStage&) = delete;
  NcclStage& operator=(const NcclStage&) = delete;

  /// An allocation may wait for all work on the device, so it is done before the ranks meet: work
  /// that runs then ends without them. `data` may be null: scratch. THROWS: NcclFailure (all
  /// below).
  void take(void* data, std::size_t bytes);
  [[nodiscard]] std::byte* on_device() const;
  /// Queues the copy of host values to the device.
  void fetch() const;
  /// Queues the copy back; deliver() completes it once the stream has reached it.
  void bring_back() const;
  void deliver() const;
  /// REQUIRES: taken as scratch. Holds the values after bring_back().
  [[nodiscard]] std::byte* pinned() const { return pinned_; }

 private:
  void release() noexcept;

  const NcclDevice& device_;
  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
  bool staged_ = false;
  std::byte* pinned_ = nullptr;
  std::byte* memory_ = nullptr;
  std::size_t room_ = 0;
};

}  // namespace isthmus
