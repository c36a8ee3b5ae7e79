// SPDX-License-Identifier: Apache-2.0
// How a site's session begins: together with the others, or late.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <functional>

#include "app/signals.h"
#include "app/site_links.h"
#include "app/site_routes.h"
#include "app/site_session.h"
#include "core/log.h"
#include "isthmus/errors.h"

namespace isthmus::app {
namespace {

constexpr Duration kLookForSignals = std::chrono::milliseconds(200);
constexpr Duration kBetweenLooks = std::chrono::milliseconds(20);
constexpr Duration kBetweenWords = std::chrono::seconds(10);
/// Sites that start together have found each other by then; asking costs nothing but a note.
constexpr Duration kOthersTakeTheirTime = std::chrono::seconds(1);
/// Beyond net.dead_after, for a link that stands later than others: a detour is looked for by then.
constexpr Duration kLinksTakeTheirTime = std::chrono::seconds(5);
constexpr Duration kBetweenQuestions = std::chrono::seconds(2);
/// Who refuses this site knows by its greeting what differs. One that this site refuses learns it
/// as it is answered; in plain text it may have to greet this site itself for that, as what anybody
/// could say ends nobody: within ZeroMQ's time between attempts, and what they take.
constexpr Duration kOthersHearIt = std::chrono::seconds(1);
constexpr Duration kOthersGreet = std::chrono::seconds(3);

void check_signal(const std::string& waiting_for) {
  if (const StopWish wish = SignalScope::wish(); wish != StopWish::kNone) {
    throw Error(exit_code_of(wish), fmt::format("stopped before the first step: {}", waiting_for));
  }
}

/// Of links that a peer refuses, or is refused: what the files differ in is theirs to mend, as is
/// what sites find in one another's greetings once they have met.
[[noreturn]] void throw_refused(const JoinError& error) {
  switch (error.field) {
    case RefusedField::kProtocol:
    case RefusedField::kRun:
    case RefusedField::kConfiguration:
    case RefusedField::kLayout:
    case RefusedField::kMembers:
    case RefusedField::kPlace:
      throw ConfigError(error.what);
    case RefusedField::kIncarnation:
    case RefusedField::kGivenUp:
    case RefusedField::kMalformed:
    case RefusedField::kKey:
      break;
  }
  throw PeerError(error.what);
}

}  // namespace

TimePoint SiteSession::gather_end() {
  const TimePoint now = runtime_.clock().now();
  if (meanwhile_.goes_on && meanwhile_.goes_on()) gather_end_ = now + config_.net.gather;
  return gather_end_;
}

SiteStart SiteSession::gather(const std::function<void(const std::string&)>& say,
                              Meanwhile meanwhile) {
  meanwhile_ = std::move(meanwhile);
  gather_end_ = runtime_.clock().now() + config_.net.gather;
  std::vector<std::string> endpoints;  // MPI knows its own
  if (routes_) endpoints = routes_->endpoints();
  if (has_hub()) endpoints.push_back("tcp://" + config_.hub.address);
  transport_->join(endpoints, routes_ ? routes_->detours() : std::vector<std::string>());
  queue_->update([&] {
    const auto own = static_cast<std::size_t>(self_.value());
    hellos_[own] = hello();
    greeted_[own] = true;
  });
  TimePoint next_word = runtime_.clock().now() + kBetweenWords;
  meet(say);
  bool goes_on = false;
  const auto settled = [&] {
    if (first_starts() && first_lost_) return false;
    goes_on = running_ || turned_away_;
    const bool over = goes_on || failure_ || (lost_ && !elastic_) || may_start();
    if (over) {
      meets_ = false;
      met_ = {hellos_, returns_};
    }
    return over;
  };
  do {
    const TimePoint now = runtime_.clock().now();
    check_signal(awaits());
    say_hellos();
    check_meeting();
    if (now >= gather_end()) throw PeerError(awaits() + " within net.gather");
    if (now >= next_word) {
      say(awaits());
      next_word = now + kBetweenWords;
    }
  } while (!queue_->wait(settled, runtime_.clock().now() + kLookForSignals));
  if (meanwhile_.end) meanwhile_.end();
  meanwhile_ = {};
  return goes_on ? come_late(gather_end(), say) : start_together();
}

/// Who is to be found at a start. Where the hub says whose keys count, it is asked first.
std::vector<Rank> SiteSession::awaited() const {
  std::vector<Rank> these;
  if (links_.keys_from) {
    these = transport_->members_with_keys().value_or(std::vector<Rank>{coordinator_});
  } else {
    for (int m = 0; m < transport_->size(); ++m) these.push_back(Rank(m));
  }
  std::erase(these, self_);
  return these;
}

void SiteSession::meet(const std::function<void(const std::string&)>& say) {
  const TimePoint begin = runtime_.clock().now();
  TimePoint next_word = begin + kBetweenWords;
  const std::array first = {coordinator_};
  while (true) {
    const TimePoint now = runtime_.clock().now();
    const std::vector<Rank> these = awaited();
    const TimePoint deadline = gather_end();
    const auto joined = transport_->await_members(std::min(deadline, now + kLookForSignals), these);
    const bool told = !links_.keys_from || transport_->members_with_keys();
    if (joined && told && these == awaited()) {
      break;
    }
    if (joined) {  // the hub has not said yet who else may come, or somebody may by now
      check_signal("the hub has not said whose keys count");
      if (now >= deadline)
        throw PeerError("the hub has not said whose keys count within net.gather");
      runtime_.sleep_until(now + kBetweenLooks);
      continue;
    }
    check_signal(joined.error().what);
    if (joined.error().refused) {
      runtime_.sleep_until(now + (links_.keys ? kOthersHearIt : kOthersGreet));
      throw_refused(joined.error());
    }
    // The others may have gone on, without more than this site: the first one knows.
    if (elastic_ && self_ != coordinator_ && (!exchange_ || has_hub()) &&
        now - begin >= kOthersTakeTheirTime && transport_->await_members(now, first)) {
      if (!exchange_) open_exchange();
      say_hello(coordinator_);
    }
    bool goes_on = false, first_lost = false, begun = false;
    queue_->update([&] { first_lost = first_starts() && first_lost_; });
    if (first_lost) {  // the others may have left for a difference, and wait for no link
      for (const Rank site : these) {
        if (site == coordinator_) continue;
        if (transport_->await_members(now, std::array{site})) say_hello(site);
      }
    }
    check_meeting();
    // Site 0 begins once it has heard all. What sites tell one another from then on is told once,
    // so every link has to stand before this one begins too; one that never does is found late.
    queue_->update([&] {
      goes_on = running_ || turned_away_;
      begun = first_starts() && start_ &&
              now >= told_at_ + config_.net.dead_after + kLinksTakeTheirTime;
    });
    if (goes_on) {
      return;
    }
    if (begun) {
      throw TryAgainError(fmt::format("the run has begun, and {}", joined.error().what));
    }
    if (runtime_.clock().now() >= deadline) {
      throw PeerError(fmt::format("the sites did not come together within net.gather: {}{}",
                                  joined.error().what, routes_ ? routes_->troubles() : ""));
    }
    if (runtime_.clock().now() >= next_word) {
      say(joined.error().what + (routes_ ? routes_->troubles() : ""));
      next_word += kBetweenWords;
    }
  }
  log_info("the {} sites are together{}", config_.workers(),
           transport_->endpoint().starts_with("mpi:") ? ", over MPI"
           : !links_.keys                             ? ", over TCP in plain text"
                                                      : ", over encrypted TCP");
  if (!exchange_) open_exchange();
}

SiteStart SiteSession::start_together() {
  std::vector<std::string> heard;
  std::vector<HelloNote> facts;
  std::optional<std::pair<Rank, std::string>> lost;
  std::exception_ptr failure;
  std::optional<StartNote> told;
  std::size_t absent = 0;
  queue_->update([&] {
    failure = failure_;
    lost = lost_;
    for (std::size_t m = 0; m < met_.hellos.size(); ++m) {
      absent += is_absent(m) ? 1 : 0;
      if (!met_.hellos[m] || is_absent(m)) continue;
      heard.push_back(name(Rank(static_cast<int>(m))));
      facts.push_back(*met_.hellos[m]);
    }
    told = start_;
  });
  if (failure) {
    std::rethrow_exception(failure);
  }
  SiteStart start;
  if (first_starts() && self_ != coordinator_) {
    start = {
        .run_id = told->run_id, .resume_after = told->resume_after, .given_up = told->given_up};
  } else {
    start = agree_on_start(heard, facts, enough(), config_.ckpt.every_steps);
    if (facts.size() + absent < met_.hellos.size()) {
      throw PeerError(lost ? fmt::format("site {} is gone ({})", name(lost->first), lost->second)
                           : "a site was started anew while the sites met: start again");
    }
  }
  if (first_starts()) {
    // As one whose next process has come: what it has said makes it a newcomer.
    for (const std::size_t site : start.without) {
      log_info("{} holds nothing of the run: it joins once that has begun",
               config_.sites[site].name);
      ++met_.returns[site];
    }
    exchange_->start(met_.returns);
    if (self_ == coordinator_) tell_start(start);
  } else if (told) {
    start.run_id = told->run_id;
    queue_->update([&] {
      in_session_ = told->session;
      in_run_ = told->run_id;
    });
  }
  if (elastic_ && (has_hub() || self_ == Rank(0))) {
    forwarding_ = std::make_unique<ForwardingExchange>(
        *exchange_, [this](const SyncId& id) { return exchange_->origin_of(id).encoded; });
  }
  return start;
}

SiteStart SiteSession::come_late(TimePoint deadline,
                                 const std::function<void(const std::string&)>& say) {
  std::vector<int> linked = find_all(deadline);
  exchange_->stand_aside();
  {
    const std::scoped_lock lock(calls_);
    const Rank to = donor();
    queue_->update([&] { donor_ = to; });
    std::unique_ptr<SavedPieces> saved;
    if (!facts_.folder.empty()) {
      saved = std::make_unique<SavedPieces>(storage_, facts_.folder / SavedPieces::kFile);
    }
    newcomer_ = std::make_unique<Newcomer>(
        *exchange_, runtime_, to, names(),
        [this](Rank site, const Note& note) { send(site, note); }, std::move(saved), takes_back_);
  }
  send(donor(), newcomer_->join(linked));
  TimePoint next_word = runtime_.clock().now() + kBetweenWords;
  const auto fetched = [&] {
    try {
      return newcomer_->fetch(runtime_.clock().now() + kLookForSignals);
    } catch (const PeerError&) {
      check_turned_away();  // it may start over, or another donor have it
      throw;
    }
  };
  while (!fetched()) {
    check_signal("the state of the run is on its way");
    check_turned_away();
    bool asked_again = false;
    queue_->update([&] { asked_again = running_ && running_->live != linked; });
    if (asked_again) {  // it may have waited its turn for longer than the first deadline
      linked = find_all(runtime_.clock().now() + config_.net.gather);
      send(donor(), newcomer_->join(linked));
    }
    if (runtime_.clock().now() >= next_word) {
      say(newcomer_->progress());
      next_word += kBetweenWords;
    }
  }
  if (has_hub()) {
    forwarding_ = std::make_unique<ForwardingExchange>(
        newcomer_->exchange(),
        [this](const SyncId& id) { return exchange_->origin_of(id).encoded; });
  }
  std::string run_id;
  queue_->update([&] { run_id = running_->run_id; });
  return {.run_id = run_id, .resume_after = std::nullopt, .joins = newcomer_->offer()};
}

std::vector<int> SiteSession::find_all(TimePoint deadline) {
  TimePoint ask_again = runtime_.clock().now() + kBetweenQuestions;
  while (true) {
    check_signal("not all sites of the run have answered");
    check_turned_away();
    RunningNote running;
    std::vector<bool> seen_by;
    queue_->update([&] {
      running = *running_;
      seen_by = seen_by_;
    });
    const std::vector<Rank> live(running.live.begin(), running.live.end());
    const TimePoint now = runtime_.clock().now();
    const auto linked = transport_->await_members(now + kLookForSignals, live);
    if (linked) {
      for (const Rank site : live) say_hello(site);
      // Who has answered will send its rounds' frames to this process, not to the one before it.
      const auto seen = [&] {
        return std::ranges::all_of(live, [&](Rank site) {
          return site == coordinator_ || seen_by_[static_cast<std::size_t>(site.value())];
        });
      };
      if (queue_->wait(seen, now + kLookForSignals)) {
        log_info("the run goes on with {} of {} sites: joining", live.size(), config_.workers());
        return running.live;
      }
    }
    if (!linked && linked.error().refused) throw_refused(linked.error());
    if (now >= deadline) {
      throw PeerError(fmt::format("not all sites of the run have answered within net.gather{}{}",
                                  linked ? "" : ": ", linked ? "" : linked.error().what));
    }
    if (now >= ask_again) {  // who is in it may have changed
      send(coordinator_, hello());
      ask_again = now + kBetweenQuestions;
    }
  }
}

void SiteSession::check_turned_away() {
  std::optional<TurnedAwayNote> turned_away;
  std::optional<std::string> lost;
  std::exception_ptr failure;
  bool other_donor = false;
  queue_->update([&] {
    turned_away = turned_away_;
    other_donor = has_hub() && donor_ && running_->donor != donor_->value();
    lost = first_lost_;
    failure = failure_;
  });
  if (turned_away && turned_away->configuration) throw ConfigError(turned_away->why);
  if (turned_away && turned_away->again) throw TryAgainError(turned_away->why);
  if (turned_away) throw PeerError(turned_away->why);
  if (other_donor) {
    throw TryAgainError("the hub has named another site than the one that was to give its state");
  }
  if (lost && has_hub()) {
    throw TryAgainError(fmt::format("site {} is gone ({})", name(donor()), *lost));
  }
  if (lost) throw TryAgainError(fmt::format("site {} is gone ({})", name(Rank(0)), *lost));
  if (failure) std::rethrow_exception(failure);
}

JoinHost* SiteSession::host() {
  const std::scoped_lock lock(calls_);
  return host_.get();
}

}  // namespace isthmus::app
