// SPDX-License-Identifier: Apache-2.0
// What the processes of sites and hub do.
#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <limits>

#include "hostile_run.h"
#include "sim/rank_runtime.h"
#include "transport/exchange/membership.h"
#include "transport/naive_mean.h"

namespace isthmus::testing_support {
namespace {

using namespace std::chrono_literals;

constexpr Duration kHubWaits = 300ms;  // a hub, for one whose link has broken
constexpr Duration kRetry = 200ms;
constexpr Duration kAsks = 500ms;
constexpr Duration kPatience = 60s;      // for a round; more than all faults together
constexpr Duration kLeavePatience = 3s;  // of one that goes alone
constexpr Duration kEndPatience = 30s;   // of all at the end

}  // namespace

PeerExchangeOptions HostileRun::options_of(int self) {
  PeerExchangeOptions options{
      .retry_interval = kRetry,
      .run_key = 0,
      .elastic = true,
      .hub = schedule_.hub,
      .on_lost = [this, self](WorkerId peer, const std::string&) { on_lost(self, peer); },
      .on_back = [this, self](WorkerId peer) { on_back(self, peer); },
      .on_epoch = [this, self](const Epoch& epoch) { on_epoch(self, epoch); },
      .on_failure =
          [this, self](const std::exception_ptr& failure) {
            try {
              std::rethrow_exception(failure);
            } catch (const std::exception& error) {
              blame(fmt::format("process {} cannot go on: {}", self, error.what()));
            }
          }};
  if (schedule_.has_deadline() && self < schedule_.members) add_deadline(self, options);
  return options;
}

void HostileRun::start_site(int m, bool joins) {
  Site& site = of(m);
  site.alive = true;
  site.aside = joins;
  site.out = site.waits = false;
  site.met_by.clear();
  site.entered = true;
  site.last = kNoEnd;
  site.lost_hub.reset();
  if (!joins) hub_.live.assign(sites_.size(), true);
  tasks_.push_back(world_.spawn_in_group(group_of(m, site.life), fmt::format("site {}", m),
                                         [this, m, life = site.life] {
                                           try {
                                             site_body(m, life);
                                           } catch (const RankCrashed&) {
                                           } catch (const std::exception& error) {
                                             blame(fmt::format("site {}: {}", m, error.what()));
                                           }
                                           if (of(m).life == life) {
                                             of(m).alive = false;
                                             of(m).exchange = nullptr;
                                           }
                                         }));
}

void HostileRun::site_body(int m, int life) {
  Site& site = of(m);
  const auto endpoint = std::move(site.endpoint);
  const HostileSchedule::Clock& clock = schedule_.clocks[static_cast<std::size_t>(m)];
  RankRuntime paced(world_, schedule_.paces[static_cast<std::size_t>(m)]);
  SkewedRuntime runtime(paced, clock.ahead, clock.ppm);
  SkewedTransport transport(*endpoint, runtime);
  PeerExchange exchange(transport, runtime, options_of(m));
  if (site.aside) exchange.stand_aside();
  site.exchange = &exchange;
  if (site.aside) {
    train_alone(m, runtime);
    while (!wait_for_word(m, [&] { return !site.aside || site.out; })) {
    }
    if (!site.out) take_over(m);
  }
  if (!site.out) train(m, exchange, runtime);
  if (site.out) {
    ++tally_.left_out;
    if (!may_be_left_out()) {
      blame(fmt::format("site {} was left out for nothing: {}", m, site.why));
    }
    hand_over(m);
  } else {
    const bool alone = site.taken < last_round_;
    const TimePoint begin = now();
    tally_.leaves += alone ? 1 : 0;
    exchange.leave(alone ? kLeavePatience : kEndPatience);
    if (!alone && now() - begin >= kEndPatience / 2) {
      blame(fmt::format("site {} waited for the others' goodbyes: {}", m, state()));
    }
  }
  if (site.life == life) site.exchange = nullptr;
}

/// Rounds until the end, or until it leaves or is left out.
void HostileRun::train(int m, PeerExchange& exchange, Runtime& runtime) {
  Site& site = of(m);
  int trained = -1;  // for which round the steps have been taken
  const auto end = [&] { return std::min(last_round_, site.last); };
  const auto may_begin = [&] {
    const bool held = held_ && !site.entered && id_of(site.begun).sent.value() > *held_;
    return site.begun < end() && site.begun < site.taken + schedule_.open && !held;
  };
  while (site.taken < end() && !site.out) {
    if (may_begin() && trained != site.begun) {
      trained = site.begun;
      take_window(m, exchange, runtime);
    } else if (may_begin()) {
      const int round = site.begun++;
      Contribution own =
          contribution_of(codec_, WorkerId(m), size_of(round), id_of(round), schedule_.kind);
      own.weight = give(m, round);
      (void)exchange.begin(std::move(own));
    } else if (site.taken < site.begun) {
      if (!wait_for_oldest(m, exchange, runtime)) return;
    } else {
      (void)wait_for_word(m, [&] { return may_begin() || site.taken >= end() || site.out; });
    }
  }
}

/// Who waits for news asks who coordinates: here they may get lost, as no real link loses them.
bool HostileRun::wait_for_word(int m, const std::function<bool()>& ready) {
  if (changed_->wait(ready, now() + kAsks)) return true;
  const int coordinator = schedule_.hub ? schedule_.members : 0;
  if (of(m).exchange != nullptr && m != coordinator)
    of(m).exchange->note(WorkerId(coordinator), {});
  return false;
}

/// RETURNS: whether it goes on.
bool HostileRun::wait_for_oldest(int m, PeerExchange& exchange, Runtime& runtime) {
  Site& site = of(m);
  const int round = site.taken;
  const TimePoint begin = runtime.clock().now();
  auto reduced = exchange.wait({id_of(round)}, kPatience);
  // Whoever comes or goes gives all as long again, which is seen at the next look.
  const TimePoint from = std::max(begin, site.epoch_at + kRetry);
  if (runtime.clock().now() > from + kPatience) {
    blame(fmt::format("site {} waited for round {} past its deadline", m, round));
  }
  if (reduced) {
    ++site.taken;
    take_result(m, round, *std::move(reduced));
    return true;
  }
  const ExchangeError& error = reduced.error();
  const bool cut_off =
      error.kind == ExchangeError::Kind::kPeerLost && error.peer == WorkerId(0) && !schedule_.hub;
  if (error.kind == ExchangeError::Kind::kEvicted || cut_off) {
    site.out = true;
    site.why = error.what;
  } else {
    blame(fmt::format("site {} round {}: {}", m, round, error.what));
  }
  return false;
}

/// The state of before its first round, from one that has applied all of it. What it has on its own
/// disk has to be the same.
void HostileRun::take_over(int m) {
  Site& site = of(m);
  const int first = site.taken;
  const auto has_all = [&](const Site& other) {
    for (int round = 0; round < first; ++round) {
      if (!other.applied.contains(round)) return false;
    }
    return true;
  };
  const Site* donor = nullptr;
  site.waits = true;
  changed_->wait(
      [&] {
        const auto found = std::ranges::find_if(sites_, has_all);
        donor = found == sites_.end() ? nullptr : &*found;
        return donor != nullptr || site.out;
      },
      kNever);
  site.waits = false;
  if (donor == nullptr) return;
  for (int round = 0; round < first; ++round) {
    const auto [own, fetched] = site.applied.emplace(round, donor->applied.at(round));
    if (own->second != donor->applied.at(round)) {
      blame(fmt::format("site {} comes back with another result of round {}", m, round));
    }
  }
  if (site.applied.rbegin() != site.applied.rend() && site.applied.rbegin()->first >= first) {
    blame(fmt::format("site {} comes back for round {}, and has applied it", m, first));
  }
  ++tally_.joins;
}

void HostileRun::start_hub() {
  hub_.alive = true;
  tasks_.push_back(world_.spawn_in_group(group_of(schedule_.members, hub_.life), "hub",
                                         [this, life = hub_.life] {
                                           try {
                                             run_hub(life);
                                           } catch (const RankCrashed&) {
                                           } catch (const std::exception& error) {
                                             blame(fmt::format("hub: {}", error.what()));
                                           }
                                         }));
}

void HostileRun::run_hub(int life) {
  const auto endpoint = std::move(hub_.endpoint);
  app::HubLog log(disk_, "run");
  PeerExchangeOptions options = options_of(schedule_.members);
  if (log.contents().session) {
    options.history = log.contents().history;
    read_history(log.contents().history);
  } else {
    log.begin({.id = "start", .run_id = "run", .sites = schedule_.members, .common = {}});
  }
  options.on_records = [&](std::span<const HubRecord> records) {
    log.append(records);
    hub_.written.insert(hub_.written.end(), records.begin(), records.end());
  };
  const HostileSchedule::Clock& clock = schedule_.clocks.back();
  SkewedRuntime runtime(world_, clock.ahead, clock.ppm);
  SkewedTransport transport(*endpoint, runtime);
  PeerExchange exchange(transport, runtime, options);
  hub_.exchange = &exchange;
  changed_->wait([&] { return over_; }, kNever);
  if (hub_.life == life) hub_.exchange = nullptr;
}

/// A hub's next process: who is there as far as the last one has written it down. That may be a
/// record that was whole on the disk when it died over it.
void HostileRun::read_history(std::span<const HubRecord> history) {
  std::vector<bool> live(sites_.size(), true);
  hub_.leaving.clear();
  for (const HubRecord& record : history) {
    if (record.kind != HubRecord::Kind::kEpoch) continue;
    const auto news = EpochNews::read(record.body, schedule_.members);
    if (!news) continue;
    live = news->membership.live();
    hub_.leaving.clear();
    for (int m = 0; m < schedule_.members; ++m) {
      if (news->membership.leaves(WorkerId(m))) hub_.leaving.insert(m);
    }
  }
  see_members(std::move(live));
  hub_.written.assign(history.begin(), history.end());
}

// ---- what the exchanges tell

void HostileRun::on_back(int self, WorkerId peer) {
  const int coordinator = schedule_.hub ? schedule_.members : 0;
  if (peer.value() < schedule_.members) of(peer.value()).met_by.insert(self);
  if (self == coordinator && peer.value() < schedule_.members) {
    const Site& site = of(peer.value());
    hub_.gone_at.erase(peer.value());
    if (schedule_.hub && site.alive) greet(peer.value());
  } else if (schedule_.hub && peer.value() == schedule_.members) {
    of(self).lost_hub.reset();
    // What it was told and has not written down, it is told again.
    if (of(self).exchange != nullptr && !of(self).aside) of(self).exchange->tell_hub_again();
  }
}

/// At the hub: a site is there.
void HostileRun::greet(int m) {
  if (hub_.exchange == nullptr) return;
  const bool of_before = !of(m).aside || (counts_as_member(m) && of(m).asked == of(m).life);
  if (of_before) {
    hub_.exchange->stands(WorkerId(m));
    if (of(m).exchange != nullptr && !of(m).aside) of(m).exchange->tell_hub_again();
  } else {
    hub_.exchange->exclude(WorkerId(m), "its process has been started anew");
  }
}

void HostileRun::on_lost(int self, WorkerId peer) {
  if (schedule_.hub && self == schedule_.members) {
    hub_.gone_at[peer.value()] = now() + kHubWaits;
  } else if (schedule_.hub && peer.value() == schedule_.members) {
    of(self).lost_hub = now();
  } else if (!schedule_.hub && peer == WorkerId(0)) {
    of(self).out = true;  // its rounds fail by themselves
    of(self).why = "it has lost the first";
    changed_->update([] {});
  }
}

void HostileRun::on_epoch(int self, const Epoch& epoch) {
  const int coordinator = schedule_.hub ? schedule_.members : 0;
  if (self == coordinator) {
    see_members(epoch.live);
    if (epoch.leaves) {
      hub_.leaving.insert(epoch.who.value());
    } else {
      hub_.leaving.erase(epoch.who.value());
    }
  }
  if (self < schedule_.members) {
    Site& site = of(self);
    const auto own = schedule_.clocks[static_cast<std::size_t>(self)];
    site.epoch_at = SkewedRuntime(world_, own.ahead, own.ppm).clock().now();
    const bool about_it = epoch.who == WorkerId(self);
    if (epoch.joins || epoch.leaves) site.entered = true;
    if (about_it && epoch.joins) site.aside = false;
    if (about_it && epoch.leaves) site.last = first_after(epoch.after);
    if (about_it && !epoch.joins && !epoch.leaves && site.last == kNoEnd) {
      site.out = true;
      site.why = epoch.why;
    }
  }
  changed_->update([] {});
}

}  // namespace isthmus::testing_support
