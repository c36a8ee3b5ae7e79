// SPDX-License-Identifier: Apache-2.0
// Limits of the system on files: how many are open, for programs at their start, and how large one
// may be.
#pragma once

#include <sys/resource.h>

#include <cstdint>
#include <limits>

namespace isthmus {

/// Raises the soft limit (ulimit -n) to the hard limit (ulimit -Hn). The soft limit is 1,024 on
/// most systems because of programs that call select(); links with many connections, relays and
/// arrays in files need more. Child processes inherit it.
inline void allow_many_open_files() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  (void)::setrlimit(RLIMIT_NOFILE, &limit);  // if refused: code that needs more files reports it
}

/// Bytes that a file may have (ulimit -f).
[[nodiscard]] inline std::uint64_t most_file_bytes() {
  rlimit limit{};
  const bool known = ::getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY;
  return known ? std::uint64_t{limit.rlim_cur} : std::numeric_limits<std::uint64_t>::max();
}

}  // namespace isthmus
