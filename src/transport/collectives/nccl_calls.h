// SPDX-License-Identifier: Apache-2.0
// The functions of NCCL and of the CUDA runtime that communicators between GPUs call, as a table:
// tests replace them by another library. The only file that includes the headers of both.
//
// NCCL is loaded when the first communicator is made, so a program built with NCCL also starts
// without it.
#pragma once

#include <cuda_runtime_api.h>
#include <nccl.h>

#include <stdexcept>
#include <string>

namespace isthmus {

/// A refused NCCL or CUDA call, or a failed operation; the text names both.
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

  // Written out, since the CUDA headers overload these names for C++.
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

/// Adds NCCL's functions from the library of this name or path, which stays loaded for the life of
/// the process. THROWS: SystemError naming it, and the versions, when it cannot be loaded, is too
/// old or lacks a function.
void add_nccl_calls(NcclCalls& calls, const std::string& library);

/// The functions of this machine, loaded once for the life of the process. THROWS: SystemError when
/// there is no NCCL, an old one, or no CUDA device.
[[nodiscard]] const NcclCalls& system_nccl_calls();

/// Whether `status` is success. If not, clears the error from the runtime ("not ready" too):
/// otherwise the thread's next kernel launch would report it.
[[nodiscard]] bool cuda_ok(const NcclCalls& calls, cudaError_t status) noexcept;
/// THROWS: NcclFailure naming `call` unless `status` is success (for NCCL: or "in progress").
void check_cuda(const NcclCalls& calls, cudaError_t status, const char* call);
void check_nccl(const NcclCalls& calls, ncclComm_t comm, ncclResult_t result, const char* call);

}  // namespace isthmus
