// SPDX-License-Identifier: Apache-2.0
// What the MPI files share. MPI is started with MPI_THREAD_SERIALIZED: whoever calls it holds
// mpi_mutex(), and only for calls that do not wait for another process.
#pragma once

#include <mutex>

namespace isthmus {

inline std::mutex& mpi_mutex() {
  static std::mutex mutex;
  return mutex;
}

/// THROWS: SystemError with MPI's words when `code` is none of success.
void check_mpi(int code, const char* what);

}  // namespace isthmus
