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

/// "2.18.5" of NCCL's number, 21805.
std::string text_of(int version) {
  return fmt::format("{}.{}.{}", version / 10000, version / 100 % 100, version % 100);
}

/// Open for the life of the process: operations that NCCL has started may outlast a communicator.
class Library {
 public:
  explicit Library(const std::string& name)
      : name_(name), handle_(dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL)) {
    if (handle_ == nullptr) {
      refuse(fmt::format("{}; install NCCL or put its folder into LD_LIBRARY_PATH", dlerror()));
    }
  }
  template <typename Function>
  void look_up(const char* function, Function& place) const {
    place = reinterpret_cast<Function>(dlsym(handle_, function));
    if (place == nullptr) {
      refuse(fmt::format("{} has no {}: this build, made with NCCL {}, needs 2.18 or later", name_,
                         function, text_of(NCCL_VERSION_CODE)));
    }
  }

 private:
  std::string name_;
  void* handle_;
};

}  // namespace

void add_nccl_calls(NcclCalls& calls, const std::string& name) {
  const Library library(name);
  const auto look_up = [&](const char* function, auto& place) { library.look_up(function, place); };
  look_up("ncclGetVersion", calls.get_version);
  int version = 0;
  if (calls.get_version(&version) != ncclSuccess || version < kOldest) {
    refuse(fmt::format("{} is of version {}, and this build, made with {}, needs 2.18 or later",
                       name, text_of(version), text_of(NCCL_VERSION_CODE)));
  }
  look_up("ncclGetUniqueId", calls.get_unique_id);
  look_up("ncclCommInitRankConfig", calls.comm_init_rank);
  look_up("ncclCommSplit", calls.comm_split);
  look_up("ncclCommFinalize", calls.comm_finalize);
  look_up("ncclCommDestroy", calls.comm_destroy);
  look_up("ncclCommAbort", calls.comm_abort);
  look_up("ncclCommGetAsyncError", calls.comm_get_async_error);
  look_up("ncclGetErrorString", calls.get_error_string);
  look_up("ncclGetLastError", calls.get_last_error);
  look_up("ncclGroupStart", calls.group_start);
  look_up("ncclGroupEnd", calls.group_end);
  look_up("ncclAllReduce", calls.all_reduce);
  look_up("ncclReduce", calls.reduce);
  look_up("ncclReduceScatter", calls.reduce_scatter);
  look_up("ncclAllGather", calls.all_gather);
  look_up("ncclBroadcast", calls.broadcast);
  look_up("ncclSend", calls.send);
  look_up("ncclRecv", calls.receive);
}

namespace {

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
  calls.stream_wait_event = &cudaStreamWaitEvent;
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
  add_nccl_calls(calls, kLibrary);
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
