// SPDX-License-Identifier: Apache-2.0
// Where rounds have a deadline: what a site that is late trains, gives and is told, and what is
// held against that. Skipping is as session/site/site_lateness has it.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "hostile_run.h"

namespace isthmus::testing_support {
namespace {

using namespace std::chrono_literals;

constexpr Duration kStep = 40ms;
constexpr Duration kLongest = 1500ms;  // of a deadline that adapts
constexpr Duration kShortest = 1s;     // the same
constexpr int kMostMissed = 2;         // rounds of a fragment, before what it carries comes first
constexpr int kFewestOthers = 2;       // of three sites, two thirds
// Of a fragment, without a site that carries: two while it trains, and one for which it is late
// already when its training meets the first of these.
constexpr int kMostWithout = 3;

int sum(const std::array<int, 2>& windows) { return windows[0] + windows[1]; }

}  // namespace

void HostileRun::add_deadline(int self, PeerExchangeOptions& options) {
  const Duration own = schedule_.late.deadlines[static_cast<std::size_t>(self)];
  options.deadline = own == Duration{0} ? RoundDeadline::adaptive(kLongest) : RoundDeadline(own);
  options.may_proxy = [this, self](StepIndex sent) {
    const Site& site = of(self);
    const bool held = held_ && !site.entered && sent.value() > *held_;
    return site.alive && !site.aside && !site.out && !held;
  };
  options.on_proxy_round = [this, self, life = of(self).life](const ProxyRound& told) {
    take_stood_in(self, life, told);
  };
}

/// Training up to the next round, which is a window of each fragment.
void HostileRun::take_window(int m, PeerExchange& exchange, Runtime& runtime) {
  Site& site = of(m);
  if (!schedule_.has_deadline()) {
    runtime.compute(kStep, [] {});
    return;
  }
  const std::optional<StepIndex> ahead = exchange.begun_ahead();
  const bool too_late = ahead && id_of(site.begun).sent <= *ahead;
  const bool gives_first = schedule_.late.carries && exchange.missed_in_a_row() >= kMostMissed;
  if (too_late || gives_first) {
    ++tally_.skipped;
    return;
  }
  Mass& mass = site.masses[site.life];
  const double slowness = schedule_.slowness(m, now());
  runtime.compute(Duration(std::llround(slowness * static_cast<double>(kStep.count()))), [] {});
  for (int& window : mass.window) ++window;
  mass.made += 2;
}

/// It was left out, and is to come in again.
void HostileRun::train_alone(int m, Runtime& runtime) {
  Site& site = of(m);
  Mass& mass = site.masses[site.life];
  for (; site.lone_windows > 0 && site.aside && !site.out; --site.lone_windows) {
    runtime.compute(kStep, [] {});
    for (int& window : mass.window) ++window;
    mass.made += 2;
    ++tally_.lone;
  }
  site.lone_windows = 0;
}

/// RETURNS: the weight of its contribution.
double HostileRun::give(int m, int round) {
  if (!schedule_.has_deadline()) return 1;
  const auto fragment = static_cast<std::size_t>(round % 2);
  Mass& mass = of(m).masses[of(m).life];
  const int windows = mass.window[fragment] + mass.carried[fragment];
  tally_.carried += mass.carried[fragment];
  mass.window[fragment] = mass.carried[fragment] = 0;
  mass.given[round] = windows;
  const bool first = given_.try_emplace({round, m}, Given{of(m).life, windows}).second;
  if (!first) blame(fmt::format("site {} gives to round {} twice", m, round));
  return windows;
}

void HostileRun::settle(int m, int round, bool counted) {
  if (!schedule_.has_deadline()) return;
  Mass& mass = of(m).masses[of(m).life];
  const auto given = mass.given.extract(round);
  if (stood_in_.contains({round, m})) ++tally_.met;
  if (counted) return;
  if (schedule_.late.carries) {
    mass.carried[static_cast<std::size_t>(round % 2)] += given.mapped();
  } else {
    mass.dropped += given.mapped();
  }
}

/// It was left out: what no round has, its next process takes along, and trains on alone.
void HostileRun::hand_over(int m) {
  if (!schedule_.has_deadline()) return;
  Site& site = of(m);
  Mass& mass = site.masses[site.life];
  Mass& next = site.masses[site.life + 1];
  for (std::size_t fragment = 0; fragment < mass.window.size(); ++fragment) {
    const bool open = std::ranges::any_of(mass.given, [&](const auto& each) {
      return static_cast<std::size_t>(each.first % 2) == fragment;
    });
    if (open) continue;  // nobody knows what became of it
    next.carried[fragment] = mass.window[fragment] + mass.carried[fragment];
    mass.window[fragment] = mass.carried[fragment] = 0;
  }
  next.received = sum(next.carried);
  mass.handed_over = next.received;
  site.lone_windows = schedule_.late.lone_windows;
}

void HostileRun::take_stood_in(int m, int life, const ProxyRound& told) {
  ++tally_.stood_in;
  const auto wrong = [&](const std::string& what) {
    blame(fmt::format("site {} was late for round {}: {}", m, round_of(told.id), what));
  };
  if (of(m).life != life) wrong("of a process that is gone");
  if (!stood_in_.insert({round_of(told.id), m}).second) wrong("a second time");
  const Duration own = schedule_.late.deadlines[static_cast<std::size_t>(m)];
  if (told.late < (own == Duration{0} ? kShortest : own)) wrong("it had more time");
  if (told.others < kFewestOthers) wrong("too few had begun it");
}

/// Whether a round that this member takes part in is without its work.
bool HostileRun::may_be_without(int m, int round) const {
  const auto given = given_.find({round, m});
  const bool nothing = given != given_.end() && given->second.windows == 0;
  return stood_in_.contains({round, m}) || (schedule_.has_deadline() && nothing);
}

std::vector<double> HostileRun::weights_of(int round, const std::vector<WorkerId>& contributors) {
  std::vector<double> weights;
  if (!schedule_.has_deadline()) return weights;
  for (const WorkerId rank : contributors) {
    const auto given = given_.find({round, rank.value()});
    if (given == given_.end()) {
      blame(fmt::format("round {} counts site {}, which gave nothing", round, rank.value()));
    }
    weights.push_back(given == given_.end() ? 1 : given->second.windows);
  }
  return weights;
}

/// Every window that a site has trained was counted once, or dropped, or it has it still. Of a
/// process that is gone some are lost, and none was counted twice.
void HostileRun::check_masses() {
  std::map<std::pair<int, int>, int> counted;  // by member and life
  for (const auto& [place, given] : given_) {
    const auto& [round, m] = place;
    const std::vector<WorkerId>& contributors = results_.at(round).contributors;
    if (std::ranges::count(contributors, WorkerId(m)) > 0)
      counted[{m, given.life}] += given.windows;
  }
  for (int m = 0; m < schedule_.members; ++m) {
    for (const auto& [life, mass] : of(m).masses) {
      const int here = mass.received + mass.made;
      const int known = counted[{m, life}] + mass.dropped + mass.handed_over;
      const int pending_delta = sum(mass.window) + sum(mass.carried);
      const bool lives = life == of(m).life;
      if (lives ? here != known + pending_delta : here < known + pending_delta) {
        blame(fmt::format(
            "site {} life {} had {} windows: {} counted, {} dropped, {} handed over, "
            "{} in hand",
            m, life, here, counted[{m, life}], mass.dropped, mass.handed_over, pending_delta));
      }
    }
  }
}

/// However slow it is to the end, what a site carries is counted again and again.
void HostileRun::check_last_contributions() {
  if (!schedule_.late.carries) return;
  for (int m = 0; m < schedule_.members; ++m) {
    std::array<int, 2> without{};
    for (int round = last_round_ - kLastLateRounds; round < last_round_; ++round) {
      int& in_a_row = without[static_cast<std::size_t>(round % 2)];
      const std::vector<WorkerId>& contributors = results_.at(round).contributors;
      in_a_row = std::ranges::count(contributors, WorkerId(m)) > 0 ? 0 : in_a_row + 1;
      tally_.without_in_a_row = std::max(tally_.without_in_a_row, in_a_row);
      if (in_a_row > kMostWithout) {
        blame(fmt::format("site {} was late for {} rounds of a fragment in a row, up to {}", m,
                          in_a_row, round));
      }
    }
  }
}

}  // namespace isthmus::testing_support
