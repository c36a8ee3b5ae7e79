// SPDX-License-Identifier: Apache-2.0
// A numbered membership: who contributes to rounds from some step on. Decided by member 0.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "isthmus/types.h"

namespace isthmus {

struct Epoch {
  std::uint32_t number = 0;
  std::vector<bool> live;   // by member
  WorkerId who;             // whose coming or going made it; meaningless for number 0
  bool joins = false;       // `who` has come
  bool leaves = false;      // it takes leave: rounds sent by `after` still end with it; else gone
  std::int64_t after = -1;  // holds for rounds sent after this step; -1, of a loss: for all open
  std::string why;          // for people
};

}  // namespace isthmus
