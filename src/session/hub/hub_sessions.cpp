// SPDX-License-Identifier: Apache-2.0
#include "session/hub/hub_sessions.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "core/base/log.h"
#include "isthmus/errors.h"
#include "record/wall_clock.h"
#include "session/run/trainer_facts.h"
#include "session/site/site_start.h"

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

// The values that a site must share with this hub's file and with the run.
void HubSessions::hear(WorkerId from, const HelloNote& note) {
  const auto turn_away = [&](const std::string& differs) {
    log_warning("site {} cannot take part: {}", all_.name(from), differs);
    all_.send(from, TurnedAwayNote{
                        .why = fmt::format("the configurations differ: {}; what a site changes "
                                           "with --change the hub is given with --set",
                                           differs),
                        .configuration = true});
  };
  HelloNote known = note;  // of data and model a hub knows nothing
  std::erase_if(known.common, [&](const auto& each) {
    return each.first != kTrainerKind &&
           std::ranges::none_of(all_.own.common,
                                [&](const auto& mine) { return mine.first == each.first; });
  });
  if (const std::string text = differences("the hub", all_.own, all_.name(from), known);
      !text.empty()) {
    turn_away(text);
    return;
  }
  all_.site(from).hello = note;
  if (all_.anybody_stands()) {
    const HelloNote others{
        .run_id = {}, .resumes = false, .held = {}, .common = all_.session->common};
    if (const std::string text = differences("the run", others, all_.name(from), note);
        !text.empty()) {
      turn_away(text);
    } else {
      answer_newcomer(from);
    }
  } else if (all_have_come()) {
    if (all_.first_stands) {
      all_.nobody_left = true;  // news of this session may be on their way here
    } else {
      begin();
    }
  }
}

/// The run continues without the newcomer.
void HubSessions::answer_newcomer(WorkerId newcomer) {
  all_.site(newcomer).standing = false;
  all_.site(newcomer).lost.reset();
  all_.exchange->exclude(newcomer, "its process has been started anew");
  RunningNote running{.run_id = all_.session->run_id,
                      .live = all_.live_sites(newcomer),
                      .donor = -1,
                      .session = all_.session->id};
  for (const int other : running.live) {
    const HubState::Site& each = all_.sites[static_cast<std::size_t>(other)];
    if (running.donor < 0 && each.standing && !each.lost) running.donor = other;
  }
  if (running.donor >= 0) all_.send(newcomer, running);  // else it asks again
}

void HubSessions::begin() {
  std::vector<std::string> names;
  std::vector<HelloNote> hellos;
  std::vector<WorkerId> here;
  std::vector<int> absent;
  for (int m = 0; m < all_.config().workers(); ++m) {
    if (!all_.site(WorkerId(m)).hello) {
      absent.push_back(m);
      continue;
    }
    here.push_back(WorkerId(m));
    names.push_back(all_.name(WorkerId(m)));
    hellos.push_back(*all_.site(WorkerId(m)).hello);
  }
  SiteStart start;
  try {
    start = agree_on_start(names, hellos, std::nullopt, all_.config().ckpt.every_steps);
  } catch (const ConfigError& error) {  // the sites find the same, each for itself
    for (const WorkerId each : here) {
      all_.send(each, TurnedAwayNote{.why = error.what(), .configuration = true});
    }
    throw;
  }
  all_.session = {.id = random_id(),
                  .run_id = start.run_id,
                  .sites = all_.config().workers(),
                  .common = hellos.front().common};
  all_.log.begin(*all_.session);
  all_.exchange->begin_anew();
  if (all_.options.merges != nullptr) all_.options.merges->begin(all_.session->id);
  steps_.begin_anew();
  all_.live.assign(all_.live.size(), true);
  all_.first_stands = all_.now();
  for (const WorkerId each : here) {
    all_.site(each) = {.hello = {}, .standing = true, .lost = {}};
    all_.exchange->stands(each);
  }
  for (const int m : absent) all_.exchange->exclude(WorkerId(m), "it has not been let in yet");
  for (const WorkerId each : here) {
    all_.send(
        each,
        StartNote{.run_id = all_.session->run_id, .session = all_.session->id, .absent = absent});
  }
  log_info("{} {} sites are together: run {} {}",
           absent.empty() ? "the" : fmt::format("{} of the", here.size()), all_.config().workers(),
           all_.session->run_id,
           start.resume_after ? fmt::format("goes on after step {}", *start.resume_after)
           : start.given_up
               ? fmt::format("begins anew, since not all have its first checkpoint, of "
                             "step {}",
                             *start.given_up)
               : "begins");
}

void HubSessions::hear(WorkerId from, const StandingNote& note) {
  if (!all_.session || all_.session->id != note.session) {
    const std::string why = fmt::format(
        "site {} is in the middle of run {}, {}: start the hub where the log of that run lies "
        "(--out DIR); if it is lost, end all sites and start them anew with --resume auto",
        all_.name(from), note.run_id,
        all_.session
            ? fmt::format("and the log here is of another start, of run {}", all_.session->run_id)
            : "and there is no log of it here");
    if (!all_.anybody_stands()) throw ConfigError(why);
    log_warning("{}", why);  // one of another start ends no run
    all_.send(from, TurnedAwayNote{.why = why, .configuration = true});
    return;
  }
  // A decision that is missing in this log cannot be told again, whichever other sites stand by
  // now.
  if (const Decided here = all_.exchange->decided(); !here.includes(note.decided)) {
    throw ConfigError(fmt::format(
        "site {} knows of run {} as far as {}, and the log here ends with {}: it is an older copy "
        "of that run's log: start the hub where the newest one lies (--out DIR); if it is lost, "
        "end all sites and start them anew with --resume auto",
        all_.name(from), note.run_id, words_of(note.decided), words_of(here)));
  }
  const bool first = !all_.anybody_stands();
  const bool live = all_.live[static_cast<std::size_t>(from.value())];
  all_.site(from).lost.reset();
  all_.site(from).standing = live;
  all_.exchange->stands(from);  // an excluded site learns of its exclusion from this
  if (!live) {
    return;
  }
  steps_.welcome_back(from);
  log_info("site {} is back", all_.name(from));
  if (!first) {
    return;
  }
  all_.first_stands = all_.now();
  for (int m = 0; m < all_.config().workers();
       ++m) {  // sites that had said Hello before that was known
    if (all_.site(WorkerId(m)).hello) hear(WorkerId(m), HelloNote(*all_.site(WorkerId(m)).hello));
  }
}

bool HubSessions::is_awaited(WorkerId rank) const {
  if (all_.options.keys == nullptr) return true;
  const SiteConfig& each = all_.config().sites[static_cast<std::size_t>(rank.value())];
  const HubKeyBook book = all_.options.keys->book();
  return !book.key_of(each.name, each.key).empty() ||
         book.is_invited(each.name, static_cast<std::int64_t>(unix_now()));
}

bool HubSessions::all_have_come() const {
  int here = 0;
  for (std::size_t m = 0; m < all_.sites.size(); ++m) {
    const bool said = all_.sites[m].hello.has_value();
    if (!said && is_awaited(WorkerId(static_cast<int>(m)))) return false;
    here += said ? 1 : 0;
  }
  return here >= std::max(1, all_.config().min_sites());
}

void HubSessions::begin_if_all_have_come() {
  if (!all_.anybody_stands() && !all_.first_stands && all_have_come()) begin();
}

}  // namespace isthmus::app
