// SPDX-License-Identifier: Apache-2.0
// The threads that are the ranks of a mesh, which run side by side and meet in communicators. One
// that never comes back cannot be stopped, as a process could: whoever waits for it finds out who
// it is and tells, and the team is of no use any more. One thread drives a team.
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

/// Of ranks that wait for one another.
struct RankPatience {
  /// How long in one call.
  std::chrono::milliseconds wait = std::chrono::hours(24);
  /// Told, on a rank's thread, when that was too long and some rank has not come back after a roll
  /// call's length either: the error in words, with all of these, so a healthy one too that
  /// computes for longer than the roll call. It should end the process: the threads cannot be
  /// joined. Empty: nobody is told.
  std::function<void(const std::string& error)> on_hang = {};
};

class RankTeam {
 public:
  /// THROWS: SystemError when the system refuses a thread.
  RankTeam(const MeshShape& mesh, RankPatience patience);

  [[nodiscard]] std::size_t size() const { return worlds_.size(); }
  /// Of all ranks, as rank `rank` sees them.
  [[nodiscard]] Communicator& world(std::size_t rank) { return *worlds_[rank]; }
  /// body(rank) for all ranks side by side. Blocks until all are back; with on_hang they wait for
  /// one another at the end, so that one that hangs outside of communicators is missed as well.
  /// THROWS: what the first rank that failed threw, before those that have waited for it in vain (a
  /// CommunicatorError), and of these the first, as PeerError with on_hang and as RunError without;
  /// the others are told and end.
  void run(const std::function<void(std::size_t rank)>& body);

 private:
  struct Pass;
  void fail(Pass& pass, std::size_t rank, const char* cause);

  MeshShape mesh_;
  RankPatience patience_;
  kernels::ThreadTeam threads_;  // one a rank
  std::vector<std::unique_ptr<Communicator>> worlds_;
};

}  // namespace isthmus
