// SPDX-License-Identifier: Apache-2.0
// Shared by the back ends of a Communicator: the description of a call, by which ranks check that
// they make the same one, and the interface behind the checks of checked_communicator.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "transport/collectives/communicator.h"

namespace isthmus {

enum class Operation : std::uint8_t {
  kNothing,  // no call of the communicator
  kAllReduce,
  kReduceScatter,
  kAllGather,
  kBroadcast,
  kAllToAll,
  kBarrier,
  kSplit,
  kSend,
  kReceive,
  kGone,  // the communicator has been destroyed
};

/// The properties of a call on which all ranks must agree.
struct Call {
  Operation operation = Operation::kNothing;
  Dtype dtype = Dtype::kF32;
  Reduce reduce = Reduce::kSum;
  int root = 0;              // of a broadcast; the other rank of a message
  int tag = 0;               // of a message
  std::int64_t count = 0;    // over all ranks' shares; 0 if not all ranks know it
  std::uint64_t layout = 0;  // digest of the shares' counts

  bool operator==(const Call&) const = default;
};

[[nodiscard]] std::string_view operation_name(Operation operation);
/// "all_reduce (sum) of 10 f32", "send of 3 f32 to rank 1, tag 7".
[[nodiscard]] std::string describe(const Call& call);
[[nodiscard]] std::uint64_t layout_digest(std::span<const std::int64_t> counts);
[[nodiscard]] std::int64_t total(std::span<const std::int64_t> counts);
/// Values of the ranks before `rank`.
[[nodiscard]] std::int64_t place_of(std::span<const std::int64_t> counts, int rank);

/// One rank's end of a back end: the calls of Communicator with checked arguments, from one thread
/// at a time.
class CommunicatorBackend {
 public:
  virtual ~CommunicatorBackend() = default;
  [[nodiscard]] virtual int rank() const = 0;
  [[nodiscard]] virtual int size() const = 0;
  [[nodiscard]] virtual std::string_view name() const = 0;
  virtual void all_reduce(Values values, Reduce reduce) = 0;
  /// THROWS: CommunicatorError unless the back end is between devices.
  virtual void all_reduce_behind(std::span<const DeviceValues> sums);
  virtual void reduce_scatter(ConstValues input, std::span<const std::int64_t> counts,
                              Values output, Reduce reduce) = 0;
  virtual void all_gather(ConstValues input, std::span<const std::int64_t> counts,
                          Values output) = 0;
  virtual void broadcast(Values values, int root) = 0;
  virtual void all_to_all(ConstValues input, std::span<const std::int64_t> send_counts,
                          Values output, std::span<const std::int64_t> receive_counts,
                          std::int64_t of_all) = 0;
  virtual void send(ConstValues values, int to, int tag) = 0;
  virtual void receive(Values values, int from, int tag) = 0;
  virtual void barrier() = 0;
  [[nodiscard]] virtual std::unique_ptr<CommunicatorBackend> split(int color, int key) = 0;
  virtual void abort(const std::string& cause) noexcept = 0;
  [[nodiscard]] virtual std::string end_cause() = 0;
};

/// The calls that ranks compare, built from their arguments.
[[nodiscard]] Call all_reduce_call(const Values& values, Reduce reduce);
[[nodiscard]] Call all_reduce_behind_call(std::span<const DeviceValues> sums);
[[nodiscard]] Call reduce_scatter_call(Dtype dtype, std::span<const std::int64_t> counts,
                                       Reduce reduce);
[[nodiscard]] Call all_gather_call(Dtype dtype, std::span<const std::int64_t> counts);
[[nodiscard]] Call broadcast_call(const Values& values, int root);
[[nodiscard]] Call all_to_all_call(Dtype dtype, std::int64_t of_all);
/// kSend or kReceive, with the rank `other`.
[[nodiscard]] Call message_call(Operation operation, std::int64_t count, Dtype dtype, int other,
                                int tag);

}  // namespace isthmus
