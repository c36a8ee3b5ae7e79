// SPDX-License-Identifier: Apache-2.0
// Calls of the operating system that a signal may interrupt.
#pragma once

#include <cerrno>

namespace isthmus {

/// `call` again for as long as a signal interrupts it. RETURNS: its result; negative: an error, in
/// errno.
template <typename Call>
auto retried(const Call& call) {
  auto result = call();
  while (result < 0 && errno == EINTR) result = call();
  return result;
}

}  // namespace isthmus
