// SPDX-License-Identifier: Apache-2.0
// The functions of NCCL and of the CUDA runtime that communicators between GPUs call, as a table:
// tests put another library in their place. The only file that includes the headers of both.
//
// NCCL is loaded when the first communicator is made, so a program that was built with it starts
// where it is absent.
#pragma once

#include <cuda_runtime_api.h>
#include <nccl.h>

#include <stdexcept>
#include <string>

namespace isthmus {

/// A call of NCCL or CUDA that was refused, or an operation that has failed; the text names both.
class NcclFailure : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

struct NcclCalls {
  decltype(&ncclGetVersion) get_version = nullptr;
  decltype(&ncclGetUniqueId) get_unique_id = nullptr;
  decltype(&ncclCommInitRankConfig) comm_init_rank = nullptr;
  decltype(&ncclCommSplit) comm_split = nullptr;
  decltype(&ncclCommFinalize) comm_finalize = nullptr;
  decltype(&ncclCommDestroy) comm_destroy = nullptr;
  decltype(&ncclCommAbort) comm_abort = nullptr;
  decltype(&ncclCommGetAsyncError) comm_get_async_error = nullptr;
  decltype(&ncclGetErrorString) get_error_string = nullptr;
  decltype(&ncclGetLastError) get_last_error = nullptr;
  decltype(&ncclGroupStart) group_start = nullptr;
  decltype(&ncclGroupEnd) group_end = nullptr;
  decltype(&ncclAllReduce) all_reduce = nullptr;
  decltype(&ncclReduce) reduce = nullptr;
  decltype(&ncclReduceScatter) reduce_scatter = nullptr;
  decltype(&ncclAllGather) all_gather = nullptr;
  decltype(&ncclBroadcast) broadcast = nullptr;
  decltype(&ncclSend) send = nullptr;
  decltype(&ncclRecv) receive = nullptr;

  // Spelled out where the CUDA headers overload the name for C++.
  decltype(&cudaGetDeviceCount) get_device_count = nullptr;
  decltype(&cudaSetDevice) set_device = nullptr;
  decltype(&cudaGetLastError) cuda_get_last_error = nullptr;
  decltype(&cudaGetErrorString) cuda_error_string = nullptr;
  decltype(&cudaPointerGetAttributes) pointer_get_attributes = nullptr;
  cudaError_t (*malloc_device)(void**, std::size_t) = nullptr;
  decltype(&cudaFree) free_device = nullptr;
  cudaError_t (*malloc_pinned)(void**, std::size_t, unsigned int) = nullptr;
  decltype(&cudaFreeHost) free_pinned = nullptr;
  decltype(&cudaMemcpyAsync) memcpy_async = nullptr;
  decltype(&cudaDeviceGetStreamPriorityRange) stream_priorities = nullptr;
  decltype(&cudaStreamCreateWithPriority) stream_create = nullptr;
  decltype(&cudaStreamDestroy) stream_destroy = nullptr;
  decltype(&cudaStreamQuery) stream_query = nullptr;
  decltype(&cudaStreamWaitEvent) stream_wait_event = nullptr;
  cudaError_t (*event_create)(cudaEvent_t*, unsigned int) = nullptr;
  decltype(&cudaEventDestroy) event_destroy = nullptr;
  cudaError_t (*event_record)(cudaEvent_t, cudaStream_t) = nullptr;
  decltype(&cudaEventQuery) event_query = nullptr;
};

/// Adds NCCL's functions, of the library of this name or path, which stays open for the life of the
/// process. THROWS: SystemError naming it, and the versions, where it cannot be loaded, is too old
/// or lacks a function.
void add_nccl_calls(NcclCalls& calls, const std::string& library);

/// Those of this machine, loaded once for the life of the process.
/// THROWS: SystemError when there is no NCCL, an old one, or no CUDA device.
[[nodiscard]] const NcclCalls& system_nccl_calls();

/// Whether `status` is success. If not, the runtime forgets it ("not ready" too): the thread's next
/// launch of a kernel would be blamed for it.
[[nodiscard]] bool cuda_ok(const NcclCalls& calls, cudaError_t status) noexcept;
/// THROWS: NcclFailure naming `call` unless `status` is success (for NCCL: or "in progress").
void check_cuda(const NcclCalls& calls, cudaError_t status, const char* call);
void check_nccl(const NcclCalls& calls, ncclComm_t comm, ncclResult_t result, const char* call);

}  // namespace isthmus
