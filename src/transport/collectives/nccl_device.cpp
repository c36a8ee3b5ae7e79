// SPDX-License-Identifier: Apache-2.0
#include "transport/collectives/nccl_device.h"

#include <fmt/format.h>

#include <cstring>

namespace isthmus {
namespace {

constexpr std::size_t kStep = std::size_t{1} << 20;  // staging grows by

}  // namespace

NcclDevice::NcclDevice(const NcclCalls& calls, int ordinal) : calls_(calls), ordinal_(ordinal) {
  int devices = 0;
  check_cuda(calls_, calls_.get_device_count(&devices), "cudaGetDeviceCount");
  if (ordinal < 0 || ordinal >= devices) {
    throw NcclFailure(fmt::format("there is no device {}; this machine has {}", ordinal, devices));
  }
  enter();
  int lowest = 0, highest = 0;
  check_cuda(calls_, calls_.stream_priorities(&lowest, &highest),
             "cudaDeviceGetStreamPriorityRange");
  check_cuda(calls_, calls_.stream_create(&stream_, cudaStreamNonBlocking, highest),
             "cudaStreamCreateWithPriority");
  const cudaError_t status = calls_.event_create(&end_, cudaEventDisableTiming);
  if (status == cudaSuccess) return;
  (void)cuda_ok(calls_, calls_.stream_destroy(stream_));
  check_cuda(calls_, status, "cudaEventCreateWithFlags");
}

NcclDevice::~NcclDevice() {
  if (!try_enter() || !idle()) return;
  (void)cuda_ok(calls_, calls_.event_destroy(end_));
  (void)cuda_ok(calls_, calls_.stream_destroy(stream_));
}

void NcclDevice::enter() const { check_cuda(calls_, calls_.set_device(ordinal_), "cudaSetDevice"); }

bool NcclDevice::try_enter() const noexcept { return cuda_ok(calls_, calls_.set_device(ordinal_)); }

bool NcclDevice::holds(const void* data) const {
  cudaPointerAttributes attributes{};
  check_cuda(calls_, calls_.pointer_get_attributes(&attributes, data), "cudaPointerGetAttributes");
  if (attributes.type != cudaMemoryTypeDevice) return false;
  if (attributes.device != ordinal_) {
    throw NcclFailure(
        fmt::format("values lie on device {}, the rank's own is {}", attributes.device, ordinal_));
  }
  return true;
}

void NcclDevice::copy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind) const {
  if (bytes == 0) return;
  check_cuda(calls_, calls_.memcpy_async(to, from, bytes, kind, stream_), "cudaMemcpyAsync");
}

void NcclDevice::mark() const {
  check_cuda(calls_, calls_.event_record(end_, stream_), "cudaEventRecord");
}

void NcclDevice::wait_for(void* event) const {
  check_cuda(calls_, calls_.stream_wait_event(stream_, static_cast<cudaEvent_t>(event), 0),
             "cudaStreamWaitEvent");
}

bool NcclDevice::reached() const { return reached(end_); }

bool NcclDevice::reached(void* event) const {
  const cudaError_t status = calls_.event_query(static_cast<cudaEvent_t>(event));
  if (cuda_ok(calls_, status)) return true;
  if (status != cudaErrorNotReady) check_cuda(calls_, status, "cudaEventQuery");
  return false;
}

bool NcclDevice::idle() const noexcept {
  if (given_up_) return false;
  const cudaError_t status = calls_.stream_query(stream_);
  return cuda_ok(calls_, status) || status != cudaErrorNotReady;
}

NcclStage::~NcclStage() {
  if (device_.try_enter()) release();
}

void NcclStage::release() noexcept {
  if (room_ == 0 || !device_.idle()) return;
  const NcclCalls& calls = device_.calls();
  (void)cuda_ok(calls, calls.free_device(memory_));
  (void)cuda_ok(calls, calls.free_pinned(pinned_));
  room_ = 0;
}

void NcclStage::take(void* data, std::size_t bytes) {
  data_ = static_cast<std::byte*>(data);
  bytes_ = bytes;
  staged_ = bytes > 0 && (data == nullptr || !device_.holds(data));
  if (!staged_ || bytes <= room_) return;
  const NcclCalls& calls = device_.calls();
  const std::size_t room = (bytes + kStep - 1) / kStep * kStep;
  release();
  void* memory = nullptr;
  void* pinned = nullptr;
  check_cuda(calls, calls.malloc_device(&memory, room), "cudaMalloc");
  const cudaError_t status = calls.malloc_pinned(&pinned, room, cudaHostAllocDefault);
  if (status != cudaSuccess) (void)cuda_ok(calls, calls.free_device(memory));
  check_cuda(calls, status, "cudaHostAlloc");
  memory_ = static_cast<std::byte*>(memory);
  pinned_ = static_cast<std::byte*>(pinned);
  room_ = room;
}

std::byte* NcclStage::on_device() const { return staged_ ? memory_ : data_; }

void NcclStage::fetch() const {
  if (!staged_) return;
  std::memcpy(pinned_, data_, bytes_);
  device_.copy(memory_, pinned_, bytes_, cudaMemcpyHostToDevice);
}

void NcclStage::bring_back() const {
  if (staged_) device_.copy(pinned_, memory_, bytes_, cudaMemcpyDeviceToHost);
}

void NcclStage::deliver() const {
  if (staged_ && data_ != nullptr) std::memcpy(data_, pinned_, bytes_);
}

}  // namespace isthmus
