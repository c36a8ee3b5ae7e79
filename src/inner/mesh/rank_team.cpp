// SPDX-License-Identifier: Apache-2.0
#include "inner/mesh/rank_team.h"

#include <fmt/format.h>

#include <algorithm>
#include <condition_variable>
#include <exception>
#include <mutex>

#include "inner/mesh/rank_processes.h"
#include "isthmus/errors.h"
#include "transport/collectives/thread_communicator.h"

namespace isthmus {

/// The shared state of the ranks of one `run`.
struct RankTeam::Pass {
  explicit Pass(std::size_t ranks) : back(ranks, false) {}
  [[nodiscard]] bool all_back() const {
    return std::ranges::all_of(back, [](bool each) { return each; });
  }

  std::mutex mutex;
  std::condition_variable changed;
  // Under mutex:
  std::vector<bool> back;  // the rank's body has returned, or thrown
  std::exception_ptr first;
  bool waited = false;  // `first` is of a call that waited for others
  bool told = false;
};

RankTeam::RankTeam(const MeshShape& mesh, RankPatience patience)
    : mesh_(mesh),
      patience_(std::move(patience)),
      threads_(mesh.ranks()),
      worlds_(make_thread_communicators(mesh.ranks(), patience_.wait, rank_places(mesh))) {}

void RankTeam::run(const std::function<void(std::size_t)>& body) {
  Pass pass(worlds_.size());
  threads_.for_each(static_cast<std::int64_t>(worlds_.size()), [&](std::int64_t rank, int) {
    const auto i = static_cast<std::size_t>(rank);
    try {
      body(i);
      if (patience_.on_hang) worlds_[i]->barrier();  // missed here, whatever holds a rank up
    } catch (const std::exception& error) {
      fail(pass, i, error.what());
      return;
    }
    const std::lock_guard lock(pass.mutex);
    pass.back[i] = true;
    pass.changed.notify_all();
  });
  if (!pass.first) return;
  try {
    std::rethrow_exception(pass.first);
  } catch (const CommunicatorError& error) {
    if (!patience_.on_hang) throw RunError(error.what());
    throw PeerError(fmt::format("{}; all ranks answer; {}", error.what(), kRankRemedy));
  }
}

// Called while its exception is handled. A rank that waits for another ends when its communicator
// does, so those that are not back a roll call later are the ones to blame.
void RankTeam::fail(Pass& pass, std::size_t rank, const char* cause) {
  bool waited = false;
  try {
    throw;
  } catch (const CommunicatorError&) {
    waited = true;
  } catch (const std::exception&) {
  }
  std::unique_lock lock(pass.mutex);
  if (!pass.first || (pass.waited && !waited)) {  // a cause counts before its consequences
    pass.first = std::current_exception();
    pass.waited = waited;
  }
  pass.back[rank] = true;
  pass.changed.notify_all();
  lock.unlock();
  worlds_[rank]->abort(cause);
  lock.lock();
  if (!pass.waited || !patience_.on_hang) return;
  const auto wait = roll_call_wait(patience_.wait);
  if (pass.changed.wait_for(lock, wait, [&] { return pass.all_back(); }) || pass.told) return;
  pass.told = true;
  std::string missing;
  const std::vector<std::string> places = rank_places(mesh_);
  for (std::size_t i = 0; i < pass.back.size(); ++i) {
    if (pass.back[i]) continue;
    missing += fmt::format("{}rank {} ({})", missing.empty() ? "" : ", ", i, places[i]);
  }
  lock.unlock();
  patience_.on_hang(fmt::format(
      "the mesh has lost ranks: {} did not come back for {:g} s more; it began with {}; "
      "threads cannot be stopped, so the process ends; {}",
      missing, in_seconds(wait), cause, kRankRemedy));
}

}  // namespace isthmus
