// SPDX-License-Identifier: Apache-2.0
// The director: what happens when, who comes back, who is let in and out.
#include "hostile_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>

#include "core/base/check.h"
#include "transport/exchange/membership.h"

namespace isthmus::testing_support {
namespace {

using namespace std::chrono_literals;

constexpr Duration kGlance = 25ms;        // between two looks of the director
constexpr Duration kComesBack = 300ms;    // who was left out begins anew after this
constexpr Duration kHubGathers = 1s;      // its next process, for the members of before
constexpr Duration kWithoutHub = 2500ms;  // a site that has lost a hub that lives
constexpr Duration kTogether = 40s;       // after the last fault all are together
constexpr Duration kThrough = 60s;        // and then through so many rounds

}  // namespace

HostileRun::HostileRun(const HostileSchedule& schedule)
    : schedule_(schedule),
      codec_(make_codec(schedule.codec)),
      world_(schedule.seed, {.slots = 1, .shuffle = true}),
      sites_(static_cast<std::size_t>(schedule.members)),
      events_(schedule.events.begin(), schedule.events.end()) {
  network_ = std::make_unique<SimNetwork>(world_, schedule.processes(), schedule.links,
                                          NetworkOptions{.faults = schedule.faults});
  changed_ = world_.make_wait_queue();
}

HostileRun::~HostileRun() = default;

std::vector<std::string> HostileRun::play() {
  try {
    world_.run([this] {
      std::vector<std::unique_ptr<Transport>> endpoints = network_->endpoints();
      for (int m = 0; m < schedule_.members; ++m) {
        of(m).endpoint = std::move(endpoints[static_cast<std::size_t>(m)]);
        start_site(m, false);
      }
      if (schedule_.hub) {
        hub_.endpoint = std::move(endpoints.back());
        start_hub();
      }
      direct();
    });
  } catch (const std::exception& error) {
    blame(error.what());
  }
  check_end();
  tally_.frames = network_->fault_counts();
  tally_.torn = disk_.torn();
  return blamed_;
}

void HostileRun::direct() {
  // A slow site holds up who comes and goes.
  const int slow = schedule_.has_deadline() ? 3 : 1;
  TimePoint limit = schedule_.quiet + slow * kTogether;
  while (blamed_.empty() && !over_) {
    while (!events_.empty() && events_.front().at <= now()) {
      happen(events_.front());
      events_.pop_front();
    }
    bring_back();
    look_after_hub();
    end_those_left_out_unheard();
    admit_and_release();
    if (last_round_ == kNoEnd && now() >= schedule_.quiet && events_.empty() && all_together()) {
      tally_.whole = now() - schedule_.quiet;
      int furthest = 0;
      for (const Site& site : sites_) furthest = std::max(furthest, site.begun);
      last_round_ = furthest + (schedule_.has_deadline() ? kLastLateRounds : kLastRounds);
      limit = now() + slow * kThrough;
      changed_->update([] {});
    }
    over_ = all_through();
    if (nobody_left()) {
      tally_.nobody_left = true;
      break;
    }
    if (now() >= limit && !over_) blame(fmt::format("no progress: {}", state()));
    world_.sleep_until(now() + kGlance);
  }
  if (over_) changed_->update([] {});
  if (!over_) {
    for (int p = 0; p < schedule_.processes(); ++p) network_->crash(WorkerId(p));
  }
  for (const std::unique_ptr<Task>& task : tasks_) task->join();
}

// What would leave nobody, or is not promised, does not happen.
void HostileRun::happen(const HostileSchedule::Event& event) {
  using Kind = HostileSchedule::Event::Kind;
  const int parted = schedule_.parts_in(now() - 2s, now() + 4s) ? 1 : 0;
  const bool lonely = absent() + parted + 2 >= schedule_.members;
  switch (event.kind) {
    case Kind::kCrash:
      if (!of(event.member).alive || lonely || (schedule_.hub && !hub_.alive)) return;
      crash_site(event.member);
      of(event.member).back_at = now() + event.away;
      ++tally_.crashes;
      return;
    case Kind::kLeave:
      leavers_.push_back(event.member);
      return;
    case Kind::kHubCrash:
      if (!hub_.alive || absent() > 0 || schedule_.parts_in(now() - 3s, now() + 3s)) return;
      crash_hub();
      hub_.back_at = now() + event.away;
      return;
    case Kind::kHubTears:
      if (!hub_.alive || absent() > 0 || schedule_.parts_in(now() - 3s, now() + 5s)) return;
      disk_.tear(event.appends, event.share, [this, life = hub_.life, away = event.away] {
        ISTHMUS_CHECK(hub_.life == life, life);
        const bool directed = in_director_;
        crash_hub();
        hub_.back_at = now() + away;
        if (!directed) world_.sleep_until(now());  // its task ends here
        throw RankCrashed{WorkerId(schedule_.members)};
      });
      return;
  }
}

void HostileRun::crash_site(int m) {
  of(m).alive = false;
  of(m).exchange = nullptr;
  network_->crash(WorkerId(m));
}

void HostileRun::crash_hub() {
  hub_.alive = false;
  hub_.exchange = nullptr;
  ++tally_.hub_crashes;
  disk_.mend();
  network_->crash(WorkerId(schedule_.members));
}

void HostileRun::bring_back() {
  for (int m = 0; m < schedule_.members; ++m) {
    Site& site = of(m);
    if (site.alive && site.lost_hub && hub_.alive && now() - *site.lost_hub > kWithoutHub) {
      crash_site(m);  // the hub would have told it that it was left out
      ++tally_.left_out;
      site.back_at = now() + kComesBack;
    }
    if (!site.alive && !site.back_at) site.back_at = now() + kComesBack;
    if (site.alive || !site.back_at || *site.back_at > now() || last_round_ != kNoEnd) continue;
    site.back_at.reset();
    ++site.life;
    for (Site& other : sites_) other.met_by.erase(m);
    site.endpoint = network_->restart(WorkerId(m), group_of(m, site.life));
    start_site(m, true);
  }
  if (schedule_.hub && !hub_.alive && hub_.back_at && *hub_.back_at <= now()) {
    hub_.back_at.reset();
    ++hub_.life;
    for (Site& site : sites_) site.met_by.erase(schedule_.members);
    hub_.endpoint =
        network_->restart(WorkerId(schedule_.members), group_of(schedule_.members, hub_.life));
    for (int m = 0; m < schedule_.members; ++m) hub_.gone_at[m] = now() + kHubGathers;
    start_hub();
  }
}

void HostileRun::look_after_hub() {
  if (!schedule_.hub || !hub_.exchange) return;
  for (auto it = hub_.gone_at.begin(); it != hub_.gone_at.end();) {
    const auto [m, at] = *it;
    if (at > now() || !hub_.exchange) {
      ++it;
      continue;
    }
    it = hub_.gone_at.erase(it);
    coordinate([m = m](PeerExchange& hub) { hub.exclude(WorkerId(m), "its link has broken"); });
    if (!hub_.exchange) return;
  }
}

/// A hub may die over what it is asked.
void HostileRun::coordinate(const std::function<void(PeerExchange&)>& call) {
  in_director_ = true;
  try {
    call(coordinator());
  } catch (const RankCrashed&) {
  }
  in_director_ = false;
}

bool HostileRun::coordinator_stands() const {
  return schedule_.hub ? hub_.exchange != nullptr : of(0).exchange != nullptr;
}

PeerExchange& HostileRun::coordinator() { return schedule_.hub ? *hub_.exchange : *of(0).exchange; }

bool HostileRun::counts_as_member(int m) const { return hub_.live[static_cast<std::size_t>(m)]; }

/// Who is in the run, as who coordinates has decided.
void HostileRun::see_members(std::vector<bool> live) {
  hub_.live = std::move(live);
  for (int m = 0; m < schedule_.members; ++m) {
    if (counts_as_member(m) && of(m).asked == of(m).life) of(m).admitted = of(m).life;
  }
}

/// A joiner may be let in and left out again while all news of it are lost: to its exchange nothing
/// has happened, but the others have gone on meanwhile, and its admission cannot be said again. A
/// real link would have told it of both, and its process would begin anew.
void HostileRun::end_those_left_out_unheard() {
  for (int m = 0; m < schedule_.members; ++m) {
    Site& site = of(m);
    const bool left_out = site.admitted == site.life && !counts_as_member(m);
    if (!site.alive || !site.aside || !left_out) continue;
    if (!may_be_left_out()) blame(fmt::format("site {} was let in and left out for nothing", m));
    crash_site(m);
    ++tally_.left_out;
    site.back_at = now() + kComesBack;
  }
}

/// Nobody who is in the run may begin a round sent after the furthest step before it knows more.
void HostileRun::hold() {
  std::int64_t after = 0;
  for (const Site& site : sites_) {
    if (site.begun > 0) after = std::max(after, id_of(site.begun - 1).sent.value());
  }
  held_ = after;
  for (Site& site : sites_) {
    if (site.alive && !site.aside && !site.out) site.entered = false;
  }
}

/// Who coordinates, and all who are in the run, have links to it.
bool HostileRun::met_by_all(int m) const {
  const Site& joiner = of(m);
  const int coordinator = schedule_.hub ? schedule_.members : 0;
  bool all = joiner.met_by.contains(coordinator);
  for (int other = 0; other < schedule_.members; ++other) {
    const Site& site = of(other);
    const bool counts = other != m && site.alive && !site.aside && !site.out;
    all = all && (!counts || joiner.met_by.contains(other));
  }
  return all;
}

bool HostileRun::held_up() const {
  return std::ranges::any_of(
      sites_, [](const Site& site) { return site.alive && !site.out && !site.entered; });
}

/// What was to come is no more: nobody waits for the news of it. But who takes leave has wished for
/// it, and begins nothing later because the others have parted with it before it was told.
void HostileRun::let_go() {
  for (int m = 0; m < schedule_.members; ++m) {
    if (m == leaver_ && !counts_as_member(m)) continue;
    of(m).entered = of(m).entered || !of(m).aside;
  }
  joiner_ = leaver_ = -1;
  changed_->update([] {});
}

void HostileRun::admit_and_release() {
  if (!coordinator_stands() || last_round_ != kNoEnd) return;
  const auto waits_in_vain = [&](int m) {
    return (!of(m).alive || of(m).asked != of(m).life) && !counts_as_member(m);
  };
  if (joiner_ >= 0 && waits_in_vain(joiner_)) let_go();
  // A hub may have died before it wrote that down, or the leaver has died.
  if (leaver_ >= 0 && !(counts_as_member(leaver_) && hub_.leaving.contains(leaver_))) let_go();
  for (int m = 0; m < schedule_.members; ++m) {
    Site& site = of(m);
    const bool again = joiner_ == m && site.asked == site.life;
    if (!site.alive || !site.aside || !met_by_all(m) || counts_as_member(m)) continue;
    if (!again && held_up()) continue;
    if (!again) hold();
    joiner_ = m;
    leaver_ = -1;
    site.begun = site.taken = first_after(*held_);
    site.last = kNoEnd;
    site.asked = site.life;
    site.entered = false;
    coordinate([&](PeerExchange& exchange) { (void)exchange.admit(WorkerId(m), *held_); });
    return;
  }
  if (leavers_.empty() || held_up() || absent() + 2 >= schedule_.members) return;
  const int m = leavers_.front();
  leavers_.pop_front();
  if (!of(m).alive || of(m).aside || of(m).out || !counts_as_member(m)) return;
  hold();
  joiner_ = -1;
  leaver_ = m;
  coordinate([&](PeerExchange& exchange) { (void)exchange.release(WorkerId(m), *held_); });
}

int HostileRun::absent() const {
  return static_cast<int>(std::ranges::count_if(sites_, [](const Site& site) {
    return !site.alive || site.aside || site.out || site.last != kNoEnd;
  }));
}

bool HostileRun::all_together() const {
  for (int m = 0; m < schedule_.members; ++m) {
    if (!counts_as_member(m) || of(m).lost_hub) return false;
  }
  return absent() == 0 && !held_up() && coordinator_stands() && leavers_.empty() &&
         (!schedule_.hub || hub_.gone_at.empty());
}

/// Nobody has the state, and an open round never ends: sites would start anew from a checkpoint.
bool HostileRun::nobody_left() const {
  return std::ranges::none_of(sites_, [](const Site& site) {
    return site.alive && !site.aside && !site.out && !site.waits;
  });
}

bool HostileRun::all_through() const {
  return std::ranges::all_of(sites_, [&](const Site& site) { return site.taken >= last_round_; });
}

}  // namespace isthmus::testing_support
