// SPDX-License-Identifier: Apache-2.0
// The CUDA side of one communicator between GPUs: a stream of the highest priority, since a sum's
// few thread blocks would wait behind those of the pass beside it, its end event, and staging for
// values that lie in the host's memory. One thread at a time uses it, after enter().
//
// NCCL and copies only ever touch staging memory or values on the device; values of the host are
// copied into and out of pinned memory by the calling thread. So a call that ends early leaves
// nothing behind that knows memory of the host.
#pragma once

#include <cstddef>

#include "transport/collectives/nccl_calls.h"

namespace isthmus {

class NcclDevice {
 public:
  /// THROWS: NcclFailure when there is no such device, or CUDA refuses.
  NcclDevice(const NcclCalls& calls, int ordinal);
  /// What is still under way keeps stream and memory for good.
  ~NcclDevice();
  NcclDevice(const NcclDevice&) = delete;
  NcclDevice& operator=(const NcclDevice&) = delete;

  [[nodiscard]] const NcclCalls& calls() const { return calls_; }
  [[nodiscard]] int ordinal() const { return ordinal_; }
  [[nodiscard]] cudaStream_t stream() const { return stream_; }
  /// Makes this the calling thread's device. THROWS: NcclFailure (all below).
  void enter() const;
  [[nodiscard]] bool try_enter() const noexcept;
  /// Whether values lie on this device. Those of another one are refused; managed and pinned memory
  /// counts as the host's.
  [[nodiscard]] bool holds(const void* data) const;
  void copy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind) const;
  /// What is queued from now on begins after the event, a cudaEvent_t of this device.
  void wait_for(void* event) const;
  /// Whether the device has come to that event.
  [[nodiscard]] bool reached(void* event) const;
  /// Records the end event behind all that has been queued.
  void mark() const;
  /// Whether the stream has come to the end event.
  [[nodiscard]] bool reached() const;
  /// Whether nothing is under way; also after an error, which ends everything.
  [[nodiscard]] bool idle() const noexcept;
  /// NCCL has not let go: from now on the device counts as never idle, and nothing is freed.
  void give_up() noexcept { given_up_ = true; }
  [[nodiscard]] bool given_up() const noexcept { return given_up_; }

 private:
  const NcclCalls& calls_;
  const int ordinal_;
  cudaStream_t stream_ = nullptr;
  cudaEvent_t end_ = nullptr;
  bool given_up_ = false;
};

/// One argument of a call as NCCL sees it: where it lies when that is the device, else in memory
/// of the device that goes with as much pinned memory of the host. Both grow and are kept.
class NcclStage {
 public:
  explicit NcclStage(const NcclDevice& device) : device_(device) {}
  ~NcclStage();
  NcclStage(const NcclStage&) = delete;
  NcclStage& operator=(const NcclStage&) = delete;

  /// Allocating may wait for all that runs on the device, so it is done before the ranks meet: what
  /// runs then ends without them. `data` may be null: scratch. THROWS: NcclFailure (all below).
  void take(void* data, std::size_t bytes);
  [[nodiscard]] std::byte* on_device() const;
  /// Queues the way of host values to the device.
  void fetch() const;
  /// Queues the way back; deliver() ends it once the stream has come there.
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
