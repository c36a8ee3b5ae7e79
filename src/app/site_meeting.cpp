// SPDX-License-Identifier: Apache-2.0
// What sites say and hear of one another before a run begins, and who comes and goes meanwhile.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "app/site_session.h"
#include "isthmus/errors.h"

namespace isthmus::app {
namespace {

/// What the others have said may still be on its way when site 0 has left.
constexpr Duration kLastWords = std::chrono::seconds(2);
/// For the next process of a site to be found here too, when site 0 has met it.
constexpr Duration kOthersFindIt = std::chrono::seconds(5);

}  // namespace

HelloNote SiteSession::hello() const {
  return {.run_id = facts_.run_id,
          .resumes = facts_.resumes,
          .held = facts_.held,
          .common = facts_.common,
          .unreadable = facts_.unreadable};
}

void SiteSession::say_hello(Rank to) {
  bool fresh = false;
  queue_->update([&] {
    fresh = !greeted_[static_cast<std::size_t>(to.value())];
    greeted_[static_cast<std::size_t>(to.value())] = true;
  });
  if (fresh) send(to, hello());
}

// Once site 0 was lost before the run, this session is at its end: site 0's next process must not
// count on it.
void SiteSession::say_hellos() {
  bool first_lost = false;
  queue_->update([&] { first_lost = first_starts() && first_lost_; });
  for (int to = 0; to < config_.workers(); ++to) {
    if (Rank(to) != self_ && !(first_lost && Rank(to) == coordinator_)) say_hello(Rank(to));
  }
  if (has_hub()) say_hello(coordinator_);
}

// Nothing of what was sent to the process before has come to this one.
void SiteSession::back(Rank site) {
  if (has_hub() && site == coordinator_) {
    const std::scoped_lock lock(calls_);
    std::string session, run_id;
    queue_->update([&] {
      greeted_[static_cast<std::size_t>(site.value())] = false;
      session = in_session_;
      run_id = in_run_;
      if (session.empty() && newcomer_) {  // the hub before may have taken it in untold
        session = running_->session;
        run_id = running_->run_id;
      }
    });
    if (session.empty()) return;
    send(site, StandingNote{.run_id = run_id, .session = session, .decided = exchange_->decided()});
    return;
  }
  queue_->update([&] {
    ++returns_[static_cast<std::size_t>(site.value())];
    away_[static_cast<std::size_t>(site.value())] = false;
    greeted_[static_cast<std::size_t>(site.value())] = false;
    hellos_[static_cast<std::size_t>(site.value())].reset();
    seen_by_[static_cast<std::size_t>(site.value())] = false;
    if (lost_ && lost_->first == site) lost_.reset();
  });
}

// Site 0 waits until it has heard all who are there, and nobody is away. The others do what it has
// said: they would not know which process of a site it has heard, nor which one is still to come.
// Nor need they hear of all: once the run has begun nobody says Hello any more. But one that is
// away here would be told of as lost, though its next process may be in the run.
bool SiteSession::may_start() const {
  const bool any_away = std::ranges::any_of(away_, [](bool away) { return away; });
  if (first_starts() && self_ != coordinator_) {
    return start_ && (!any_away || runtime_.clock().now() >= told_at_ + kOthersFindIt);
  }
  if (first_starts() && any_away) return false;
  // One that came anew meanwhile has said what it brings before it has heard it from here.
  bool met = true;
  for (std::size_t m = 0; m < hellos_.size(); ++m) {
    met = met && (is_absent(m) || (hellos_[m] && greeted_[m]));
  }
  return (start_ || !has_hub()) && met;
}

std::optional<std::size_t> SiteSession::enough() const {
  if (!first_starts()) return std::nullopt;
  return static_cast<std::size_t>(std::max(config_.min_sites(), 1));
}

// Who finds a difference leaves at once, and what it said has come before the news of that. So it
// says what it brings to all others before.
void SiteSession::check_meeting() {
  std::vector<std::string> heard;
  std::vector<HelloNote> facts;
  std::optional<std::string> first_lost;
  bool all_told = true, over = false;
  const TimePoint now = runtime_.clock().now();
  queue_->update([&] {
    if (!first_starts()) return;
    first_lost = first_lost_;
    over = first_lost && now >= first_lost_at_ + kLastWords;
    for (std::size_t m = 0; m < hellos_.size(); ++m) {
      if (!hellos_[m]) continue;
      all_told = all_told && greeted_[m];
      heard.push_back(name(Rank(static_cast<int>(m))));
      facts.push_back(*hellos_[m]);
    }
  });
  const bool all = facts.size() == hellos_.size() && all_told;
  if (all) {
    static_cast<void>(agree_on_start(heard, facts, enough(), config_.ckpt.every_steps));
  } else if (over) {
    check_alike(heard, facts);
  }
  if (first_lost && (all || over)) {
    throw TryAgainError(fmt::format("site {} is gone ({}) before the run has begun",
                                    name(coordinator_), *first_lost));
  }
}

std::string SiteSession::awaits() const {
  std::string silent;
  bool told = false;
  queue_->update([&] {
    told = start_.has_value();
    for (std::size_t m = 0; m < hellos_.size(); ++m) {
      if (is_absent(m) || (hellos_[m] && !away_[m])) continue;
      silent += fmt::format("{}{}{}", silent.empty() ? "" : ", ", name(Rank(static_cast<int>(m))),
                            away_[m] ? " (gone)" : "");
    }
  });
  if (!silent.empty()) {
    return fmt::format("not all sites have said what they bring (missing: {})", silent);
  }
  return told ? "all sites have said what they bring"
              : fmt::format("{} has not said that the run begins",
                            has_hub() ? "the hub" : "site " + name(coordinator_));
}

/// Under queue_'s lock: the hub has begun without this site.
bool SiteSession::is_absent(std::size_t site) const {
  return start_ &&
         std::ranges::find(start_->absent, static_cast<int>(site)) != start_->absent.end();
}

void SiteSession::tell_start(const SiteStart& start) {
  for (std::size_t m = 1; m < met_.hellos.size(); ++m) {
    if (std::ranges::find(start.without, m) != start.without.end()) continue;
    send(Rank(static_cast<int>(m)), StartNote{.run_id = start.run_id,
                                              .session = met_.hellos[m]->run_id,
                                              .resume_after = start.resume_after,
                                              .given_up = start.given_up});
  }
}

void SiteSession::lose(Rank site, const std::string& why) {
  const std::scoped_lock lock(calls_);
  if (site != coordinator_ || !has_hub()) {
    // With a hub only a newcomer needs one of the others.
    const bool needed = site == donor() && (!has_hub() || newcomer_);
    bool meets = false;
    const TimePoint now = runtime_.clock().now();
    queue_->update([&] {
      meets = meets_;
      away_[static_cast<std::size_t>(site.value())] = true;
      if (!lost_) lost_ = {site, why};
      if (needed && !first_lost_) first_lost_at_ = now;
      if (needed) first_lost_ = why;
      if (needed && (listener_ || has_hub()) && elastic_) cut_off_ = true;
    });
    // What it has told of was of a run before.
    if (meets) std::erase_if(early_, [&](const auto& each) { return each.first == site; });
    if (host_) host_->lost(site);
    source_.lost(site, runtime_.clock().now());
    if (newcomer_ && needed) newcomer_->fail(site, why);
    if (newcomer_ && !needed) newcomer_->lost(site);
  }
  if (listener_) listener_->on_lost(site, why);
}

bool SiteSession::cut_off() {
  constexpr Duration kNewsTakes = std::chrono::seconds(2);
  bool cut_off = false;
  (void)queue_->wait(
      [&] {
        cut_off = cut_off_ && !over_;
        return !elastic_ || cut_off_ || over_ || failure_;
      },
      runtime_.clock().now() + kNewsTakes);
  return cut_off;
}

}  // namespace isthmus::app
