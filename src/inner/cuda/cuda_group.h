// SPDX-License-Identifier: Apache-2.0
// Ranks that are devices, as the thread of one of them sees them: what a Communicator does, with
// values in the rank's device memory. They go over NCCL, or by way of pinned memory of the host, in
// pieces that are reduced in rank order as on the CPU.
//
// Every rank makes the same calls in the same order, each on a thread of its own with its device.
// All calls block until results are there. What writes the values must have ended, but for buckets.
// THROWS (every call): CommunicatorError naming rank and operation where another rank does not
// come, has failed or cannot be reached, DeviceLost where this rank's device has failed; the group
// has then ended.
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

/// Makes of the communicator of a rank's thread one that reads and writes its device's memory;
/// called on all ranks side by side.
using DeviceSums =
    std::function<std::unique_ptr<Communicator>(std::unique_ptr<Communicator> ranks, int device)>;

class CudaGroup {
 public:
  /// over: empty: by way of the host. Collective where it is not.
  CudaGroup(std::unique_ptr<Communicator> ranks, int device, const DeviceSums& over);

  [[nodiscard]] int rank() const { return ranks_->rank(); }
  [[nodiscard]] int size() const { return ranks_->size(); }

  /// Of the host.
  [[nodiscard]] std::size_t pinned_bytes() const { return staged_.bytes(); }

  /// values (n,), of T float, double or Bf16 := their sums over the ranks, the same bits on all.
  template <typename T>
  void sum(T* values, std::int64_t n) {
    all_reduce({values, n, dtype_of<T>()});
  }
  /// Each bucket as by `sum`, once it is final. Over NCCL the device waits for the events: all sums
  /// are queued at once, and the host waits for the last one.
  void sum(std::span<const CudaBucket> buckets);
  /// all (size, n) := every rank's `own` (n,).
  void gather(const double* own, std::int64_t n, double* all);

 private:
  void all_reduce(Values values);
  /// A call of `ranks_`. THROWS: as above.
  template <typename Body>
  void over_ranks(const Body& body);

  const bool on_device_;
  const std::unique_ptr<Communicator> ranks_;
  cuda::PinnedArray<std::byte> staged_;
  cuda::Stream copies_;  // beside the work of other streams
};

}  // namespace isthmus
