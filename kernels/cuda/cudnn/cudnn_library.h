// SPDX-License-Identifier: Apache-2.0
// cuDNN's library, loaded at first use.
#pragma once

#include <cstddef>
#include <string>

namespace isthmus::cuda {

struct CudnnLibrary {
  void* handle = nullptr;   // of dlopen, open for the life of the process
  std::size_t version = 0;  // result of cudnnGetVersion: 91900 is 9.19.0
  std::string missing;      // why it cannot be used, with the remedy; empty if it can
};

/// RETURNS: `name` loaded, or why not: it is absent, has another major version than `major`, is
/// older than `oldest`, or lacks the library that its frontend also needs (libcudart.so,
/// `runtime`).
[[nodiscard]] CudnnLibrary load_cudnn(const std::string& name, int major, std::size_t oldest,
                                      const std::string& runtime);

/// The library of this machine, loaded once: of the major version of the headers in this build.
[[nodiscard]] const CudnnLibrary& system_cudnn();

}  // namespace isthmus::cuda
