// SPDX-License-Identifier: Apache-2.0
// Collectives and messages between the ranks inside a site (tensor, pipeline and data parallelism),
// one interface over threads of one process, MPI and NCCL.
//
// A communicator belongs to one rank; one thread drives it at a time. All ranks of a group call the
// same collectives in the same order with the same counts and dtypes.
// DETERMINISM: every element is reduced in rank order 0 .. size-1 in float (double for f64; a bf16
// result is rounded once), so all ranks hold the same bits and all_reduce equals reduce_scatter
// followed by all_gather, however values are cut into calls.
// THROWS (every call): CommunicatorError naming rank, operation, count and wait when the deadline
// passed, another rank has aborted or calls another operation or size. The group has then ended:
// all its ranks, and the groups split from it, get the same cause, and later calls fail with it at
// once. The values of a call that has thrown are unspecified; nobody touches them any more.
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
enum class Reduce { kSum, kMax };  // kMax: NaN if a value is

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

/// Values on the rank's device that are complete once `ready`, a cudaEvent_t of that device, is
/// reached.
struct DeviceValues {
  Values values;
  void* ready = nullptr;
};

class CommunicatorError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// An operation that has been started. Destroying one that is not done waits for it.
class Work {
 public:
  virtual ~Work() = default;
  [[nodiscard]] virtual bool done() const = 0;
  /// Blocks until the operation has ended; throws what it has thrown, once.
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
  /// Each one's values := their sum over all ranks, one after another, on the device, behind its
  /// event: the host queues all of them and waits for the last. The events are recorded already;
  /// the work before them may take as long as it does, the sums after it as long as the deadline.
  /// Communicators between devices alone; others throw. THROWS: as all_reduce.
  virtual void all_reduce_behind(std::span<const DeviceValues> sums);
  /// counts: (size,) values of each rank's share; input holds them one after another, output the
  /// caller's share. input and output may overlap only where output is that very share of input.
  virtual void reduce_scatter(ConstValues input, std::span<const std::int64_t> counts,
                              Values output, Reduce reduce) = 0;
  /// The inverse: output (sum of counts) holds every rank's share one after another.
  virtual void all_gather(ConstValues input, std::span<const std::int64_t> counts,
                          Values output) = 0;
  virtual void broadcast(Values values, int root) = 0;
  /// Rank r's share `send_counts[i]` of input goes to rank i, which puts it after those of lower
  /// ranks. of_all: values that all ranks give together, where all know it (then they must agree,
  /// and a mixed communicator goes by it); else 0.
  virtual void all_to_all(ConstValues input, std::span<const std::int64_t> send_counts,
                          Values output, std::span<const std::int64_t> receive_counts,
                          std::int64_t of_all) = 0;
  /// Messages from one rank to another arrive in order by tag. `send` does not wait for the
  /// receiver: values that nobody receives yet are copied. A rank sends nothing to itself.
  virtual void send(ConstValues values, int to, int tag) = 0;
  virtual void receive(Values values, int from, int tag) = 0;
  virtual void barrier() = 0;

  /// Runs `operation` (calls of the communicator handed to it, which stands for this one) behind
  /// those already started, on a thread of this communicator, without blocking the caller. Blocking
  /// calls wait for what was started before them, so a started receive holds up all behind it until
  /// its message is there: give it a communicator of its own (split) where that would be a circle.
  [[nodiscard]] virtual std::unique_ptr<Work> start(
      std::function<void(Communicator&)> operation) = 0;

  /// The ranks with the same color, ordered by (key, rank); collective.
  [[nodiscard]] virtual std::unique_ptr<Communicator> split(int color, int key) = 0;

  /// All calls of all ranks of this group and of those split from it end with CommunicatorError
  /// naming `cause`; does not block.
  virtual void abort(const std::string& cause) noexcept = 0;
  /// Why the group has ended, as far as this rank has heard; empty while it lives. Any thread may
  /// ask; does not block.
  [[nodiscard]] virtual std::string end_cause() = 0;
};

}  // namespace isthmus
