// SPDX-License-Identifier: Apache-2.0
// The limit of open files and connections of the program. For programs, at their start.
#pragma once

#include <sys/resource.h>

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

}  // namespace isthmus
