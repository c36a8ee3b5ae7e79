// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/cublas_calls.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <string>

#include "isthmus/errors.h"

namespace isthmus::cuda {
namespace {

/// The one whose header this was compiled with: the types of another version may differ.
std::string library_name() { return fmt::format("libcublasLt.so.{}", CUBLAS_VER_MAJOR); }

template <typename Function>
void look_up(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  if (function == nullptr) {
    throw SystemError(fmt::format("{} has no {}: is it whole?", library_name(), name));
  }
}

CublasCalls load() {
  // Open for the life of the process: work on a device may outlast whoever queued it.
  void* library = dlopen(library_name().c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    throw SystemError(
        fmt::format("matrix products on a CUDA device need cuBLAS: {}; install libcublas of CUDA "
                    "{} (package libcublas-{}-*), put its folder into LD_LIBRARY_PATH, or train "
                    "on the CPU with --device cpu",
                    dlerror(), CUBLAS_VER_MAJOR, CUBLAS_VER_MAJOR));
  }
  CublasCalls calls;
  look_up(library, "cublasLtCreate", calls.create);
  look_up(library, "cublasLtDestroy", calls.destroy);
  look_up(library, "cublasLtGetVersion", calls.version);
  look_up(library, "cublasLtGetStatusString", calls.status_string);
  look_up(library, "cublasLtMatmul", calls.matmul);
  look_up(library, "cublasLtMatmulAlgoGetHeuristic", calls.heuristic);
  look_up(library, "cublasLtMatmulDescCreate", calls.desc_create);
  look_up(library, "cublasLtMatmulDescDestroy", calls.desc_destroy);
  look_up(library, "cublasLtMatmulDescSetAttribute", calls.desc_set);
  look_up(library, "cublasLtMatrixLayoutCreate", calls.layout_create);
  look_up(library, "cublasLtMatrixLayoutDestroy", calls.layout_destroy);
  look_up(library, "cublasLtMatmulPreferenceCreate", calls.preference_create);
  look_up(library, "cublasLtMatmulPreferenceDestroy", calls.preference_destroy);
  look_up(library, "cublasLtMatmulPreferenceSetAttribute", calls.preference_set);
  return calls;
}

}  // namespace

const CublasCalls& system_cublas_calls() {
  static const CublasCalls calls = load();
  return calls;
}

}  // namespace isthmus::cuda
