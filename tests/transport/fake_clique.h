// SPDX-License-Identifier: Apache-2.0
// What the ranks of a fake NCCL communicator do together. Under fake_cuda_mutex().
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <tuple>
#include <utility>
#include <vector>

#include "transport/fake_cuda.h"

namespace isthmus::testing_support {

enum class FakeKind {
  kAllReduce,
  kReduce,
  kReduceScatter,
  kAllGather,
  kBroadcast,
  kSend,
  kReceive
};

struct FakeLaunch {
  FakeKind kind;
  const void* input;
  void* output;
  std::size_t count;
  ncclDataType_t type;
  ncclRedOp_t op;
  int root;  // or the other rank
  bool posted = false;
  bool done = false;

  [[nodiscard]] auto same() const { return std::tuple(kind, count, type, op, root); }
};
using FakeLaunches = std::vector<std::shared_ptr<FakeLaunch>>;

struct FakeMember;
struct FakeClique {
  std::vector<std::shared_ptr<FakeMember>> members;  // null: has not come yet
  bool broken = false;                               // a rank was aborted
  std::map<std::uint64_t, std::map<int, std::shared_ptr<FakeLaunch>>> collectives;
  std::map<std::pair<int, int>, std::deque<std::shared_ptr<FakeLaunch>>> sends;
  std::map<int, std::pair<int, int>> wishes;  // of a split: color, key by rank
};
struct FakeMember {
  std::shared_ptr<FakeClique> clique;
  int rank = 0;
  int device = 0;
  bool aborted = false;
  bool finalized = false;
  ncclResult_t error = ncclSuccess;
  int polls = 0;  // before the next state but "in progress"
  std::uint64_t collectives = 0;
  FakeLaunches waiting;  // grouped, not settled
  cudaStream_t stream = nullptr;
  ncclComm_t* split_off = nullptr;
  std::shared_ptr<FakeMember> child;
};

/// Goes on with a group of launches of a rank. RETURNS: whether all has been done, or never will
/// be.
bool progress(FakeMember& member, const FakeLaunches& launches, bool stalled);
/// All ranks have wished: gives each member its child.
void split_clique(FakeClique& clique);

}  // namespace isthmus::testing_support
