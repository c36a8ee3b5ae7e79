// SPDX-License-Identifier: Apache-2.0
// Communicators of threads of one process. A reduction is shared out: each rank reduces its 1/n of
// the values straight from and into everybody's memory, so every value is read once and written
// once for each rank, and nothing is copied.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "transport/collectives/communicator.h"

namespace isthmus {

/// One for each rank, in rank order, each to be driven by a thread of its own. `deadline`: how long
/// a call waits for the other ranks. `places`: what each is in errors (RankNames). REQUIRES: 1 <=
/// size < 2047.
[[nodiscard]] std::vector<std::unique_ptr<Communicator>> make_thread_communicators(
    int size, std::chrono::milliseconds deadline, std::vector<std::string> places = {});

/// The communicator of a rank that is alone: copies at most.
[[nodiscard]] std::unique_ptr<Communicator> make_self_communicator();

}  // namespace isthmus
