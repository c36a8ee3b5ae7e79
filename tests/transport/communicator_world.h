// SPDX-License-Identifier: Apache-2.0
// Where the tests of communicators get their ranks: threads of this process, or the processes of an
// MPI job, which run the same tests side by side.
#pragma once

#include <chrono>
#include <functional>
#include <memory>

#include "transport/collectives/communicator.h"

namespace isthmus::testing_support {

inline constexpr std::chrono::milliseconds kLongDeadline = std::chrono::minutes(2);

/// Of runs in which somebody is waited for in vain; joining has to be done within it too.
[[nodiscard]] std::chrono::milliseconds short_deadline();

/// Ranks a group may have here.
[[nodiscard]] int most_ranks();

/// What is tested, between ranks that can meet over `ranks`: that one itself, or what is made from
/// it (communicator_tested.cpp). Collective.
[[nodiscard]] std::unique_ptr<Communicator> tested_communicator(std::unique_ptr<Communicator> ranks,
                                                                std::chrono::milliseconds deadline);

/// body(communicator) on each of `size` ranks; what it throws is a failure of the test, and ends
/// the others' calls. Over MPI, processes beyond `size` do nothing.
void run_ranks(int size, const std::function<void(Communicator&)>& body,
               std::chrono::milliseconds deadline = kLongDeadline);

}  // namespace isthmus::testing_support
