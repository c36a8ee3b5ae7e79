// SPDX-License-Identifier: Apache-2.0
#include "transport/collectives/communicator_call.h"

#include <fmt/format.h>

#include <vector>

namespace isthmus {

void Communicator::all_reduce_behind(std::span<const DeviceValues>) {
  throw CommunicatorError(fmt::format(
      "rank {} of {}: sums behind events are of communicators between devices, not of \"{}\"",
      rank(), size(), backend()));
}

void CommunicatorBackend::all_reduce_behind(std::span<const DeviceValues>) {
  throw CommunicatorError(fmt::format(
      "rank {} of {}: sums behind events are of communicators between devices, not of \"{}\"",
      rank(), size(), name()));
}

std::size_t dtype_bytes(Dtype dtype) {
  switch (dtype) {
    case Dtype::kU8:
      return 1;
    case Dtype::kBf16:
      return 2;
    case Dtype::kF32:
    case Dtype::kI32:
      return 4;
    default:
      return 8;
  }
}

std::string_view dtype_name(Dtype dtype) {
  constexpr std::string_view kNames[] = {"f32", "f64", "bf16", "u8", "i32", "i64"};
  return kNames[static_cast<std::size_t>(dtype)];
}

std::string_view operation_name(Operation operation) {
  constexpr std::string_view kNames[] = {
      "no call", "all_reduce", "reduce_scatter", "all_gather", "broadcast", "all_to_all",
      "barrier", "split",      "send",           "receive",    "gone"};
  return kNames[static_cast<std::size_t>(operation)];
}

std::string describe(const Call& call) {
  const std::string_view name = operation_name(call.operation);
  const std::string values = fmt::format("{} {}", call.count, dtype_name(call.dtype));
  switch (call.operation) {
    case Operation::kAllReduce:
    case Operation::kReduceScatter:
      return fmt::format("{} ({}) of {}", name, call.reduce == Reduce::kSum ? "sum" : "max",
                         values);
    case Operation::kAllGather:
      return fmt::format("{} of {}", name, values);
    case Operation::kAllToAll:
      if (call.count != 0) return fmt::format("{} of {}", name, values);
      return fmt::format("{} of {}", name, dtype_name(call.dtype));
    case Operation::kBroadcast:
      return fmt::format("{} of {} from rank {}", name, values, call.root);
    case Operation::kSend:
      return fmt::format("{} of {} to rank {}, tag {}", name, values, call.root, call.tag);
    case Operation::kReceive:
      return fmt::format("{} of {} from rank {}, tag {}", name, values, call.root, call.tag);
    default:
      return std::string(name);
  }
}

std::uint64_t layout_digest(std::span<const std::int64_t> counts) {
  std::uint64_t digest = 0xcbf29ce484222325;
  for (const std::int64_t count : counts) {
    digest = (digest ^ static_cast<std::uint64_t>(count)) * 0x100000001b3;
    digest ^= digest >> 29;
  }
  return digest;
}

std::int64_t total(std::span<const std::int64_t> counts) {
  return place_of(counts, static_cast<int>(counts.size()));
}

std::int64_t place_of(std::span<const std::int64_t> counts, int rank) {
  std::int64_t place = 0;
  for (int before = 0; before < rank; ++before) place += counts[static_cast<std::size_t>(before)];
  return place;
}

Call all_reduce_call(const Values& values, Reduce reduce) {
  return {.operation = Operation::kAllReduce,
          .dtype = values.dtype,
          .reduce = reduce,
          .count = values.count};
}

Call all_reduce_behind_call(std::span<const DeviceValues> sums) {
  std::vector<std::int64_t> counts;
  for (const DeviceValues& each : sums) counts.push_back(each.values.count);
  Call call = all_reduce_call(
      {nullptr, total(counts), sums.empty() ? Dtype::kF32 : sums[0].values.dtype}, Reduce::kSum);
  call.layout = layout_digest(counts);
  return call;
}

Call reduce_scatter_call(Dtype dtype, std::span<const std::int64_t> counts, Reduce reduce) {
  return {.operation = Operation::kReduceScatter,
          .dtype = dtype,
          .reduce = reduce,
          .count = total(counts),
          .layout = layout_digest(counts)};
}

Call all_gather_call(Dtype dtype, std::span<const std::int64_t> counts) {
  Call call = reduce_scatter_call(dtype, counts, Reduce::kSum);
  call.operation = Operation::kAllGather;
  return call;
}

Call broadcast_call(const Values& values, int root) {
  return {.operation = Operation::kBroadcast,
          .dtype = values.dtype,
          .root = root,
          .count = values.count};
}

Call all_to_all_call(Dtype dtype, std::int64_t of_all) {
  return {.operation = Operation::kAllToAll, .dtype = dtype, .count = of_all};
}

Call message_call(Operation operation, std::int64_t count, Dtype dtype, int other, int tag) {
  return {.operation = operation, .dtype = dtype, .root = other, .tag = tag, .count = count};
}

}  // namespace isthmus
