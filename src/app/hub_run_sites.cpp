// SPDX-License-Identifier: Apache-2.0
// What a hub hears from the sites, and answers.
#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "app/hub_run.h"
#include "app/site_routes.h"
#include "app/site_session.h"
#include "app/wall_clock.h"
#include "core/log.h"
#include "isthmus/errors.h"

namespace isthmus::app {
namespace {

/// How far that is.
std::string words_of(const Decided& decided) {
  StepIndex last(0);
  for (const SyncId& each : decided.newest) last = std::max(last, each.sent);
  return fmt::format("epoch {} and {}", decided.epoch,
                     decided.newest.empty() ? std::string("no round")
                                            : fmt::format("the round of step {}", last.value()));
}

}  // namespace

void HubRun::take(const std::exception_ptr& failure) { std::rethrow_exception(failure); }

void HubRun::take(const Lost& lost) {
  Site& each = site(lost.site);
  each.hello.reset();
  std::erase_if(joiners_, [&](const WishNote& wish) { return wish.joiner == lost.site.value(); });
  if (each.standing && !each.lost) each.lost = {now(), lost.why};
}

void HubRun::take(const Back& back) {
  Site& each = site(back.site);
  each.lost.reset();
  each.hello.reset();
}

void HubRun::take(const Said& said) {
  const Expected<Note, std::string> note = read_note(said.bytes);
  if (!note) {
    const std::string what =
        fmt::format("site {} sent what cannot be read: {}", name(said.from), note.error());
    log_warning("{}", what);
    send(said.from, TurnedAwayNote{.why = what, .configuration = true});
  } else if (const auto* greeting = std::get_if<HelloNote>(&*note)) {
    hear(said.from, *greeting);
  } else if (const auto* standing = std::get_if<StandingNote>(&*note)) {
    hear(said.from, *standing);
  } else if (const auto* wish = std::get_if<WishNote>(&*note)) {
    hear(said.from, *wish);
  } else if (site(said.from).standing) {
    drive([&](NotesOut& out) { agreement_->receive(said.from, *note, out); });
  }
}

// What a site has in common with this hub's file, and with the run.
void HubRun::hear(Rank from, const HelloNote& note) {
  const auto turn_away = [&](const std::string& differs) {
    log_warning("site {} cannot take part: {}", name(from), differs);
    send(from, TurnedAwayNote{.why = fmt::format("the configurations differ: {}", differs),
                              .configuration = true});
  };
  HelloNote known = note;  // of data and model a hub knows nothing
  std::erase_if(known.common, [&](const auto& each) {
    return std::ranges::none_of(own_.common,
                                [&](const auto& mine) { return mine.first == each.first; });
  });
  if (const std::string text = differences("the hub", own_, name(from), known); !text.empty()) {
    turn_away(text);
    return;
  }
  site(from).hello = note;
  if (anybody_stands()) {
    const HelloNote others{.run_id = {}, .resumes = false, .held = {}, .common = session_->common};
    if (const std::string text = differences("the run", others, name(from), note); !text.empty()) {
      turn_away(text);
    } else {
      answer_newcomer(from);
    }
  } else if (all_have_come()) {
    if (first_stands_) {
      nobody_left_ = true;  // news of this session may be on their way here
    } else {
      begin_session();
    }
  }
}

/// The run goes on without it.
void HubRun::answer_newcomer(Rank newcomer) {
  site(newcomer).standing = false;
  site(newcomer).lost.reset();
  exchange_->exclude(newcomer, "its process has been started anew");
  RunningNote running{.run_id = session_->run_id,
                      .live = live_sites(newcomer),
                      .donor = -1,
                      .session = session_->id};
  for (const int other : running.live) {
    const Site& each = sites_[static_cast<std::size_t>(other)];
    if (running.donor < 0 && each.standing && !each.lost) running.donor = other;
  }
  if (running.donor >= 0) send(newcomer, running);  // else it asks again
}

std::vector<int> HubRun::live_sites(Rank except) const {
  std::vector<int> live;
  for (int m = 0; m < config_.workers(); ++m) {
    if (live_[static_cast<std::size_t>(m)] && Rank(m) != except) live.push_back(m);
  }
  return live;
}

void HubRun::begin_session() {
  std::vector<std::string> names;
  std::vector<HelloNote> hellos;
  std::vector<Rank> here;
  std::vector<int> absent;
  for (int m = 0; m < config_.workers(); ++m) {
    if (!site(Rank(m)).hello) {
      absent.push_back(m);
      continue;
    }
    here.push_back(Rank(m));
    names.push_back(name(Rank(m)));
    hellos.push_back(*site(Rank(m)).hello);
  }
  SiteStart start;
  try {
    start = agree_on_start(names, hellos, std::nullopt, config_.ckpt.every_steps);
  } catch (const ConfigError& error) {  // the sites find the same, each for itself
    for (const Rank each : here) {
      send(each, TurnedAwayNote{.why = error.what(), .configuration = true});
    }
    throw;
  }
  session_ = {.id = random_id(),
              .run_id = start.run_id,
              .sites = config_.workers(),
              .common = hellos.front().common};
  log_.begin(*session_);
  exchange_->begin_anew();
  agree_anew();
  live_.assign(live_.size(), true);
  first_stands_ = now();
  for (const Rank each : here) {
    site(each) = {.hello = {}, .standing = true, .lost = {}};
    exchange_->stands(each);
  }
  for (const int m : absent) exchange_->exclude(Rank(m), "it has not been let in yet");
  for (const Rank each : here) {
    send(each, StartNote{.run_id = session_->run_id, .session = session_->id, .absent = absent});
  }
  log_info("{} {} sites are together: run {} {}",
           absent.empty() ? "the" : fmt::format("{} of the", here.size()), config_.workers(),
           session_->run_id,
           start.resume_after ? fmt::format("goes on after step {}", *start.resume_after)
           : start.given_up
               ? fmt::format("begins anew, since not all have its first checkpoint, of "
                             "step {}",
                             *start.given_up)
               : "begins");
}

/// What was wished or asked before is of another start.
void HubRun::agree_anew() {
  const Rank self(config_.workers());
  agreement_.emplace(self, config_.workers(), total_steps(config_), 0, config_.min_sites(), self);
  agreement_->set_relays(needed_relays(config_), hidden_sites(config_.sites));
  agreement_->set_window(join_window(config_) + 1);
  joiners_.clear();
}

void HubRun::hear(Rank from, const StandingNote& note) {
  if (!session_ || session_->id != note.session) {
    const std::string why = fmt::format(
        "site {} is in the middle of run {}, {}: start the hub where the log of that run lies "
        "(--out DIR); if it is lost, end all sites and start them anew with --resume auto",
        name(from), note.run_id,
        session_ ? fmt::format("and the log here is of another start, of run {}", session_->run_id)
                 : "and there is no log of it here");
    if (!anybody_stands()) throw ConfigError(why);
    log_warning("{}", why);  // one of another start ends no run
    send(from, TurnedAwayNote{.why = why, .configuration = true});
    return;
  }
  // Nobody can be told again what is not written down here, whoever else stands by now.
  if (const Decided here = exchange_->decided(); !here.includes(note.decided)) {
    throw ConfigError(fmt::format(
        "site {} knows of run {} as far as {}, and the log here ends with {}: it is an older copy "
        "of that run's log: start the hub where the newest one lies (--out DIR); if it is lost, "
        "end all sites and start them anew with --resume auto",
        name(from), note.run_id, words_of(note.decided), words_of(here)));
  }
  const bool first = !anybody_stands();
  const bool live = live_[static_cast<std::size_t>(from.value())];
  site(from).lost.reset();
  site(from).standing = live;
  exchange_->stands(from);  // who is out learns it by that
  if (!live) {
    return;
  }
  for (const AgreedNote& agreed : log_.agreed()) send(from, agreed);
  send(from, ServeNote{});  // what it has promised a process before is void
  drive([&](NotesOut& out) { agreement_->ask_again(from, out); });
  log_info("site {} is back", name(from));
  if (!first) {
    return;
  }
  first_stands_ = now();
  for (int m = 0; m < config_.workers(); ++m) {  // who had said Hello before that was known
    if (site(Rank(m)).hello) hear(Rank(m), HelloNote(*site(Rank(m)).hello));
  }
}

void HubRun::hear(Rank from, const WishNote& note) {
  if (note.purpose != Purpose::kJoin) {
    drive([&](NotesOut& out) { agreement_->receive(from, note, out); });
    return;
  }
  const bool known = note.joiner >= 0 && note.joiner < config_.workers() &&
                     std::ranges::none_of(joiners_, [&](const WishNote& each) {
                       return each.joiner == note.joiner;
                     });
  if (!known) {
    return;
  }
  joiners_.push_back(note);
  if (joiners_.size() == 1) ask_for_joiner();
}

void HubRun::ask_for_joiner() {
  if (!joiners_.empty()) {
    drive([&](NotesOut& out) { agreement_->wish(Purpose::kJoin, out); });
  }
}

// What is agreed on is written down before anybody is told.
void HubRun::drive(const std::function<void(NotesOut&)>& step) {
  NotesOut out;
  step(out);
  const std::optional<StepIndex> join = agreement_->take_join();
  if (join) admit(*join);
  if (const auto leave = agreement_->take_leave();
      leave && !exchange_->release(leave->first, leave->second.value())) {
    agreement_->stays(leave->first, "somebody else has gone meanwhile", out);
  }
  for (const auto& [to, note] : out) {
    // Who has not found this process yet is asked once it has.
    if (std::holds_alternative<AskNote>(note) && !site(to).standing) continue;
    const auto* agreed = std::get_if<AgreedNote>(&note);
    const bool fresh = agreed != nullptr && agreed->number > 0 &&
                       std::ranges::none_of(log_.agreed(), [&](const AgreedNote& each) {
                         return each.number == agreed->number;
                       });
    if (fresh) log_.append(*agreed);
    send(to, note);
  }
  if (join) ask_for_joiner();
}

/// The first in line, unless somebody has come whom it has not found: its donor then tells it so.
void HubRun::admit(StepIndex after) {
  if (joiners_.empty()) {
    return;
  }
  const WishNote wish = joiners_.front();
  joiners_.pop_front();
  const Rank joiner(wish.joiner);
  const std::vector<int> live = live_sites(joiner);
  const bool knows_all = std::ranges::all_of(
      live, [&](int m) { return std::ranges::find(wish.linked, m) != wish.linked.end(); });
  const bool in_time = after.value() < total_steps(config_);
  if (!knows_all || !in_time || !exchange_->admit(joiner, after.value())) {
    log_warning("site {} could not join after step {}", name(joiner), after.value());
    return;
  }
  site(joiner) = {.hello = {}, .standing = true, .lost = {}};
}

void HubRun::take(const Epoch& epoch) {
  live_ = epoch.live;
  if (board_ != nullptr) board_->epoch(epoch.number);
  if (epoch.leaves) {
    log_info("site {} leaves after step {}", name(epoch.who), epoch.after);
    return;
  }
  const auto count = std::ranges::count(live_, true);
  if (!epoch.joins) site(epoch.who).standing = false;
  if (count == 0) {
    nobody_left_ = true;
    return;
  }
  if (epoch.joins) {
    log_info("site {} is back: {} of {} sites from step {}", name(epoch.who), count, live_.size(),
             epoch.after + 1);
  } else {
    log_warning("site {} is gone ({}): {} with {} of {} sites", name(epoch.who), epoch.why,
                count < config_.min_sites() ? "they wait for enough to come back" : "going on",
                count, live_.size());
  }
  drive([&](NotesOut& out) {
    if (epoch.joins) {
      agreement_->join(epoch.who, StepIndex(epoch.after), out);
    } else {
      agreement_->leave(epoch.who, out);
    }
  });
}

}  // namespace isthmus::app
