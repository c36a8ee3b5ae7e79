// SPDX-License-Identifier: Apache-2.0
// What the MPI files share. MPI is started with MPI_THREAD_SERIALIZED: whoever calls it holds
// mpi_mutex(), and only for calls that do not wait for another process.
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

/// Which of the job's processes this process's communicators and its transport are of; as global as
/// MPI itself. Set by split_mpi_job, before there is a second thread; `abandoned` by the
/// transport's end.
struct MpiJob {
  MPI_Comm ranks = MPI_COMM_WORLD;
  MPI_Comm members = MPI_COMM_WORLD;
  bool split = false;
  bool abandoned = false;  // the transport has missed a farewell: MPI_Finalize would wait for it
};
[[nodiscard]] MpiJob& mpi_job();

/// Naps of a task that asks MPI again and again, from the first one to the longest: MPI wakes
/// nobody.
inline constexpr Duration kShortestMpiNap = std::chrono::microseconds(20);
inline constexpr Duration kLongestMpiNap = std::chrono::milliseconds(1);

/// THROWS: SystemError with MPI's words when `code` is none of success.
void check_mpi(int code, const char* what);

}  // namespace isthmus
