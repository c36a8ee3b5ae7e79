// SPDX-License-Identifier: Apache-2.0
// The functions of cuBLASLt that products call, as a table: tests put another library in their
// place. The library is loaded when it is first asked for, so a program that was built with CUDA
// starts where it is absent.
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

/// Those of the library of this name or path, which stays open for the life of the process.
/// THROWS: SystemError naming it, the version that this build was made with, and the package it
/// comes with, where it cannot be loaded, is of another major version or lacks a function.
[[nodiscard]] CublasCalls load_cublas_calls(const std::string& library);

/// Those of this machine, loaded once for the life of the process.
/// THROWS: as load_cublas_calls.
[[nodiscard]] const CublasCalls& system_cublas_calls();

}  // namespace isthmus::cuda
