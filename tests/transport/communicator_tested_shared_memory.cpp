// SPDX-License-Identifier: Apache-2.0
#include "transport/communicator_world.h"
#include "transport/shared_memory_communicator.h"

namespace isthmus::testing_support {

std::unique_ptr<Communicator> tested_communicator(std::unique_ptr<Communicator> ranks,
                                                  std::chrono::milliseconds deadline) {
  return make_shared_memory_communicator(std::move(ranks), deadline);
}

}  // namespace isthmus::testing_support
