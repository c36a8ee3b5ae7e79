// SPDX-License-Identifier: Apache-2.0
#include "cuda/fake_cuda_runtime.h"

#include <cuda_runtime.h>

#include <cstdlib>
#include <map>
#include <utility>
#include <vector>

namespace isthmus::cuda::fake {
namespace {
std::map<std::string, cudaError_t>& answers() {
  static std::map<std::string, cudaError_t> of_calls;
  return of_calls;
}
std::map<std::string, int>& counts() {
  static std::map<std::string, int> of_calls;
  return of_calls;
}
cudaError_t last = cudaSuccess;
thread_local int device = 0;
int driver_version = kRuntimeVersion;
std::vector<int>& priorities() {
  static std::vector<int> of_streams;
  return of_streams;
}
std::vector<int>& allowed() {
  static std::vector<int> bytes;
  return bytes;
}

cudaError_t say(const char* call) {
  ++counts()[call];
  const auto found = answers().find(call);
  if (found == answers().end() || found->second == cudaSuccess) return cudaSuccess;
  return last = found->second;
}
/// A handle, or memory, that is told from others.
void* something() { return std::malloc(1); }
}  // namespace

void answer(const std::string& call, int error) {
  answers()[call] = static_cast<cudaError_t>(error);
}
int take_calls(const std::string& call) { return std::exchange(counts()[call], 0); }
std::vector<int> take_priorities() { return std::exchange(priorities(), {}); }
std::vector<int> take_shared_bytes() { return std::exchange(allowed(), {}); }
int last_error() { return last; }

void set_driver_version(int version) { driver_version = version; }

static_assert(kMemoryAllocation == cudaErrorMemoryAllocation);
static_assert(kInsufficientDriver == cudaErrorInsufficientDriver);
static_assert(kNoDevice == cudaErrorNoDevice);
static_assert(kIllegalAddress == cudaErrorIllegalAddress);
static_assert(kNotReady == cudaErrorNotReady);
static_assert(kCaptureInvalidated == cudaErrorStreamCaptureInvalidated);

}  // namespace isthmus::cuda::fake

using isthmus::cuda::fake::say;
using isthmus::cuda::fake::something;

cudaError_t cudaGetLastError() { return std::exchange(isthmus::cuda::fake::last, cudaSuccess); }
const char* cudaGetErrorString(cudaError_t) { return "as it was told to"; }
cudaError_t cudaGetDeviceCount(int* count) {
  *count = 1;
  return say("cudaGetDeviceCount");
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp*, int) { return say("cudaGetDeviceProperties"); }
cudaError_t cudaDriverGetVersion(int* version) {
  *version = isthmus::cuda::fake::driver_version;
  return say("cudaDriverGetVersion");
}
cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = isthmus::cuda::fake::kRuntimeVersion;
  return say("cudaRuntimeGetVersion");
}
cudaError_t cudaSetDevice(int ordinal) {
  isthmus::cuda::fake::device = ordinal;
  return say("cudaSetDevice");
}
cudaError_t cudaGetDevice(int* ordinal) {
  *ordinal = isthmus::cuda::fake::device;
  return say("cudaGetDevice");
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr, int) {
  *value = isthmus::cuda::fake::kBlockSharedBytes;
  return say("cudaDeviceGetAttribute");
}
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void*) {
  attributes->sharedSizeBytes = isthmus::cuda::fake::kStaticSharedBytes;
  return say("cudaFuncGetAttributes");
}
cudaError_t cudaFuncSetAttribute(const void*, cudaFuncAttribute, int value) {
  const cudaError_t status = say("cudaFuncSetAttribute");
  if (status == cudaSuccess) isthmus::cuda::fake::allowed().push_back(value);
  return status;
}
cudaError_t cudaMemGetInfo(size_t* free_bytes, size_t* total) {
  *free_bytes = 5, *total = 7;
  return say("cudaMemGetInfo");
}
cudaError_t cudaDeviceGetStreamPriorityRange(int* lowest, int* highest) {
  *lowest = 0, *highest = -5;
  return say("cudaDeviceGetStreamPriorityRange");
}
cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned, int priority) {
  *stream = static_cast<cudaStream_t>(something());
  isthmus::cuda::fake::priorities().push_back(priority);
  return say("cudaStreamCreateWithPriority");
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  std::free(stream);
  return say("cudaStreamDestroy");
}
cudaError_t cudaStreamSynchronize(cudaStream_t) { return say("cudaStreamSynchronize"); }
cudaError_t cudaStreamWaitEvent(cudaStream_t, cudaEvent_t, unsigned) {
  return say("cudaStreamWaitEvent");
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  *event = static_cast<cudaEvent_t>(something());
  return say("cudaEventCreateWithFlags");
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  std::free(event);
  return say("cudaEventDestroy");
}
cudaError_t cudaEventRecord(cudaEvent_t, cudaStream_t) { return say("cudaEventRecord"); }
cudaError_t cudaEventSynchronize(cudaEvent_t) { return say("cudaEventSynchronize"); }
cudaError_t cudaEventQuery(cudaEvent_t) { return say("cudaEventQuery"); }
cudaError_t cudaEventElapsedTime(float*, cudaEvent_t, cudaEvent_t) {
  return say("cudaEventElapsedTime");
}
cudaError_t cudaMalloc(void** data, size_t) {
  *data = something();
  return say("cudaMalloc");
}
cudaError_t cudaFree(void* data) {
  std::free(data);
  return say("cudaFree");
}
cudaError_t cudaMallocHost(void** data, size_t) {
  *data = something();
  return say("cudaMallocHost");
}
cudaError_t cudaFreeHost(void* data) {
  std::free(data);
  return say("cudaFreeHost");
}
cudaError_t cudaMemcpyAsync(void*, const void*, size_t, cudaMemcpyKind, cudaStream_t) {
  return say("cudaMemcpyAsync");
}
cudaError_t cudaMemsetAsync(void*, int, size_t, cudaStream_t) { return say("cudaMemsetAsync"); }
cudaError_t cudaStreamBeginCapture(cudaStream_t, cudaStreamCaptureMode) {
  return say("cudaStreamBeginCapture");
}
cudaError_t cudaStreamEndCapture(cudaStream_t, cudaGraph_t* graph) {
  *graph = nullptr;
  return say("cudaStreamEndCapture");
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* executable, cudaGraph_t, unsigned long long) {
  *executable = nullptr;
  return say("cudaGraphInstantiate");
}
cudaError_t cudaGraphDestroy(cudaGraph_t) { return say("cudaGraphDestroy"); }
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t) { return say("cudaGraphExecDestroy"); }
cudaError_t cudaGraphLaunch(cudaGraphExec_t, cudaStream_t) { return say("cudaGraphLaunch"); }
