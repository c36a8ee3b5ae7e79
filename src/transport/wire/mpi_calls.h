// SPDX-License-Identifier: Apache-2.0
// Shared by the MPI files. MPI is started with MPI_THREAD_SERIALIZED: a caller holds mpi_mutex(),
// and only for calls that do not wait for another process.
#pragma once

#include <mpi.h>

#include <chrono>
#include <mutex>

#include "isthmus/types.h"

namespace isthmus {

inline std::mutex& mpi_mutex() {
  static std::mutex mutex;
  return mutex;
}

/// The processes of the job that this process's communicators and transport connect; as global as
/// MPI itself. Set by split_mpi_job, before a second thread exists; `abandoned` by the transport's
/// end.
struct MpiJob {
  MPI_Comm ranks = MPI_COMM_WORLD;
  MPI_Comm members = MPI_COMM_WORLD;
  bool split = false;
  bool abandoned = false;  // the transport has missed a farewell: MPI_Finalize would wait for it
};
[[nodiscard]] MpiJob& mpi_job();

/// Pauses of a task that polls MPI, from the first one to the longest: MPI wakes no thread.
inline constexpr Duration kShortestMpiNap = std::chrono::microseconds(20);
inline constexpr Duration kLongestMpiNap = std::chrono::milliseconds(1);

/// THROWS: SystemError with MPI's error text unless `code` is success.
void check_mpi(int code, const char* what);

}  // namespace isthmus
