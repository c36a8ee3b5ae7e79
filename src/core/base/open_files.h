// SPDX-License-Identifier: Apache-2.0
// How many files and connections the program may have open. For programs, at their start.
#pragma once

#include <sys/resource.h>

namespace isthmus {

/// Raises the soft limit (ulimit -n) to the hard one (ulimit -Hn). The soft limit is 1,024 on most
/// systems for the sake of programs that call select(); links of many connections, relays and
/// arrays in files want more. Processes started by this one inherit it.
inline void allow_many_open_files() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  (void)::setrlimit(RLIMIT_NOFILE, &limit);  // refused: what needs more says so
}

}  // namespace isthmus
