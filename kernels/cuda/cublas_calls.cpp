// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/cublas_calls.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <string>

#include "isthmus/errors.h"

namespace isthmus::cuda {
namespace {

std::string text_of(int version) {
  return fmt::format("{}.{}.{}", version / 10000, version / 100 % 100, version % 100);
}

/// Of the header: the types of another major version may differ.
std::string built_with() {
  return fmt::format("{}.{}.{}", CUBLAS_VER_MAJOR, CUBLAS_VER_MINOR, CUBLAS_VER_PATCH);
}

[[noreturn]] void refuse(const std::string& why) {
  throw SystemError(fmt::format(
      "matrix products on a CUDA device need cuBLASLt, and this build is made with {}: {}; install "
      "libcublas of CUDA {} (package libcublas-{}-*) and put its folder first into "
      "LD_LIBRARY_PATH, or train on the CPU with --device cpu",
      built_with(), why, CUBLAS_VER_MAJOR, CUBLAS_VER_MAJOR));
}

class Library {
 public:
  // Open for the life of the process: work on a device may outlast the code that queued it.
  explicit Library(const std::string& name)
      : name_(name), handle_(dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL)) {
    if (handle_ == nullptr) refuse(dlerror());
  }
  template <typename Function>
  void look_up(const char* function, Function& place) const {
    place = reinterpret_cast<Function>(dlsym(handle_, function));
    if (place == nullptr) refuse(fmt::format("{} has no {}", name_, function));
  }

 private:
  std::string name_;
  void* handle_;
};

}  // namespace

CublasCalls load_cublas_calls(const std::string& name) {
  const Library library(name);
  CublasCalls calls;
  library.look_up("cublasLtGetVersion", calls.version);
  if (const auto version = static_cast<int>(calls.version()); version / 10000 != CUBLAS_VER_MAJOR) {
    refuse(fmt::format("{} is of version {}", name, text_of(version)));
  }
  library.look_up("cublasLtCreate", calls.create);
  library.look_up("cublasLtDestroy", calls.destroy);
  library.look_up("cublasLtGetStatusString", calls.status_string);
  library.look_up("cublasLtMatmul", calls.matmul);
  library.look_up("cublasLtMatmulAlgoGetHeuristic", calls.heuristic);
  library.look_up("cublasLtMatmulDescCreate", calls.desc_create);
  library.look_up("cublasLtMatmulDescDestroy", calls.desc_destroy);
  library.look_up("cublasLtMatmulDescSetAttribute", calls.desc_set);
  library.look_up("cublasLtMatrixLayoutCreate", calls.layout_create);
  library.look_up("cublasLtMatrixLayoutDestroy", calls.layout_destroy);
  library.look_up("cublasLtMatmulPreferenceCreate", calls.preference_create);
  library.look_up("cublasLtMatmulPreferenceDestroy", calls.preference_destroy);
  library.look_up("cublasLtMatmulPreferenceSetAttribute", calls.preference_set);
  return calls;
}

const CublasCalls& system_cublas_calls() {
  static const CublasCalls calls =
      load_cublas_calls(fmt::format("libcublasLt.so.{}", CUBLAS_VER_MAJOR));
  return calls;
}

}  // namespace isthmus::cuda
