// SPDX-License-Identifier: Apache-2.0
#include "session/site/late_arrival.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "core/base/log.h"
#include "isthmus/errors.h"
#include "session/run/partial_state_file.h"

namespace isthmus::app {
namespace {

constexpr Duration kLookWhileFetching = std::chrono::milliseconds(200);
constexpr Duration kBetweenReports = std::chrono::seconds(10);
constexpr Duration kBetweenQuestions = std::chrono::seconds(2);

}  // namespace

std::optional<SiteStart> LateArrival::come_late(
    TimePoint deadline, const std::function<void(const std::string&)>& say) {
  std::optional<std::vector<int>> linked = find_all(deadline);
  if (!linked) return std::nullopt;
  {
    const std::scoped_lock lock(all_.calls);
    bool is_past = false;
    all_.queue->update([&] { is_past = !all_.arrival.running; });
    if (is_past) return std::nullopt;
    const WorkerId to = all_.donor();
    all_.queue->update([&] { all_.arrival.donor = to; });
    std::unique_ptr<PartialStateFile> saved;
    if (!all_.facts.folder.empty()) {
      saved = std::make_unique<PartialStateFile>(all_.storage,
                                                 all_.facts.folder / PartialStateFile::kFile);
    }
    all_.newcomer = std::make_unique<Joiner>(
        *links_.exchange, all_.runtime, to, all_.names(),
        [this](WorkerId site, const Note& note) { links_.send(site, note); }, std::move(saved),
        all_.takes_back);
  }
  links_.exchange->stand_aside();
  links_.send(all_.donor(), all_.newcomer->join(*linked));
  TimePoint next_word = all_.now() + kBetweenReports;
  const auto fetched = [&] {
    try {
      return all_.newcomer->fetch(all_.now() + kLookWhileFetching);
    } catch (const PeerError&) {
      check_turned_away();  // it may start over, or another donor have it
      throw;
    }
  };
  while (!fetched()) {
    all_.check_stop("the state of the run is on its way");
    check_turned_away();
    bool asked_again = false;
    all_.queue->update(
        [&] { asked_again = all_.arrival.running && all_.arrival.running->live != *linked; });
    if (asked_again) {  // it may have waited its turn for longer than the first deadline
      linked = find_all(all_.now() + all_.config.net.gather);
      links_.send(all_.donor(), all_.newcomer->join(linked.value()));
    }
    if (all_.now() >= next_word) {
      say(all_.newcomer->progress());
      next_word += kBetweenReports;
    }
  }
  if (all_.has_hub()) {
    links_.forward(all_.newcomer->exchange());
  }
  std::string run_id;
  all_.queue->update([&] { run_id = all_.arrival.running->run_id; });
  return SiteStart{.run_id = run_id, .resume_after = std::nullopt, .joins = all_.newcomer->offer()};
}

std::optional<std::vector<int>> LateArrival::find_all(TimePoint deadline) {
  TimePoint ask_again = all_.now() + kBetweenQuestions;
  while (true) {
    all_.check_stop("not all sites of the run have answered");
    check_turned_away();
    std::optional<RunningNote> running;
    all_.queue->update([&] { running = all_.arrival.running; });
    if (!running) return std::nullopt;
    const std::vector<WorkerId> live(running->live.begin(), running->live.end());
    const TimePoint now = all_.now();
    const auto linked = links_.transport->await_members(now + kLookWhileFetching, live);
    if (linked) {
      for (const WorkerId site : live) meeting_.say_hello(site);
      // A site that has answered will send its rounds' frames to this process, not to the earlier
      // one.
      const auto seen = [&] {
        return std::ranges::all_of(live, [&](WorkerId site) {
          return site == all_.coordinator ||
                 all_.arrival.seen_by[static_cast<std::size_t>(site.value())];
        });
      };
      if (all_.queue->wait(seen, now + kLookWhileFetching)) {
        log_info("the run goes on with {} of {} sites: joining", live.size(),
                 all_.config.workers());
        return running->live;
      }
    }
    if (!linked && linked.error().refused) throw_refused(linked.error());
    if (now >= deadline) {
      throw PeerError(fmt::format("not all sites of the run have answered within net.gather{}{}",
                                  linked ? "" : ": ", linked ? "" : linked.error().what));
    }
    if (now >= ask_again) {  // the set of sites in the run may have changed
      links_.send(all_.coordinator, meeting_.hello());
      ask_again = now + kBetweenQuestions;
    }
  }
}

void LateArrival::check_turned_away() {
  std::optional<TurnedAwayNote> turned_away;
  std::optional<std::string> lost;
  std::exception_ptr failure;
  bool other_donor = false;
  bool is_past = false;
  all_.queue->update([&] {
    turned_away = all_.arrival.turned_away;
    is_past = all_.arrival.is_past;
    other_donor = all_.has_hub() && all_.arrival.donor &&
                  all_.arrival.running->donor != all_.arrival.donor->value();
    lost = all_.fate.first_lost;
    failure = all_.fate.failure;
  });
  if (turned_away && turned_away->configuration) throw ConfigError(turned_away->why);
  if (turned_away && turned_away->again) throw TryAgainError(turned_away->why);
  if (turned_away) throw PeerError(turned_away->why);
  if (is_past) throw TryAgainError("the hub has begun anew while this site was joining");
  if (other_donor) {
    throw TryAgainError("the hub has named another site than the one that was to give its state");
  }
  if (lost && all_.has_hub()) {
    throw TryAgainError(fmt::format("site {} is gone ({})", all_.name(all_.donor()), *lost));
  }
  if (lost) throw TryAgainError(fmt::format("site {} is gone ({})", all_.name(WorkerId(0)), *lost));
  if (failure) std::rethrow_exception(failure);
}

}  // namespace isthmus::app
