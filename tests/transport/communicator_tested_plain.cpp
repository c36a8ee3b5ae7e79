// SPDX-License-Identifier: Apache-2.0
#include "transport/communicator_world.h"

namespace isthmus::testing_support {

std::unique_ptr<Communicator> tested_communicator(std::unique_ptr<Communicator> ranks,
                                                  std::chrono::milliseconds) {
  return ranks;
}

}  // namespace isthmus::testing_support
