// SPDX-License-Identifier: Apache-2.0
// Communicators of threads of one process. A reduction is divided: each rank reduces its 1/n of the
// values directly from and into all ranks' memory, so every value is read once and written once a
// rank, and nothing is copied.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "transport/collectives/communicator.h"

namespace isthmus {

/// One a rank, in rank order, each driven by its own thread. `deadline`: how long a call waits for
/// the other ranks. `places`: the ranks' descriptions in errors (RankNames). REQUIRES: 1 <= size <
/// 2047.
[[nodiscard]] std::vector<std::unique_ptr<Communicator>> make_thread_communicators(
    int size, std::chrono::milliseconds deadline, std::vector<std::string> places = {});

/// The communicator of a single rank: at most copies.
[[nodiscard]] std::unique_ptr<Communicator> make_self_communicator();

}  // namespace isthmus
