// SPDX-License-Identifier: Apache-2.0
// The threads that are the ranks of a mesh; they run concurrently and meet in communicators. A
// thread that hangs cannot be stopped, as a process could: the rank that waits for it identifies it
// and reports it, and the team must not be used afterwards. One thread drives a team.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "inner/mesh/mesh.h"
#include "kernels/thread_team.h"
#include "transport/collectives/communicator.h"

namespace isthmus {

/// Timeouts of ranks that wait for one another.
struct RankPatience {
  /// Timeout of one call.
  std::chrono::milliseconds wait = std::chrono::hours(24);
  /// Called on a rank's thread when a call has timed out and some rank does not answer a roll call
  /// either. `error` names all ranks that do not answer, which may include a healthy rank that
  /// computes for longer than the roll call. The function should end the process, since the threads
  /// cannot be joined. Empty: no call.
  std::function<void(const std::string& error)> on_hang = {};
};

class RankTeam {
 public:
  /// THROWS: SystemError when the system refuses a thread.
  RankTeam(const MeshShape& mesh, RankPatience patience);

  [[nodiscard]] std::size_t size() const { return worlds_.size(); }
  /// Communicator over all ranks, for rank `rank`.
  [[nodiscard]] Communicator& world(std::size_t rank) { return *worlds_[rank]; }
  /// Runs body(rank) on all ranks concurrently. Blocks until all have returned; with on_hang they
  /// wait for one another at the end, so that a rank that hangs outside communicators is detected
  /// too. When a rank fails, the others are told and end. THROWS: the exception of the first rank
  /// that failed for its own reason; if all only waited in vain (CommunicatorError), that of the
  /// first of these, as PeerError with on_hang and as RunError without.
  void run(const std::function<void(std::size_t rank)>& body);

 private:
  struct Pass;
  void fail(Pass& pass, std::size_t rank, const char* cause);

  MeshShape mesh_;
  RankPatience patience_;
  kernels::ThreadTeam threads_;  // one thread a rank
  std::vector<std::unique_ptr<Communicator>> worlds_;
};

}  // namespace isthmus
