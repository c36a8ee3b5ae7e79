// SPDX-License-Identifier: Apache-2.0
#include "transport/fake_clique.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "transport/collectives/rank_order.h"

namespace isthmus::testing_support {
namespace {

Dtype dtype_of(ncclDataType_t type) {
  switch (type) {
    case ncclFloat32:
      return Dtype::kF32;
    case ncclFloat64:
      return Dtype::kF64;
    case ncclBfloat16:
      return Dtype::kBf16;
    case ncclInt32:
      return Dtype::kI32;
    case ncclInt64:
      return Dtype::kI64;
    default:
      EXPECT_EQ(type, ncclUint8);
      return Dtype::kU8;
  }
}

/// All ranks have come: does it for all of them.
void execute(FakeClique& clique, const std::map<int, std::shared_ptr<FakeLaunch>>& ranks) {
  const FakeLaunch& first = *ranks.at(0);
  const Dtype dtype = dtype_of(first.type);
  const std::size_t bytes = first.count * dtype_bytes(dtype);
  const std::size_t size = ranks.size();
  const bool reads_all = first.kind == FakeKind::kReduceScatter;
  const bool writes_all = first.kind == FakeKind::kAllGather;
  std::vector<const void*> inputs;
  for (const auto& [rank, launch] : ranks) {
    EXPECT_EQ(launch->same(), first.same()) << "ranks 0 and " << rank << " call unlike things";
    const int device = clique.members[static_cast<std::size_t>(rank)]->device;
    if (first.kind != FakeKind::kBroadcast || rank == first.root) {
      expect_fake_memory(launch->input, reads_all ? bytes * size : bytes, device);
    }
    if (first.kind != FakeKind::kReduce || rank == first.root) {
      expect_fake_memory(launch->output, writes_all ? bytes * size : bytes, device);
    }
    inputs.push_back(launch->input);
  }
  const bool real = dtype == Dtype::kF32 || dtype == Dtype::kF64 || dtype == Dtype::kBf16;
  EXPECT_FALSE(real && first.op == ncclMax) << "NCCL's maximum drops NaN";
  std::vector<std::byte> result(bytes * size);
  void* const to = result.data();
  const auto reduce = [&](std::size_t count) {
    reduce_in_rank_order(dtype, first.op == ncclSum ? Reduce::kSum : Reduce::kMax, inputs,
                         static_cast<std::int64_t>(count), {&to, 1});
  };
  if (first.kind == FakeKind::kBroadcast) {
    std::memcpy(to, inputs[static_cast<std::size_t>(first.root)], bytes);
  } else if (first.kind == FakeKind::kAllGather) {
    for (std::size_t r = 0; r < size; ++r) std::memcpy(&result[r * bytes], inputs[r], bytes);
  } else {
    reduce(reads_all ? first.count * size : first.count);
  }
  for (const auto& [rank, launch] : ranks) {
    const std::size_t own = reads_all ? static_cast<std::size_t>(rank) * bytes : 0;
    if (first.kind != FakeKind::kReduce || rank == first.root) {
      std::memcpy(launch->output, &result[own], writes_all ? bytes * size : bytes);
    }
    launch->done = true;
  }
}

void receive_one(FakeClique& clique, int rank, FakeLaunch& launch) {
  auto& sent = clique.sends[{launch.root, rank}];
  if (sent.empty()) return;
  FakeLaunch& from = *sent.front();
  EXPECT_EQ(std::tuple(from.count, from.type), std::tuple(launch.count, launch.type));
  const std::size_t bytes = launch.count * dtype_bytes(dtype_of(launch.type));
  expect_fake_memory(from.input, bytes,
                     clique.members[static_cast<std::size_t>(launch.root)]->device);
  expect_fake_memory(launch.output, bytes, clique.members[static_cast<std::size_t>(rank)]->device);
  std::memcpy(launch.output, from.input, bytes);
  from.done = launch.done = true;
  sent.pop_front();
}

}  // namespace

bool progress(FakeMember& member, const FakeLaunches& launches, bool stalled) {
  if (member.aborted) return true;
  FakeClique& clique = *member.clique;
  if (clique.broken || stalled) return false;
  for (const std::shared_ptr<FakeLaunch>& each : launches) {
    if (!std::exchange(each->posted, true)) {
      if (each->kind == FakeKind::kSend) {
        clique.sends[{member.rank, each->root}].push_back(each);
      } else if (each->kind != FakeKind::kReceive) {
        const std::uint64_t number = member.collectives++;
        auto& ranks = clique.collectives[number];
        ranks[member.rank] = each;
        if (ranks.size() == clique.members.size()) {
          execute(clique, ranks);
          clique.collectives.erase(number);
        }
      }
    }
    if (each->kind == FakeKind::kReceive && !each->done) receive_one(clique, member.rank, *each);
  }
  return std::all_of(launches.begin(), launches.end(), [](const auto& each) { return each->done; });
}

void split_clique(FakeClique& clique) {
  std::map<int, std::vector<std::pair<int, int>>> colors;  // key, rank
  for (const auto& [rank, wish] : clique.wishes) colors[wish.first].emplace_back(wish.second, rank);
  for (auto& [color, ranks] : colors) {
    std::sort(ranks.begin(), ranks.end());
    const auto made = std::make_shared<FakeClique>();
    for (const auto& [key, rank] : ranks) {
      FakeMember& parent = *clique.members[static_cast<std::size_t>(rank)];
      parent.child = std::make_shared<FakeMember>();
      parent.child->clique = made;
      parent.child->rank = static_cast<int>(made->members.size());
      parent.child->device = parent.device;
      made->members.push_back(parent.child);
    }
  }
  clique.wishes.clear();
}

}  // namespace isthmus::testing_support
