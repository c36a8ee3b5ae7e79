// SPDX-License-Identifier: Apache-2.0
// The functions of cuBLASLt in use, as a table: tests substitute another library. The library is
// loaded at first use, so a program built with CUDA also starts without it.
#pragma once

#include <cublasLt.h>

#include <string>

namespace isthmus::cuda {

struct CublasCalls {
  decltype(&cublasLtCreate) create = nullptr;
  decltype(&cublasLtDestroy) destroy = nullptr;
  decltype(&cublasLtGetVersion) version = nullptr;
  decltype(&cublasLtGetStatusString) status_string = nullptr;
  decltype(&cublasLtMatmul) matmul = nullptr;
  decltype(&cublasLtMatmulAlgoGetHeuristic) heuristic = nullptr;
  decltype(&cublasLtMatmulDescCreate) desc_create = nullptr;
  decltype(&cublasLtMatmulDescDestroy) desc_destroy = nullptr;
  decltype(&cublasLtMatmulDescSetAttribute) desc_set = nullptr;
  decltype(&cublasLtMatrixLayoutCreate) layout_create = nullptr;
  decltype(&cublasLtMatrixLayoutDestroy) layout_destroy = nullptr;
  decltype(&cublasLtMatmulPreferenceCreate) preference_create = nullptr;
  decltype(&cublasLtMatmulPreferenceDestroy) preference_destroy = nullptr;
  decltype(&cublasLtMatmulPreferenceSetAttribute) preference_set = nullptr;
};

/// The functions of the library with this name or path, which stays open for the life of the
/// process. THROWS: SystemError naming the library, the version that this build was made with, and
/// its package, when it cannot be loaded, has another major version or lacks a function.
[[nodiscard]] CublasCalls load_cublas_calls(const std::string& library);

/// The functions of this machine's library, loaded once for the life of the process. THROWS: as
/// load_cublas_calls.
[[nodiscard]] const CublasCalls& system_cublas_calls();

}  // namespace isthmus::cuda
