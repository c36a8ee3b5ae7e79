// SPDX-License-Identifier: Apache-2.0
// Collectives and messages between the ranks inside a site (tensor, pipeline and data parallelism):
// one interface over threads of one process, MPI and NCCL.
//
// A communicator belongs to one rank; one thread drives it at a time. All ranks of a group call the
// same collectives in the same order with the same counts and dtypes.
// DETERMINISM: every element is reduced in rank order 0 .. size-1 in float (double for f64; a bf16
// result is rounded once), so all ranks hold the same bits and all_reduce equals reduce_scatter
// followed by all_gather, however values are cut into calls.
// THROWS (every call): CommunicatorError naming rank, operation, count and wait when the deadline
// has passed, or another rank has aborted or calls another operation or size. The group has then
// ended: all its ranks, and the groups split from it, get the same cause, and later calls fail with
// it at once. The values of a call that has thrown are unspecified; no rank accesses them any more.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>

namespace isthmus {

enum class Dtype { kF32, kF64, kBf16, kU8, kI32, kI64 };
enum class Reduce { kSum, kMax };  // kMax: NaN if any value is NaN

/// Bytes of one value.
[[nodiscard]] std::size_t dtype_bytes(Dtype dtype);
/// "f32", "f64", "bf16", "u8", "i32", "i64".
[[nodiscard]] std::string_view dtype_name(Dtype dtype);

/// `count` values of a dtype, borrowed for the length of the call.
struct Values {
  void* data = nullptr;
  std::int64_t count = 0;
  Dtype dtype = Dtype::kF32;
};
struct ConstValues {
  const void* data = nullptr;
  std::int64_t count = 0;
  Dtype dtype = Dtype::kF32;
};

/// Values on the rank's device; complete once `ready`, a cudaEvent_t of that device, is reached.
struct DeviceValues {
  Values values;
  void* ready = nullptr;
};

class CommunicatorError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// A started operation. The destructor waits for it.
class Work {
 public:
  virtual ~Work() = default;
  [[nodiscard]] virtual bool done() const = 0;
  /// Blocks until the operation has ended; throws its exception, once.
  virtual void wait() = 0;
};

class Communicator {
 public:
  virtual ~Communicator() = default;
  [[nodiscard]] virtual int rank() const = 0;
  [[nodiscard]] virtual int size() const = 0;
  [[nodiscard]] virtual std::string_view backend() const = 0;  // "threads", "mpi", "nccl", "self"

  /// values := reduction over all ranks. f32, f64, bf16, i32, i64.
  virtual void all_reduce(Values values, Reduce reduce) = 0;
  /// Each entry's values := their sum over all ranks, in order, on the device, after the entry's
  /// event: the host queues all sums and waits for the last. The events are already recorded. The
  /// work before an event may take any time; the sum after it has the deadline. Only communicators
  /// between devices; others throw. THROWS: as all_reduce.
  virtual void all_reduce_behind(std::span<const DeviceValues> sums);
  /// counts: (size,) values of each rank's share; input holds all shares one after another, output
  /// the caller's share. input and output may overlap only if output is exactly that share of
  /// input.
  virtual void reduce_scatter(ConstValues input, std::span<const std::int64_t> counts,
                              Values output, Reduce reduce) = 0;
  /// The inverse: output (sum of counts) holds every rank's share one after another.
  virtual void all_gather(ConstValues input, std::span<const std::int64_t> counts,
                          Values output) = 0;
  virtual void broadcast(Values values, int root) = 0;
  /// Rank r's share `send_counts[i]` of input goes to rank i, which places it after those of lower
  /// ranks. of_all: the values that all ranks send together, if all ranks know it (then it must be
  /// equal, and a mixed communicator chooses by it); else 0.
  virtual void all_to_all(ConstValues input, std::span<const std::int64_t> send_counts,
                          Values output, std::span<const std::int64_t> receive_counts,
                          std::int64_t of_all) = 0;
  /// Messages from one rank to another arrive in order by tag. `send` does not wait for the
  /// receiver: values without a receiver are copied. A rank sends nothing to itself.
  virtual void send(ConstValues values, int to, int tag) = 0;
  virtual void receive(Values values, int from, int tag) = 0;
  virtual void barrier() = 0;

  /// Runs `operation` after those already started, on a thread of this communicator, without
  /// blocking the caller; `operation` calls the communicator passed to it. Blocking calls wait for
  /// everything started before them, so a started receive blocks all later calls until its message
  /// arrives: use a second communicator (split) if that would be a deadlock.
  [[nodiscard]] virtual std::unique_ptr<Work> start(
      std::function<void(Communicator&)> operation) = 0;

  /// The ranks with the same color, ordered by (key, rank); collective.
  [[nodiscard]] virtual std::unique_ptr<Communicator> split(int color, int key) = 0;

  /// All calls of all ranks of this group and of those split from it end with CommunicatorError
  /// naming `cause`; does not block.
  virtual void abort(const std::string& cause) noexcept = 0;
  /// Why the group has ended, as far as this rank knows; empty while it lives. Any thread; does not
  /// block.
  [[nodiscard]] virtual std::string end_cause() = 0;
};

}  // namespace isthmus
