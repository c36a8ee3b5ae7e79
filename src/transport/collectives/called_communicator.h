// SPDX-License-Identifier: Apache-2.0
// A communicator over the calls of somebody else's collectives (torch.distributed), as far as the
// outer state of a site's ranks needs one: broadcasts from rank 0, and shares that travel between
// rank 0 and the others. One thread; the calls are made on it. DETERMINISM: bytes are moved, and
// nothing is reduced.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <span>

#include "transport/collectives/communicator.h"

namespace isthmus {

/// One rank's calls. Each blocks until its bytes are there, and throws on failure. Messages between
/// two ranks arrive in order.
struct RankCalls {
  int rank = 0;
  int size = 1;
  std::function<void(std::span<std::byte> bytes)> broadcast;  // rank 0's
  std::function<void(std::span<const std::byte> bytes, int to)> send;
  std::function<void(std::span<std::byte> bytes, int from)> receive;
};

/// all_to_all is for calls in which rank 0 alone sends to others, or alone receives. Any other
/// operation THROWS CommunicatorError. THROWS too: what a call throws.
[[nodiscard]] std::unique_ptr<Communicator> make_called_communicator(RankCalls calls);

}  // namespace isthmus
