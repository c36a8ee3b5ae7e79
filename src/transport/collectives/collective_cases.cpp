// SPDX-License-Identifier: Apache-2.0
#include "transport/collectives/collective_cases.h"

namespace isthmus {
namespace {

constexpr std::int64_t kCaseValue = 4;  // bytes

}  // namespace

CollectiveRoom::CollectiveRoom(int ranks, int rank, std::int64_t largest_bytes)
    : ranks_(ranks),
      rank_(rank),
      values_(static_cast<std::size_t>(largest_bytes / kCaseValue), 0.0f),
      room_(values_.size(), 0.0f) {}

std::vector<CollectiveCase> CollectiveRoom::cases(std::int64_t bytes) {
  const std::int64_t n = ranks_;
  const std::int64_t count = bytes / kCaseValue;
  shares_.clear();
  for (std::int64_t rank = 0; rank < n; ++rank) {
    shares_.push_back(count * (rank + 1) / n - count * rank / n);
  }
  given_.assign(shares_.size(), count / n);
  const ConstValues whole{values_.data(), count, Dtype::kF32};
  const Values all{values_.data(), count, Dtype::kF32};
  const Values part{room_.data(), shares_[static_cast<std::size_t>(rank_)], Dtype::kF32};
  const std::int64_t exchanged = count / n * n;
  const int next = static_cast<int>((rank_ + 1) % n);
  const int previous = static_cast<int>((rank_ + n - 1) % n);
  return {
      {Operation::kAllReduce, 2 * n * bytes,
       [all](Communicator& on) { on.all_reduce(all, Reduce::kSum); }},
      {Operation::kReduceScatter, (n + 1) * bytes,
       [this, whole, part](Communicator& on) {
         on.reduce_scatter(whole, shares_, part, Reduce::kSum);
       }},
      {Operation::kAllGather, 2 * n * bytes,
       [this, all, part](Communicator& on) {
         on.all_gather({part.data, part.count, part.dtype}, shares_, all);
       }},
      {Operation::kBroadcast, 2 * (n - 1) * bytes,
       [all](Communicator& on) { on.broadcast(all, 0); }},
      {Operation::kAllToAll, 2 * n * exchanged * kCaseValue,
       [this, n, exchanged](Communicator& on) {
         on.all_to_all({values_.data(), exchanged, Dtype::kF32}, given_,
                       {room_.data(), exchanged, Dtype::kF32}, given_, n * exchanged);
       }},
      {Operation::kSend, 2 * n * bytes,
       [this, whole, count, next, previous, n](Communicator& on) {
         if (n == 1) return;
         on.send(whole, next, 0);
         on.receive({room_.data(), count, Dtype::kF32}, previous, 0);
       }},
  };
}

}  // namespace isthmus
