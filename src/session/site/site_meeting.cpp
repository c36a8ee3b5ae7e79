// SPDX-License-Identifier: Apache-2.0
#include "session/site/site_meeting.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>

#include "core/base/log.h"
#include "isthmus/errors.h"
#include "session/site/site_routes.h"

namespace isthmus::app {
namespace {

constexpr Duration kLookWhileGathering = std::chrono::milliseconds(200);
constexpr Duration kBetweenLooks = std::chrono::milliseconds(20);
constexpr Duration kBetweenReminders = std::chrono::seconds(10);
/// Sites that start together have found each other by then; asking costs nothing but a note.
constexpr Duration kOthersTakeTheirTime = std::chrono::seconds(1);
/// Time beyond net.dead_after for a link that is slow to open: by then a detour is looked for.
constexpr Duration kLinksTakeTheirTime = std::chrono::seconds(5);
/// A site that refuses this one knows the difference from its greeting. A site that this one
/// refuses learns the reason from the answer. In plain text it may have to greet this site itself
/// first, since anybody's word ends nothing: that takes ZeroMQ's time between attempts, and the
/// attempts' time.
constexpr Duration kOthersHearIt = std::chrono::seconds(1);
constexpr Duration kOthersGreet = std::chrono::seconds(3);

/// The last notes of the others may still be on their way when site 0 has left.
constexpr Duration kLastWords = std::chrono::seconds(2);
/// For the next process of a site to be found here too, when site 0 has met it.
constexpr Duration kOthersFindIt = std::chrono::seconds(5);

}  // namespace

TimePoint SiteMeeting::gather_end() {
  const TimePoint now = all_.now();
  if (meanwhile_.goes_on && meanwhile_.goes_on()) gather_end_ = now + all_.config.net.gather;
  return gather_end_;
}

bool SiteMeeting::gather(const std::function<void(const std::string&)>& say, Meanwhile meanwhile) {
  meanwhile_ = std::move(meanwhile);
  gather_end_ = all_.now() + all_.config.net.gather;
  std::vector<std::string> endpoints;  // MPI knows its own
  if (links_.routes) endpoints = links_.routes->endpoints();
  if (all_.has_hub()) endpoints.push_back("tcp://" + all_.config.hub.address);
  links_.transport->join(endpoints,
                         links_.routes ? links_.routes->detours() : std::vector<std::string>());
  all_.queue->update([&] {
    const auto own = static_cast<std::size_t>(all_.self.value());
    all_.meeting.hellos[own] = hello();
    all_.meeting.greeted[own] = true;
  });
  meet(say);
  const bool goes_on = await_words(say);
  if (meanwhile_.end) meanwhile_.end();
  meanwhile_ = {};
  return goes_on;
}

bool SiteMeeting::gather_again(const std::function<void(const std::string&)>& say) {
  all_.queue->update([&] { all_.meeting.meets = true; });
  return await_words(say);
}

bool SiteMeeting::await_words(const std::function<void(const std::string&)>& say) {
  TimePoint next_word = all_.now() + kBetweenReminders;
  bool goes_on = false;
  const auto settled = [&] {
    if (all_.first_starts() && all_.fate.first_lost) return false;
    goes_on = all_.arrival.running || all_.arrival.turned_away;
    const bool over =
        goes_on || all_.fate.failure || (all_.fate.lost && !all_.elastic) || may_start();
    if (over) {
      all_.meeting.meets = false;
      all_.meeting.met = {all_.meeting.hellos, all_.meeting.returns};
    }
    return over;
  };
  do {
    const TimePoint now = all_.now();
    all_.check_stop(awaits());
    say_hellos();
    check_meeting();
    if (now >= gather_end()) throw PeerError(awaits() + " within net.gather");
    if (now >= next_word) {
      say(awaits());
      next_word = now + kBetweenReminders;
    }
  } while (!all_.queue->wait(settled, all_.now() + kLookWhileGathering));
  return goes_on;
}

/// The sites to be found at a start. If the hub says whose keys count, the hub is asked first.
std::vector<WorkerId> SiteMeeting::awaited() const {
  std::vector<WorkerId> these;
  if (links_.options.keys_from) {
    these = links_.transport->members_with_keys().value_or(std::vector<WorkerId>{all_.coordinator});
  } else {
    for (int m = 0; m < links_.transport->size(); ++m) these.push_back(WorkerId(m));
  }
  std::erase(these, all_.self);
  return these;
}

void SiteMeeting::meet(const std::function<void(const std::string&)>& say) {
  const TimePoint begin = all_.now();
  TimePoint next_word = begin + kBetweenReminders;
  const std::array first = {all_.coordinator};
  while (true) {
    const TimePoint now = all_.now();
    const std::vector<WorkerId> these = awaited();
    const TimePoint deadline = gather_end();
    const auto joined =
        links_.transport->await_members(std::min(deadline, now + kLookWhileGathering), these);
    const bool told = !links_.options.keys_from || links_.transport->members_with_keys();
    if (joined && told && these == awaited()) {
      break;
    }
    if (joined) {  // the hub has not said yet which other sites may come, or another site may have
                   // come by now
      all_.check_stop("the hub has not said whose keys count");
      if (now >= deadline)
        throw PeerError("the hub has not said whose keys count within net.gather");
      all_.runtime.sleep_until(now + kBetweenLooks);
      continue;
    }
    all_.check_stop(joined.error().what);
    if (joined.error().refused) {
      all_.runtime.sleep_until(now + (links_.options.keys ? kOthersHearIt : kOthersGreet));
      throw_refused(joined.error());
    }
    // The others may have gone on, without more than this site: the first one knows.
    if (all_.elastic && all_.self != all_.coordinator && (!links_.exchange || all_.has_hub()) &&
        now - begin >= kOthersTakeTheirTime && links_.transport->await_members(now, first)) {
      if (!links_.exchange) open_exchange_();
      say_hello(all_.coordinator);
    }
    bool goes_on = false, first_lost = false, begun = false;
    all_.queue->update([&] { first_lost = all_.first_starts() && all_.fate.first_lost; });
    if (first_lost) {  // the others may have left for a difference, and wait for no link
      for (const WorkerId site : these) {
        if (site == all_.coordinator) continue;
        if (links_.transport->await_members(now, std::array{site})) say_hello(site);
      }
    }
    check_meeting();
    // Site 0 begins once it has heard all sites. From then on sites tell one another everything
    // once, so every link has to stand before site 0 begins; a link that never stands is noticed
    // late.
    all_.queue->update([&] {
      goes_on = all_.arrival.running || all_.arrival.turned_away;
      begun = all_.first_starts() && all_.meeting.start &&
              now >= all_.meeting.told_at + all_.config.net.dead_after + kLinksTakeTheirTime;
    });
    if (goes_on) {
      return;
    }
    if (begun) {
      throw TryAgainError(fmt::format("the run has begun, and {}", joined.error().what));
    }
    if (all_.now() >= deadline) {
      throw PeerError(fmt::format("the sites did not come together within net.gather: {}{}",
                                  joined.error().what,
                                  links_.routes ? links_.routes->troubles() : ""));
    }
    if (all_.now() >= next_word) {
      say(joined.error().what + (links_.routes ? links_.routes->troubles() : ""));
      next_word += kBetweenReminders;
    }
  }
  log_info("the {} sites are together{}", all_.config.workers(),
           links_.transport->endpoint().starts_with("mpi:") ? ", over MPI"
           : !links_.options.keys                           ? ", over TCP in plain text"
                                                            : ", over encrypted TCP");
  if (!links_.exchange) open_exchange_();
}

SiteStart SiteMeeting::start_together() {
  std::vector<std::string> heard;
  std::vector<HelloNote> facts;
  std::optional<std::pair<WorkerId, std::string>> lost;
  std::exception_ptr failure;
  std::optional<StartNote> told;
  std::size_t absent = 0;
  all_.queue->update([&] {
    failure = all_.fate.failure;
    lost = all_.fate.lost;
    for (std::size_t m = 0; m < all_.meeting.met.hellos.size(); ++m) {
      absent += all_.is_absent(m) ? 1 : 0;
      if (!all_.meeting.met.hellos[m] || all_.is_absent(m)) continue;
      heard.push_back(all_.name(WorkerId(static_cast<int>(m))));
      facts.push_back(*all_.meeting.met.hellos[m]);
    }
    told = all_.meeting.start;
  });
  if (failure) {
    std::rethrow_exception(failure);
  }
  SiteStart start;
  if (all_.first_starts() && all_.self != all_.coordinator) {
    start = {
        .run_id = told->run_id, .resume_after = told->resume_after, .given_up = told->given_up};
  } else {
    start = agree_on_start(heard, facts, enough(), all_.config.ckpt.every_steps);
    if (facts.size() + absent < all_.meeting.met.hellos.size()) {
      throw PeerError(
          lost ? fmt::format("site {} is gone ({})", all_.name(lost->first), lost->second)
               : "a site was started anew while the sites met: start again");
    }
  }
  if (all_.first_starts()) {
    // The site is treated as if its next process had come: its Hello makes it a newcomer.
    for (const std::size_t site : start.without) {
      log_info("{} holds nothing of the run: it joins once that has begun",
               all_.config.sites[site].name);
      ++all_.meeting.met.returns[site];
    }
    links_.exchange->start(all_.meeting.met.returns);
    if (all_.self == all_.coordinator) tell_start(start);
  } else if (told) {
    start.run_id = told->run_id;
    all_.queue->update([&] {
      all_.fate.in_session = told->session;
      all_.fate.in_run = told->run_id;
    });
  }
  if (all_.elastic && (all_.has_hub() || all_.self == WorkerId(0))) {
    links_.forward(*links_.exchange);
  }
  return start;
}

HelloNote SiteMeeting::hello() const {
  return {.run_id = all_.facts.run_id,
          .resumes = all_.facts.resumes,
          .held = all_.facts.held,
          .common = all_.facts.common,
          .unreadable = all_.facts.unreadable};
}

void SiteMeeting::say_hello(WorkerId to) {
  bool fresh = false;
  all_.queue->update([&] {
    fresh = !all_.meeting.greeted[static_cast<std::size_t>(to.value())];
    all_.meeting.greeted[static_cast<std::size_t>(to.value())] = true;
  });
  if (fresh) links_.send(to, hello());
}

// Once site 0 was lost before the run, this session is at its end: site 0's next process must not
// count on it.
void SiteMeeting::say_hellos() {
  bool first_lost = false;
  all_.queue->update([&] { first_lost = all_.first_starts() && all_.fate.first_lost; });
  for (int to = 0; to < all_.config.workers(); ++to) {
    if (WorkerId(to) != all_.self && !(first_lost && WorkerId(to) == all_.coordinator))
      say_hello(WorkerId(to));
  }
  if (all_.has_hub()) say_hello(all_.coordinator);
}

// Site 0 waits until it has heard all sites that are present, and no site is away. The others
// follow its word: they would not know which process of a site it has heard, nor which one is still
// to come. They need not hear all sites either, since no site says Hello once the run has begun.
// But a site that is away here would be reported as lost, though its next process may be in the
// run.
bool SiteMeeting::may_start() const {
  const bool any_away = std::ranges::any_of(all_.meeting.away, [](bool away) { return away; });
  if (all_.first_starts() && all_.self != all_.coordinator) {
    return all_.meeting.start && (!any_away || all_.now() >= all_.meeting.told_at + kOthersFindIt);
  }
  if (all_.first_starts() && any_away) return false;
  // A site that has started anew meanwhile has sent its Hello before it has heard from this one.
  bool met = true;
  for (std::size_t m = 0; m < all_.meeting.hellos.size(); ++m) {
    met = met && (all_.is_absent(m) || (all_.meeting.hellos[m] && all_.meeting.greeted[m]));
  }
  return (all_.meeting.start || !all_.has_hub()) && met;
}

std::optional<std::size_t> SiteMeeting::enough() const {
  if (!all_.first_starts()) return std::nullopt;
  return static_cast<std::size_t>(std::max(all_.config.min_sites(), 1));
}

// A site that finds a difference leaves at once, and its Hello has arrived before the news of its
// leaving. So it first sends its Hello to all others.
void SiteMeeting::check_meeting() {
  std::vector<std::string> heard;
  std::vector<HelloNote> facts;
  std::optional<std::string> first_lost;
  bool all_told = true, over = false;
  const TimePoint now = all_.now();
  all_.queue->update([&] {
    if (!all_.first_starts()) return;
    first_lost = all_.fate.first_lost;
    over = first_lost && now >= all_.fate.first_lost_at + kLastWords;
    for (std::size_t m = 0; m < all_.meeting.hellos.size(); ++m) {
      if (!all_.meeting.hellos[m]) continue;
      all_told = all_told && all_.meeting.greeted[m];
      heard.push_back(all_.name(WorkerId(static_cast<int>(m))));
      facts.push_back(*all_.meeting.hellos[m]);
    }
  });
  const bool all = facts.size() == all_.meeting.hellos.size() && all_told;
  if (all) {
    static_cast<void>(agree_on_start(heard, facts, enough(), all_.config.ckpt.every_steps));
  } else if (over) {
    check_alike(heard, facts);
  }
  if (first_lost && (all || over)) {
    throw TryAgainError(fmt::format("site {} is gone ({}) before the run has begun",
                                    all_.name(all_.coordinator), *first_lost));
  }
}

std::string SiteMeeting::awaits() const {
  std::string silent;
  bool told = false;
  all_.queue->update([&] {
    told = all_.meeting.start.has_value();
    for (std::size_t m = 0; m < all_.meeting.hellos.size(); ++m) {
      if (all_.is_absent(m) || (all_.meeting.hellos[m] && !all_.meeting.away[m])) continue;
      silent += fmt::format("{}{}{}", silent.empty() ? "" : ", ",
                            all_.name(WorkerId(static_cast<int>(m))),
                            all_.meeting.away[m] ? " (gone)" : "");
    }
  });
  if (!silent.empty()) {
    return fmt::format("not all sites have said what they bring (missing: {})", silent);
  }
  return told ? "all sites have said what they bring"
              : fmt::format("{} has not said that the run begins",
                            all_.has_hub() ? "the hub" : "site " + all_.name(all_.coordinator));
}

void SiteMeeting::tell_start(const SiteStart& start) {
  for (std::size_t m = 1; m < all_.meeting.met.hellos.size(); ++m) {
    if (std::ranges::find(start.without, m) != start.without.end()) continue;
    links_.send(WorkerId(static_cast<int>(m)),
                StartNote{.run_id = start.run_id,
                          .session = all_.meeting.met.hellos[m]->run_id,
                          .resume_after = start.resume_after,
                          .given_up = start.given_up});
  }
}

}  // namespace isthmus::app
