// SPDX-License-Identifier: Apache-2.0
// The communicator under test: that of the ranks, or with ISTHMUS_TESTED_COMMUNICATOR=shared_memory
// in the environment a shared-memory communicator over it.
#include <cstdlib>
#include <string_view>

#include "transport/collectives/shared_memory_communicator.h"
#include "transport/communicator_world.h"

namespace isthmus::testing_support {

std::unique_ptr<Communicator> tested_communicator(std::unique_ptr<Communicator> ranks,
                                                  std::chrono::milliseconds deadline) {
  const char* const tested = std::getenv("ISTHMUS_TESTED_COMMUNICATOR");
  if (tested == nullptr || std::string_view(tested) != "shared_memory") return ranks;
  return make_shared_memory_communicator(std::move(ranks), deadline);
}

}  // namespace isthmus::testing_support
