// SPDX-License-Identifier: Apache-2.0
// cuDNN's library, loaded when it is first asked for.
#pragma once

#include <cstddef>
#include <string>

namespace isthmus::cuda {

struct CudnnLibrary {
  void* handle = nullptr;   // of dlopen, open for the life of the process
  std::size_t version = 0;  // as cudnnGetVersion says: 91900 is 9.19.0
  std::string missing;      // why it cannot be used, with the remedy; empty where it can
};

/// RETURNS: `name` loaded, or why not: it is not there, has another major version than `major`, is
/// older than `oldest`, or lacks what its frontend looks for besides (libcudart.so, `runtime`).
[[nodiscard]] CudnnLibrary load_cudnn(const std::string& name, int major, std::size_t oldest,
                                      const std::string& runtime);

/// That of this machine, loaded once: of the major version whose headers this was compiled with.
[[nodiscard]] const CudnnLibrary& system_cudnn();

}  // namespace isthmus::cuda
