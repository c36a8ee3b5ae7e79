// SPDX-License-Identifier: Apache-2.0
// A numbered membership: the members of rounds from some step on. Decided by the coordinator.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "isthmus/types.h"

namespace isthmus {

struct Epoch {
  std::uint32_t number = 0;
  std::vector<bool> live;   // by member
  WorkerId who;             // the member that joined, left or was lost; meaningless for number 0
  bool joins = false;       // `who` has joined
  bool leaves = false;      // `who` leaves: it ends rounds sent by `after`; else lost
  std::int64_t after = -1;  // holds for rounds sent after it; -1, after a loss: for all open ones
  std::string why;          // for people
};

}  // namespace isthmus
