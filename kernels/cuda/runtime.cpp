// SPDX-License-Identifier: Apache-2.0
// device.h over the CUDA runtime.
#include <cuda_runtime.h>

#include <algorithm>
#include <iterator>
#include <mutex>
#include <optional>
#include <set>
#include <utility>

#include "kernels/cuda/device.h"
#include "kernels/cuda/device_errors.h"
#include "kernels/cuda/runtime_check.h"

namespace isthmus::cuda {
namespace {
cudaStream_t of(const Stream& stream) { return static_cast<cudaStream_t>(stream.handle()); }
cudaEvent_t of(const Event& event) { return static_cast<cudaEvent_t>(event.handle()); }

std::string text_of(cudaError_t status) { return cudaGetErrorString(status); }

/// Answers after which a device's context has failed for good, by number, since older headers lack
/// some names: errors of its memory and links (214, 220), of kernels (700 to 721 but for those of
/// arguments), a context that is gone (709), the server of several processes (810), and what CUDA
/// has no word for (999), as of a device that has left the bus.
bool loses_device(cudaError_t status) {
  constexpr int kLosing[] = {214, 220, 700, 702, 709, 710, 714, 715,
                             716, 717, 718, 719, 720, 721, 810, 999};
  return std::ranges::find(kLosing, static_cast<int>(status)) != std::end(kLosing);
}

std::optional<int> current_device() {
  int ordinal = 0;
  return succeeded(cudaGetDevice(&ordinal)) ? std::optional(ordinal) : std::nullopt;
}

std::optional<DeviceMemory> memory_now() {
  DeviceMemory memory;
  if (!succeeded(cudaMemGetInfo(&memory.free_bytes, &memory.total_bytes))) return std::nullopt;
  return memory;
}

int driver_version() {
  int version = 0;  // and it stays so without a driver
  return succeeded(cudaDriverGetVersion(&version)) ? version : 0;
}
}  // namespace

bool succeeded(cudaError_t status) noexcept {
  if (status == cudaSuccess) return true;
  static_cast<void>(cudaGetLastError());
  return false;
}

void check(cudaError_t status, const char* call) {
  if (succeeded(status)) return;
  if (status == cudaErrorMemoryAllocation) {
    throw OutOfDeviceMemory(no_memory_text(call, memory_now()));
  }
  if (loses_device(status)) {
    throw DeviceLost(lost_device_text(current_device(), call, text_of(status)));
  }
  throw SystemError(std::string("CUDA: ") + call + ": " + text_of(status));
}

// Two threads may both be the first: they set the same value.
void allow_shared_memory(const void* kernel) {
  static std::mutex mutex;
  static std::set<std::pair<const void*, int>> allowed;  // under it
  int device = 0;
  check(cudaGetDevice(&device), "cudaGetDevice");
  const std::pair key(kernel, device);
  {
    const std::lock_guard lock(mutex);
    if (allowed.contains(key)) return;
  }
  cudaFuncAttributes attributes{};
  check(cudaFuncGetAttributes(&attributes, kernel), "cudaFuncGetAttributes");
  int most = 0;  // static and dynamic
  check(cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, device),
        "cudaDeviceGetAttribute");
  check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                             most - static_cast<int>(attributes.sharedSizeBytes)),
        "cudaFuncSetAttribute");
  const std::lock_guard lock(mutex);
  allowed.insert(key);
}

std::vector<DeviceInfo> devices() {
  int count = 0;
  if (!succeeded(cudaGetDeviceCount(&count))) return {};
  std::vector<DeviceInfo> found;
  for (int ordinal = 0; ordinal < count; ++ordinal) {
    cudaDeviceProp properties{};
    check(cudaGetDeviceProperties(&properties, ordinal), "cudaGetDeviceProperties");
    found.push_back(
        {ordinal, properties.name, properties.major, properties.minor, properties.totalGlobalMem});
  }
  return found;
}

std::string unavailable() {
  int count = 0;
  const cudaError_t status = cudaGetDeviceCount(&count);
  if (succeeded(status)) return count > 0 ? "" : "this machine has no CUDA device";
  if (status == cudaErrorNoDevice) return "this machine has no CUDA device";
  if (const std::string fault = driver_fault(); !fault.empty()) return fault;
  return "no CUDA device can be used (is its driver installed?): " + text_of(status);
}

std::string driver_fault() {
  int count = 0, runtime = 0;
  const cudaError_t status = cudaGetDeviceCount(&count);
  const int driver = driver_version();
  if (succeeded(status) || status == cudaErrorNoDevice || driver == 0) return "";
  if (status == cudaErrorInsufficientDriver && succeeded(cudaRuntimeGetVersion(&runtime))) {
    return old_driver_text(driver, runtime);
  }
  return "no CUDA device can be used: cudaGetDeviceCount: " + text_of(status) +
         "; nvidia-smi says more, and a reboot loads a driver that was just installed; or train "
         "with "
         "--device cpu";
}

void check_alive() {
  std::size_t free_bytes = 0, total_bytes = 0;
  const cudaError_t status = cudaMemGetInfo(&free_bytes, &total_bytes);
  if (!succeeded(status) && loses_device(status)) check(status, "cudaMemGetInfo");
}

std::string versions() {
  int driver = 0, runtime = 0;
  check(cudaDriverGetVersion(&driver), "cudaDriverGetVersion");
  check(cudaRuntimeGetVersion(&runtime), "cudaRuntimeGetVersion");
  return (driver > 0 ? "driver for CUDA " + cuda_version_text(driver) : "no driver") +
         ", runtime " + cuda_version_text(runtime);
}

void use_device(int ordinal) { check(cudaSetDevice(ordinal), "cudaSetDevice"); }

std::size_t shared_bytes_of_block() {
  if (!unavailable().empty()) return kMostSharedBytes;
  int ordinal = 0, bytes = 0;
  check(cudaGetDevice(&ordinal), "cudaGetDevice");
  check(cudaDeviceGetAttribute(&bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, ordinal),
        "cudaDeviceGetAttribute");
  return static_cast<std::size_t>(bytes);
}

DeviceMemory device_memory() {
  DeviceMemory memory;
  check(cudaMemGetInfo(&memory.free_bytes, &memory.total_bytes), "cudaMemGetInfo");
  return memory;
}

Stream::Stream(Priority priority) {
  int lowest = 0, highest = 0;  // the highest is the least number
  check(cudaDeviceGetStreamPriorityRange(&lowest, &highest), "cudaDeviceGetStreamPriorityRange");
  const int of_cuda = priority == Priority::kHigh  ? highest
                      : priority == Priority::kLow ? lowest
                                                   : (lowest + highest) / 2;
  cudaStream_t stream = nullptr;
  check(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, of_cuda), "cudaStreamCreate");
  handle_ = stream;
}
Stream::~Stream() {
  succeeded(cudaStreamSynchronize(of(*this)));
  succeeded(cudaStreamDestroy(of(*this)));
}
void Stream::synchronize() { check(cudaStreamSynchronize(of(*this)), "cudaStreamSynchronize"); }
void Stream::wait(const Event& event) {
  check(cudaStreamWaitEvent(of(*this), of(event)), "cudaStreamWaitEvent");
}

Event::Event(Timing timing) {
  cudaEvent_t event = nullptr;
  const unsigned flags = timing == Timing::kOn ? cudaEventDefault : cudaEventDisableTiming;
  check(cudaEventCreateWithFlags(&event, flags), "cudaEventCreate");
  handle_ = event;
}
Event::~Event() { succeeded(cudaEventDestroy(of(*this))); }
void Event::record(Stream& stream) {
  check(cudaEventRecord(of(*this), of(stream)), "cudaEventRecord");
}
void Event::synchronize() const { check(cudaEventSynchronize(of(*this)), "cudaEventSynchronize"); }
bool Event::reached() const {
  const cudaError_t status = cudaEventQuery(of(*this));
  if (succeeded(status)) return true;
  if (status != cudaErrorNotReady) check(status, "cudaEventQuery");
  return false;
}
double Event::milliseconds_since(const Event& begin) const {
  float milliseconds = 0;
  check(cudaEventElapsedTime(&milliseconds, of(begin), of(*this)), "cudaEventElapsedTime");
  return milliseconds;
}

namespace detail {

void* allocate_device(std::size_t bytes) {
  void* data = nullptr;
  const cudaError_t status = cudaMalloc(&data, bytes);
  if (status == cudaErrorMemoryAllocation) {
    succeeded(status);
    const DeviceMemory memory = device_memory();
    throw OutOfDeviceMemory("CUDA: " + std::to_string(bytes) +
                            " bytes of device memory asked for, " +
                            std::to_string(memory.free_bytes) + " of " +
                            std::to_string(memory.total_bytes) + " are free");
  }
  check(status, "cudaMalloc");
  return data;
}
void free_device(void* data) noexcept { succeeded(cudaFree(data)); }

void* allocate_pinned(std::size_t bytes) {
  void* data = nullptr;
  const cudaError_t status = cudaMallocHost(&data, bytes);
  if (status == cudaErrorMemoryAllocation) {
    succeeded(status);
    throw SystemError("CUDA: " + std::to_string(bytes) +
                      " bytes of pinned host memory asked for, which are not free");
  }
  check(status, "cudaMallocHost");
  return data;
}
void free_pinned(void* data) noexcept { succeeded(cudaFreeHost(data)); }

void copy(Stream& stream, void* to, const void* from, std::size_t bytes) {
  if (bytes == 0) return;
  check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, of(stream)), "cudaMemcpyAsync");
}
void fill_zero(Stream& stream, void* data, std::size_t bytes) {
  if (bytes == 0) return;
  check(cudaMemsetAsync(data, 0, bytes, of(stream)), "cudaMemsetAsync");
}

}  // namespace detail

struct Graph::Impl {
  struct Part {
    cudaGraphExec_t executable = nullptr;
    Event* behind = nullptr;  // or none
  };
  std::vector<Part> parts;

  ~Impl() {
    for (const Part& part : parts) succeeded(cudaGraphExecDestroy(part.executable));
  }
  static void begin(Stream& stream) {
    check(cudaStreamBeginCapture(of(stream), cudaStreamCaptureModeThreadLocal),
          "cudaStreamBeginCapture");
  }
  void end(Stream& stream, Event* behind) {
    cudaGraph_t graph = nullptr;
    check(cudaStreamEndCapture(of(stream), &graph), "cudaStreamEndCapture");
    Part part{.behind = behind};
    const cudaError_t status = cudaGraphInstantiate(&part.executable, graph, 0);
    succeeded(cudaGraphDestroy(graph));
    check(status, "cudaGraphInstantiate");
    parts.push_back(part);
  }
  /// Also where a mark has failed, and nothing is recorded any more.
  static void break_off(Stream& stream) {
    cudaGraph_t graph = nullptr;
    succeeded(cudaStreamEndCapture(of(stream), &graph));
    if (graph != nullptr) succeeded(cudaGraphDestroy(graph));
  }
};

Graph::Graph(Stream& stream, const std::function<void(const Mark&)>& queue) : impl_(new Impl) {
  Impl::begin(stream);
  try {
    queue([&](Event& event) {
      impl_->end(stream, &event);
      Impl::begin(stream);
    });
  } catch (...) {
    Impl::break_off(stream);
    throw;
  }
  impl_->end(stream, nullptr);
}
Graph::~Graph() = default;
void Graph::launch(Stream& stream) const {
  for (const Impl::Part& part : impl_->parts) {
    check(cudaGraphLaunch(part.executable, of(stream)), "cudaGraphLaunch");
    if (part.behind != nullptr) part.behind->record(stream);
  }
}

}  // namespace isthmus::cuda
