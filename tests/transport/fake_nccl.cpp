// SPDX-License-Identifier: Apache-2.0
#include "transport/fake_nccl.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "transport/fake_clique.h"

struct ncclComm {
  std::shared_ptr<isthmus::testing_support::FakeMember> member;
};

namespace isthmus::testing_support {
namespace {

struct State {
  std::uint64_t ids = 0;
  std::map<std::uint64_t, std::shared_ptr<FakeClique>> joining;
  std::set<ncclComm_t> live;
  std::set<int> stalled;
  std::set<int> broken;
  bool held = false;  // aborts
};
State& state() {  // under fake_cuda_mutex()
  static State the;
  return the;
}

std::condition_variable& release() {
  static std::condition_variable the;
  return the;
}

thread_local int depth = 0;
thread_local std::vector<std::tuple<ncclComm_t, cudaStream_t, FakeLaunch>> grouped;

bool alive(ncclComm_t comm) {
  const bool known = state().live.contains(comm);
  EXPECT_TRUE(known) << "a communicator that is gone";
  return known;
}

ncclComm_t handle_of(std::shared_ptr<FakeMember> member) {
  auto* comm = new ncclComm{std::move(member)};
  state().live.insert(comm);
  return comm;
}

void settle_launches(const std::shared_ptr<FakeMember>& member) {
  if (member->waiting.empty()) return;
  queue_on_fake_stream(member->stream, [member, launches = std::exchange(member->waiting, {})] {
    const bool stalled = state().stalled.contains(member->device);
    return progress(*member, launches, stalled);
  });
}

ncclResult_t get_version(int* version) {
  *version = NCCL_VERSION_CODE;
  return ncclSuccess;
}

ncclResult_t get_unique_id(ncclUniqueId* id) {
  const std::scoped_lock lock(fake_cuda_mutex());
  *id = {};
  const std::uint64_t number = ++state().ids;
  std::memcpy(id->internal, &number, sizeof number);
  return ncclSuccess;
}

void expect_own_config(const ncclConfig_t* config) {
  ASSERT_NE(config, nullptr);
  EXPECT_EQ(config->magic, 0xcafebeefU);
  EXPECT_EQ(config->blocking, 0);
  EXPECT_EQ(config->splitShare, 0);
}

ncclResult_t comm_init_rank(ncclComm_t* comm, int size, ncclUniqueId id, int rank,
                            ncclConfig_t* config) {
  const std::scoped_lock lock(fake_cuda_mutex());
  expect_own_config(config);
  std::uint64_t number = 0;
  std::memcpy(&number, id.internal, sizeof number);
  std::shared_ptr<FakeClique>& clique = state().joining[number];
  if (!clique) clique = std::make_shared<FakeClique>();
  clique->members.resize(static_cast<std::size_t>(size));
  auto member = std::make_shared<FakeMember>();
  member->clique = clique;
  member->rank = rank;
  member->device = fake_current_device();
  for (const auto& other : clique->members) {
    if (other && other->device == member->device) member->error = ncclInvalidUsage;
  }
  clique->members[static_cast<std::size_t>(rank)] = member;
  *comm = handle_of(std::move(member));
  return ncclInProgress;
}

ncclResult_t comm_split(ncclComm_t comm, int color, int key, ncclComm_t* child,
                        ncclConfig_t* config) {
  const std::scoped_lock lock(fake_cuda_mutex());
  if (!alive(comm)) return ncclInvalidArgument;
  expect_own_config(config);
  EXPECT_GE(color, 0);
  FakeMember& member = *comm->member;
  member.split_off = child;
  member.polls = 2;
  FakeClique& clique = *member.clique;
  clique.wishes[member.rank] = {color, key};
  if (clique.wishes.size() == clique.members.size()) split_clique(clique);
  return ncclInProgress;
}

ncclResult_t state_of(const std::shared_ptr<FakeMember>& member) {
  if (member->error != ncclSuccess) return member->error;
  if (state().broken.erase(member->device) != 0) return ncclRemoteError;
  const auto& members = member->clique->members;
  if (std::find(members.begin(), members.end(), nullptr) != members.end()) return ncclInProgress;
  if (member->polls > 0 && --member->polls > 0) return ncclInProgress;
  if (member->finalized && !std::all_of(members.begin(), members.end(), [](const auto& each) {
        return each->finalized || each->aborted;
      })) {
    return ncclInProgress;
  }
  settle_launches(member);
  if (member->split_off != nullptr) {
    if (!member->child || state().stalled.contains(member->device)) return ncclInProgress;
    *std::exchange(member->split_off, nullptr) = handle_of(std::exchange(member->child, nullptr));
  }
  return ncclSuccess;
}

ncclResult_t comm_get_async_error(ncclComm_t comm, ncclResult_t* result) {
  const std::scoped_lock lock(fake_cuda_mutex());
  if (!alive(comm)) return ncclInvalidArgument;
  *result = state_of(comm->member);
  return ncclSuccess;
}

ncclResult_t comm_finalize(ncclComm_t comm) {
  const std::scoped_lock lock(fake_cuda_mutex());
  if (!alive(comm)) return ncclInvalidArgument;
  comm->member->finalized = true;
  comm->member->polls = 2;
  return ncclInProgress;
}

ncclResult_t comm_destroy(ncclComm_t comm) {
  const std::scoped_lock lock(fake_cuda_mutex());
  if (!alive(comm)) return ncclInvalidArgument;
  EXPECT_TRUE(comm->member->finalized);
  state().live.erase(comm);
  delete comm;
  return ncclSuccess;
}

ncclResult_t comm_abort(ncclComm_t comm) {
  std::unique_lock lock(fake_cuda_mutex());
  release().wait(lock, [] { return !state().held; });
  if (!alive(comm)) return ncclInvalidArgument;
  comm->member->aborted = true;
  comm->member->clique->broken = true;
  comm->member->waiting.clear();
  state().live.erase(comm);
  delete comm;
  return ncclSuccess;
}

const char* get_error_string(ncclResult_t) { return "the fake has failed"; }
const char* get_last_error(ncclComm_t) { return "the cable is out"; }

ncclResult_t group_start() {
  ++depth;
  return ncclSuccess;
}

ncclResult_t group_end() {
  EXPECT_GT(depth, 0);
  if (--depth > 0 || grouped.empty()) return ncclSuccess;
  const std::scoped_lock lock(fake_cuda_mutex());
  for (const auto& [comm, stream, launch] : std::exchange(grouped, {})) {
    if (!alive(comm)) return ncclInvalidArgument;
    FakeMember& member = *comm->member;
    EXPECT_EQ(fake_stream_device(stream), member.device);
    member.stream = stream;
    member.polls = 3;
    member.waiting.push_back(std::make_shared<FakeLaunch>(launch));
  }
  return ncclInProgress;
}

ncclResult_t add(ncclComm_t comm, cudaStream_t stream, FakeLaunch launch) {
  (void)group_start();
  grouped.emplace_back(comm, stream, launch);
  return group_end();
}

ncclResult_t all_reduce(const void* input, void* output, std::size_t count, ncclDataType_t type,
                        ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
  return add(comm, stream, {FakeKind::kAllReduce, input, output, count, type, op, 0});
}
ncclResult_t reduce(const void* input, void* output, std::size_t count, ncclDataType_t type,
                    ncclRedOp_t op, int root, ncclComm_t comm, cudaStream_t stream) {
  return add(comm, stream, {FakeKind::kReduce, input, output, count, type, op, root});
}
ncclResult_t reduce_scatter(const void* input, void* output, std::size_t count, ncclDataType_t type,
                            ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
  return add(comm, stream, {FakeKind::kReduceScatter, input, output, count, type, op, 0});
}
ncclResult_t all_gather(const void* input, void* output, std::size_t count, ncclDataType_t type,
                        ncclComm_t comm, cudaStream_t stream) {
  return add(comm, stream, {FakeKind::kAllGather, input, output, count, type, ncclSum, 0});
}
ncclResult_t broadcast(const void* input, void* output, std::size_t count, ncclDataType_t type,
                       int root, ncclComm_t comm, cudaStream_t stream) {
  return add(comm, stream, {FakeKind::kBroadcast, input, output, count, type, ncclSum, root});
}
ncclResult_t send(const void* input, std::size_t count, ncclDataType_t type, int peer,
                  ncclComm_t comm, cudaStream_t stream) {
  return add(comm, stream, {FakeKind::kSend, input, nullptr, count, type, ncclSum, peer});
}
ncclResult_t receive(void* output, std::size_t count, ncclDataType_t type, int peer,
                     ncclComm_t comm, cudaStream_t stream) {
  return add(comm, stream, {FakeKind::kReceive, nullptr, output, count, type, ncclSum, peer});
}

}  // namespace

const NcclCalls& fake_nccl() {
  static const NcclCalls calls = [] {
    NcclCalls made = fake_cuda();
    made.get_version = &get_version;
    made.get_unique_id = &get_unique_id;
    made.comm_init_rank = &comm_init_rank;
    made.comm_split = &comm_split;
    made.comm_finalize = &comm_finalize;
    made.comm_destroy = &comm_destroy;
    made.comm_abort = &comm_abort;
    made.comm_get_async_error = &comm_get_async_error;
    made.get_error_string = &get_error_string;
    made.get_last_error = &get_last_error;
    made.group_start = &group_start;
    made.group_end = &group_end;
    made.all_reduce = &all_reduce;
    made.reduce = &reduce;
    made.reduce_scatter = &reduce_scatter;
    made.all_gather = &all_gather;
    made.broadcast = &broadcast;
    made.send = &send;
    made.receive = &receive;
    return made;
  }();
  return calls;
}

void expect_fake_nccl_clean() {
  expect_fake_cuda_clean();
  const std::scoped_lock lock(fake_cuda_mutex());
  EXPECT_EQ(state().live.size(), 0u) << "communicators";
  state() = {};
}

void stall_fake_device(int device, bool stalled) {
  const std::scoped_lock lock(fake_cuda_mutex());
  if (stalled) {
    state().stalled.insert(device);
  } else {
    state().stalled.erase(device);
  }
}

void break_fake_device(int device) {
  const std::scoped_lock lock(fake_cuda_mutex());
  state().broken.insert(device);
}

void hold_fake_aborts() {
  const std::scoped_lock lock(fake_cuda_mutex());
  state().held = true;
}

int release_fake_aborts() {
  std::unique_lock lock(fake_cuda_mutex());
  const auto held = static_cast<int>(state().live.size());
  state().held = false;
  release().notify_all();
  while (!state().live.empty()) {
    lock.unlock();
    std::this_thread::yield();
    lock.lock();
  }
  return held;
}

}  // namespace isthmus::testing_support
