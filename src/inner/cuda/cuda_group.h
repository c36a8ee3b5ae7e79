// SPDX-License-Identifier: Apache-2.0
// Collectives between ranks that are devices, from the thread of one rank: a Communicator whose
// values are in the rank's device memory. They use NCCL, or pinned host memory in pieces that are
// reduced in rank order as on the CPU.
//
// Every rank makes the same calls in the same order, each on its own thread with its device. All
// calls block until results are present. Work that writes the values must have completed, except
// for buckets. THROWS (every call): CommunicatorError naming rank and operation when another rank
// does not call, has failed or cannot be reached; DeviceLost when this rank's device has failed.
// The group must not be used afterwards.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>

#include "inner/cuda/cuda_peers.h"
#include "inner/model/tensor_parallel.h"
#include "kernels/cuda/device.h"
#include "transport/collectives/communicator.h"

namespace isthmus {

/// Makes a communicator for device memory from the communicator of a rank's thread; called on all
/// ranks concurrently.
using DeviceSums =
    std::function<std::unique_ptr<Communicator>(std::unique_ptr<Communicator> ranks, int device)>;

class CudaGroup {
 public:
  /// over: empty: through the host. Collective if not empty.
  CudaGroup(std::unique_ptr<Communicator> ranks, int device, const DeviceSums& over);

  [[nodiscard]] int rank() const { return ranks_->rank(); }
  [[nodiscard]] int size() const { return ranks_->size(); }

  /// Bytes of pinned host memory.
  [[nodiscard]] std::size_t pinned_bytes() const { return staged_.bytes(); }

  /// values (n,), of T float, double or Bf16 := their sums over the ranks, the same bits on all.
  template <typename T>
  void sum(T* values, std::int64_t n) {
    all_reduce({values, n, dtype_of<T>()});
  }
  /// Sums each bucket as `sum` does, once it is final. With NCCL the device waits for the events:
  /// all sums are queued at once, and the host waits for the last one.
  void sum(std::span<const CudaBucket> buckets);
  /// all (size, n) := every rank's `own` (n,).
  void gather(const double* own, std::int64_t n, double* all);

 private:
  void all_reduce(Values values);
  /// Runs a call of `ranks_`. THROWS: as above.
  template <typename Body>
  void over_ranks(const Body& body);

  const bool on_device_;
  const std::unique_ptr<Communicator> ranks_;
  cuda::PinnedArray<std::byte> staged_;
  cuda::Stream copies_;  // overlaps the work of other streams
};

}  // namespace isthmus
