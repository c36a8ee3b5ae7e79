// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/cudnn/cudnn_library.h"

#include <cuda_runtime_api.h>
#include <cudnn_version.h>
#include <dlfcn.h>
#include <fmt/format.h>

namespace isthmus::cuda {
namespace {

// Up to 9.15 the frontend masks windows whose length is no multiple of 128 by copies from pageable
// host memory in every backward pass, and 9.10 is known to be wrong.
constexpr std::size_t kOldest = 91600;

std::string text_of(std::size_t version) {
  return fmt::format("{}.{}.{}", version / 10000, version / 100 % 100, version % 100);
}

std::string advice() {
  return "install cuDNN 9.16 or later (NVIDIA's package cudnn9-cuda-13, or nvidia-cudnn-cu13 with "
         "pip) and put its folder into LD_LIBRARY_PATH, or leave attention to the own kernels";
}

}  // namespace

CudnnLibrary load_cudnn(const std::string& name, int major, std::size_t oldest,
                        const std::string& runtime) {
  CudnnLibrary library;
  const auto refuse = [&](const std::string& why) {
    library.missing = fmt::format("{}; {}", why, advice());
    return library;
  };
  void* const handle = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) return refuse(dlerror());
  const auto get_version = reinterpret_cast<std::size_t (*)()>(dlsym(handle, "cudnnGetVersion"));
  if (get_version == nullptr) return refuse(fmt::format("{} has no cudnnGetVersion", name));
  library.version = get_version();
  if (library.version / 10000 != static_cast<std::size_t>(major) || library.version < oldest) {
    return refuse(fmt::format("{} is of version {}, {} or later of major version {} is needed",
                              name, text_of(library.version), text_of(oldest), major));
  }
  if (dlopen(runtime.c_str(), RTLD_NOW | RTLD_LOCAL) == nullptr) {
    return refuse(
        fmt::format("cuDNN's frontend needs the CUDA runtime as a library: {}", dlerror()));
  }
  library.handle = handle;
  return library;
}

const CudnnLibrary& system_cudnn() {
  static const CudnnLibrary library =
      load_cudnn(fmt::format("libcudnn.so.{}", CUDNN_MAJOR), CUDNN_MAJOR, kOldest,
                 fmt::format("libcudart.so.{}", CUDART_VERSION / 1000));
  return library;
}

}  // namespace isthmus::cuda
