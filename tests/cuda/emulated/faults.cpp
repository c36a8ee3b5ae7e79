// SPDX-License-Identifier: Apache-2.0
#include "cuda/emulated/faults.h"

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <mutex>
#include <vector>

#include "cuda/emulated/runtime.h"
#include "kernels/cuda/device_errors.h"

namespace isthmus::cuda {
namespace {

constexpr int kRuntime = 13000;  // of this "build"

/// What comes after some kernels of a device, counted from when a path exists.
struct Countdown {
  int device = -1;  // none
  long kernels = 0;
  std::filesystem::path since;

  /// A kernel of `ordinal` comes. RETURNS: whether the time has come.
  [[nodiscard]] bool due(int ordinal) {
    if (device != ordinal) return false;
    if (!since.empty() && !std::filesystem::exists(since)) return false;
    return kernels <= 0 || kernels-- <= 0;
  }
};

struct Faults {
  Faults();
  std::mutex mutex;
  Countdown lost, memory;
  bool is_lost[emulated::kDevices] = {};
  std::string driver, products, cudnn;
  std::optional<std::size_t> bytes;
};

[[noreturn]] void refuse(const std::string& text) {
  std::fprintf(stderr, "emulated device: ISTHMUS_EMULATED_FAULT=%s: see faults.h\n", text.c_str());
  std::abort();
}

Faults::Faults() {
  const char* const text = std::getenv("ISTHMUS_EMULATED_FAULT");
  if (text == nullptr) return;
  std::string rest = text;
  const auto word = [&] {
    const std::size_t end = rest.find(':');
    const std::string first = rest.substr(0, end);
    rest = end == std::string::npos ? "" : rest.substr(end + 1);
    return first;
  };
  const std::string kind = word();
  if (kind == "lost" || kind == "memory") {
    Countdown& one = kind == "lost" ? lost : memory;
    one.device = std::atoi(word().c_str());
    one.kernels = std::atol(word().c_str());
    one.since = rest;
  } else if (kind == "bytes") {
    bytes = std::strtoull(rest.c_str(), nullptr, 10);
  } else if (kind == "driver") {
    driver = old_driver_text(std::atoi(rest.c_str()), kRuntime);
  } else if (kind == "products") {
    products = rest;
  } else if (kind == "cudnn") {
    cudnn = rest;
  } else {
    refuse(text);
  }
}

Faults& faults() {
  static Faults* const all = new Faults;
  return *all;
}
using Lock = std::lock_guard<std::mutex>;

}  // namespace

namespace emulated {

void lose_device(int ordinal, int kernels) {
  const Lock lock(faults().mutex);
  faults().lost = {.device = ordinal, .kernels = kernels, .since = {}};
}
void exhaust_launches(int ordinal, int kernels) {
  const Lock lock(faults().mutex);
  faults().memory = {.device = ordinal, .kernels = kernels, .since = {}};
}
void set_driver_fault(const std::string& why) {
  const Lock lock(faults().mutex);
  faults().driver = why;
}
void set_products_missing(const std::string& why) {
  const Lock lock(faults().mutex);
  faults().products = why;
}
void end_faults() {
  const Lock lock(faults().mutex);
  faults().lost = faults().memory = {};
  for (bool& one : faults().is_lost) one = false;
  faults().driver.clear();
  faults().products.clear();
}

bool begins_kernel(int ordinal) {
  const Lock lock(faults().mutex);
  bool& lost = faults().is_lost[ordinal];
  lost = lost || faults().lost.due(ordinal);
  return !lost;
}
bool is_lost(int ordinal) {
  const Lock lock(faults().mutex);
  return faults().is_lost[ordinal];
}
void refuse_lost(int ordinal, const char* call) {
  if (!is_lost(ordinal)) return;
  throw DeviceLost(lost_device_text(ordinal, call, "an illegal memory access was encountered"));
}
void refuse_launch(int ordinal, const char* call, const DeviceMemory& free) {
  {
    const Lock lock(faults().mutex);
    if (!faults().memory.due(ordinal)) return;
  }
  throw OutOfDeviceMemory(no_memory_text(call, free));
}
std::string products_fault() {
  const Lock lock(faults().mutex);
  return faults().products;
}
std::optional<std::size_t> bytes_from_environment() { return faults().bytes; }
std::string cudnn_fault_from_environment() { return faults().cudnn; }

}  // namespace emulated

std::string driver_fault() {
  const Lock lock(faults().mutex);
  return faults().driver;
}

}  // namespace isthmus::cuda
