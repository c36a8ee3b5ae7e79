// SPDX-License-Identifier: Apache-2.0
// System calls that a signal may interrupt.
#pragma once

#include <cerrno>

namespace isthmus {

/// Repeats `call` while signals interrupt it. RETURNS: its result; negative: an error, see errno.
template <typename Call>
auto retried(const Call& call) {
  auto result = call();
  while (result < 0 && errno == EINTR) result = call();
  return result;
}

}  // namespace isthmus
