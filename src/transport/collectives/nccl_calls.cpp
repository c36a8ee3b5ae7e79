// SPDX-License-Identifier: Apache-2.0
#include "transport/collectives/nccl_calls.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <string>

#include "isthmus/errors.h"

namespace isthmus {
namespace {

constexpr const char* kLibrary = "libnccl.so.2";
constexpr int kOldest = NCCL_VERSION(2, 18, 0);  // communicators that can be split

[[noreturn]] void refuse(const std::string& why) {
  throw SystemError(fmt::format(
      "communicator \"nccl\": {}; or use \"threads\" (ranks of one process) or \"mpi\" (mpirun)",
      why));
}

/// Open for the life of the process: what NCCL has started may outlast a communicator.
void* open_library() {
  void* library = dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    refuse(fmt::format("{}; install NCCL or put its folder into LD_LIBRARY_PATH", dlerror()));
  }
  return library;
}

template <typename Function>
void look_up(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  if (function == nullptr) {
    refuse(fmt::format("{} has no {}: NCCL 2.18 or later is needed", kLibrary, name));
  }
}

void add_nccl(NcclCalls& calls) {
  void* library = open_library();
  look_up(library, "ncclGetVersion", calls.get_version);
  int version = 0;
  if (calls.get_version(&version) != ncclSuccess || version < kOldest) {
    refuse(fmt::format("{} is of version {}, NCCL 2.18 or later is needed", kLibrary, version));
  }
  look_up(library, "ncclGetUniqueId", calls.get_unique_id);
  look_up(library, "ncclCommInitRankConfig", calls.comm_init_rank);
  look_up(library, "ncclCommSplit", calls.comm_split);
  look_up(library, "ncclCommFinalize", calls.comm_finalize);
  look_up(library, "ncclCommDestroy", calls.comm_destroy);
  look_up(library, "ncclCommAbort", calls.comm_abort);
  look_up(library, "ncclCommGetAsyncError", calls.comm_get_async_error);
  look_up(library, "ncclGetErrorString", calls.get_error_string);
  look_up(library, "ncclGetLastError", calls.get_last_error);
  look_up(library, "ncclGroupStart", calls.group_start);
  look_up(library, "ncclGroupEnd", calls.group_end);
  look_up(library, "ncclAllReduce", calls.all_reduce);
  look_up(library, "ncclReduce", calls.reduce);
  look_up(library, "ncclReduceScatter", calls.reduce_scatter);
  look_up(library, "ncclAllGather", calls.all_gather);
  look_up(library, "ncclBroadcast", calls.broadcast);
  look_up(library, "ncclSend", calls.send);
  look_up(library, "ncclRecv", calls.receive);
}

void add_cuda(NcclCalls& calls) {
  calls.get_device_count = &cudaGetDeviceCount;
  calls.set_device = &cudaSetDevice;
  calls.cuda_get_last_error = &cudaGetLastError;
  calls.cuda_error_string = &cudaGetErrorString;
  calls.pointer_get_attributes = &cudaPointerGetAttributes;
  calls.malloc_device = &cudaMalloc;
  calls.free_device = &cudaFree;
  calls.malloc_pinned = &cudaHostAlloc;
  calls.free_pinned = &cudaFreeHost;
  calls.memcpy_async = &cudaMemcpyAsync;
  calls.stream_priorities = &cudaDeviceGetStreamPriorityRange;
  calls.stream_create = &cudaStreamCreateWithPriority;
  calls.stream_destroy = &cudaStreamDestroy;
  calls.stream_query = &cudaStreamQuery;
  calls.event_create = &cudaEventCreateWithFlags;
  calls.event_destroy = &cudaEventDestroy;
  calls.event_record = &cudaEventRecord;
  calls.event_query = &cudaEventQuery;
  int devices = 0;
  const cudaError_t status = calls.get_device_count(&devices);
  if (!cuda_ok(calls, status)) {
    refuse(fmt::format("no CUDA device can be used (is its driver installed?): {}",
                       calls.cuda_error_string(status)));
  }
  if (devices == 0) refuse("this machine has no CUDA device");
}

NcclCalls load() {
  NcclCalls calls;
  add_cuda(calls);
  add_nccl(calls);
  return calls;
}

}  // namespace

const NcclCalls& system_nccl_calls() {
  static const NcclCalls calls = load();
  return calls;
}

bool cuda_ok(const NcclCalls& calls, cudaError_t status) noexcept {
  if (status == cudaSuccess) return true;
  (void)calls.cuda_get_last_error();
  return false;
}

void check_cuda(const NcclCalls& calls, cudaError_t status, const char* call) {
  if (cuda_ok(calls, status)) return;
  throw NcclFailure(fmt::format("{}: {}", call, calls.cuda_error_string(status)));
}

void check_nccl(const NcclCalls& calls, ncclComm_t comm, ncclResult_t result, const char* call) {
  if (result == ncclSuccess || result == ncclInProgress) return;
  const char* last = calls.get_last_error(comm);
  const std::string detail = last == nullptr ? "" : last;
  throw NcclFailure(fmt::format("{}: {}{}{}", call, calls.get_error_string(result),
                                detail.empty() ? "" : ": ", detail));
}

}  // namespace isthmus
