// SPDX-License-Identifier: Apache-2.0
#include "session/site/site_agreement.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace isthmus::app {
namespace {

// In place of a question's number: an agreement from before a joiner came, and the last such note.
constexpr std::int64_t kRepeated = -1;
constexpr std::int64_t kWelcome = 0;

bool stops(Purpose purpose) {
  return purpose == Purpose::kInterrupt || purpose == Purpose::kRequeue;
}

bool changes(Purpose purpose) { return purpose == Purpose::kJoin || purpose == Purpose::kLeave; }

}  // namespace

SiteAgreement::SiteAgreement(WorkerId self, int members, std::int64_t total_steps,
                             std::int64_t taken, int min_sites, WorkerId coordinator)
    : self_(self),
      coordinator_(coordinator),
      live_(static_cast<std::size_t>(members), true),
      total_steps_(total_steps),
      min_sites_(min_sites),
      begun_(taken) {}

void SiteAgreement::set_relays(std::vector<WorkerId> relays, std::vector<WorkerId> hidden) {
  relays_ = std::move(relays);
  hidden_ = std::move(hidden);
}

bool SiteAgreement::begin(StepIndex t) {
  const bool held =
      waits(t) || ends_before(t) ||
      std::ranges::any_of(holds_, [&](const auto& hold) { return t.value() >= hold.second; });
  if (!held) {
    begun_ = std::max(begun_, t.value());
  }
  return !held;
}

bool SiteAgreement::ends_before(StepIndex t) const {
  return agreed_.stop && t.value() > agreed_.stop->first;
}

// A run that is to end ends, with whichever sites are present.
bool SiteAgreement::waits(StepIndex t) const {
  return agreed_.waits_after && t.value() > *agreed_.waits_after && too_few() && !agreed_.stop;
}

bool SiteAgreement::too_few() const { return std::ranges::count(live_, true) < min_sites_; }

// Not in the middle of taking somebody in: the next one would never have its turn.
void SiteAgreement::wait_after(std::int64_t step) {
  agreed_.waits_after = std::min(std::max(step, taken_in_by_.value_or(0)), total_steps_);
}

void SiteAgreement::look_ahead(std::int64_t steps) { ahead_ = std::max<std::int64_t>(1, steps); }

void SiteAgreement::wish(Purpose purpose, NotesOut& out) {
  if (stops(purpose) && !wished_.insert(purpose).second) {
    return;
  }
  if (coordinates()) {
    ask(purpose, self_, out);
  } else {
    out.emplace_back(coordinator_, WishNote{purpose});
  }
}

void SiteAgreement::wish_join(const WishNote& note, NotesOut& out) {
  if (coordinates()) {
    ask(Purpose::kJoin, self_, out);
  } else {
    out.emplace_back(coordinator_, note);
  }
}

void SiteAgreement::hub_back(NotesOut& out) {
  holds_.clear();
  for (const Purpose purpose : wished_) {
    if (!agreed_.stop) out.emplace_back(coordinator_, WishNote{purpose});
  }
}

void SiteAgreement::resume(const std::vector<AgreedNote>& agreed) {
  for (const AgreedNote& note : agreed) {
    settle(note);
    asked_ = std::max(asked_, note.number);
  }
  untaken_.join.reset();
}

void SiteAgreement::receive(WorkerId from, const Note& note, NotesOut& out) {
  if (const auto* wanted = std::get_if<WishNote>(&note)) {
    if (coordinates()) ask(wanted->purpose, from, out);
  } else if (const auto* question = std::get_if<AskNote>(&note)) {
    if (from == coordinator_) answer(question->number, out);
  } else if (const auto* hold = std::get_if<HoldNote>(&note)) {
    if (coordinates()) count(from, *hold, out);
  } else if (const auto* agreed = std::get_if<AgreedNote>(&note)) {
    if (from == coordinator_) settle(*agreed);
  } else if (const auto* refused = std::get_if<RefusedNote>(&note)) {
    if (from == coordinator_) untaken_.refusal = refused->why;
  }
}

// One question of a kind at a time; of several wishes to stop the first decides how the run ends.
void SiteAgreement::ask(Purpose purpose, WorkerId who, NotesOut& out) {
  const auto alike = [&](const auto& open) {
    const bool open_stops = stops(open.second.purpose);
    return (open.second.purpose == purpose && !changes(purpose)) ||
           (open_stops && (stops(purpose) || changes(purpose)));
  };
  // No site joins or leaves a run that ends.
  const bool too_late = agreed_.stop && purpose != Purpose::kCheckpoint;
  if (too_late || std::ranges::any_of(questions_, alike)) {
    return;
  }
  const auto another = [](const auto& open) { return changes(open.second.purpose); };
  if (changes(purpose) && (leaving_ || std::ranges::any_of(questions_, another))) {
    const auto same = [&](const auto& open) {
      return open.second.purpose == purpose && open.second.who == who;
    };
    const std::pair wish(purpose, who);
    const bool known = leaving_ == who || std::ranges::any_of(questions_, same) ||
                       std::ranges::find(waiting_, wish) != waiting_.end();
    if (!known) waiting_.push_back(wish);
    return;
  }
  if (const auto why = purpose == Purpose::kLeave ? must_stay(who) : std::nullopt) {
    refuse(who, *why, out);
    return;
  }
  const std::int64_t number = ++asked_;
  questions_[number].purpose = purpose;
  questions_[number].who = who;
  tell_others(AskNote{number}, out);
  if (static_cast<std::size_t>(self_.value()) < live_.size()) answer(number, out);
}

void SiteAgreement::ask_next(NotesOut& out) {
  const auto another = [](const auto& open) { return changes(open.second.purpose); };
  while (!waiting_.empty() && !leaving_ && std::ranges::none_of(questions_, another)) {
    const auto [purpose, who] = waiting_.front();
    waiting_.pop_front();
    ask(purpose, who, out);
  }
}

/// Why, if so.
std::optional<std::string> SiteAgreement::must_stay(WorkerId who) const {
  if (who == coordinator_) {
    return "the first site numbers the memberships and the run ends without it";
  }
  const auto there = std::ranges::count(live_, true);
  if (there <= min_sites_) {
    return fmt::format("{} of the {} sites that are there would be fewer than net.min_sites = {}",
                       there - 1, there, min_sites_);
  }
  const auto is_there = [&](WorkerId site) {
    return live_[static_cast<std::size_t>(site.value())];
  };
  const auto relays_on = [&](WorkerId site) { return site != who && is_there(site); };
  if (std::ranges::find(relays_, who) != relays_.end() &&
      std::ranges::none_of(relays_, relays_on) && std::ranges::any_of(hidden_, is_there)) {
    return "it is the only relay that is there, and sites without an address are reached by way of "
           "it alone";
  }
  return std::nullopt;
}

void SiteAgreement::refuse(WorkerId who, const std::string& why, NotesOut& out) {
  if (who == self_) {
    untaken_.refusal = why;
  } else if (live_[static_cast<std::size_t>(who.value())]) {
    out.emplace_back(who, RefusedNote{why});
  }
}

void SiteAgreement::stays(WorkerId who, const std::string& why, NotesOut& out) {
  leaving_.reset();
  refuse(who, why, out);
  ask_next(out);
}

/// All have agreed on a step for it.
void SiteAgreement::release(WorkerId who, StepIndex after, NotesOut& out) {
  if (!live_[static_cast<std::size_t>(who.value())] || agreed_.stop ||
      after.value() >= total_steps_) {
    return;
  }
  if (const auto why = must_stay(who)) {  // somebody has gone meanwhile
    refuse(who, *why, out);
    return;
  }
  leaving_ = who;
  untaken_.leave = {who, after};
}

void SiteAgreement::tell_others(const Note& note, NotesOut& out) const {
  for (std::size_t to = 0; to < live_.size(); ++to) {
    if (live_[to] && WorkerId(static_cast<int>(to)) != self_)
      out.emplace_back(WorkerId(static_cast<int>(to)), note);
  }
}

void SiteAgreement::answer(std::int64_t number, NotesOut& out) {
  // A site that stands, or is to stand after the step it has begun, needs no more time.
  const bool stands = waits(StepIndex(begun_ + 1));
  std::int64_t step = stands ? begun_ : std::min(begun_ + ahead_, total_steps_);
  // A stop beyond the step at which the sites will stand would come too late.
  if (agreed_.waits_after && too_few() && !agreed_.stop)
    step = std::min(step, std::max(begun_, *agreed_.waits_after));
  holds_[number] = step;
  const HoldNote note{number, StepIndex(step)};
  if (coordinates()) {
    count(self_, note, out);
  } else {
    out.emplace_back(coordinator_, note);
  }
}

void SiteAgreement::count(WorkerId from, const HoldNote& note, NotesOut& out) {
  const auto found = questions_.find(note.number);
  if (found != questions_.end() && live_[static_cast<std::size_t>(from.value())]) {
    found->second.answers[from.value()] = note.step.value();
    conclude(note.number, out);
  }
}

/// Called once every present site has answered.
void SiteAgreement::conclude(std::int64_t number, NotesOut& out) {
  const Question& question = questions_.at(number);
  for (std::size_t site = 0; site < live_.size(); ++site) {
    if (live_[site] && !question.answers.contains(static_cast<int>(site))) {
      return;
    }
  }
  std::int64_t step = 0;
  for (const auto& [site, answer] : question.answers) {
    step = std::max(step, answer);
  }
  const AgreedNote agreed{number, question.purpose, StepIndex(step)};
  const WorkerId who = question.who;
  questions_.erase(number);
  tell_others(agreed, out);
  settle(agreed);
  if (agreed.purpose == Purpose::kLeave) release(who, agreed.step, out);
  ask_next(out);
}

// With the last step the run ends by itself, complete, and with a checkpoint.
void SiteAgreement::settle(const AgreedNote& note) {
  holds_.erase(note.number);
  if (note.number > kWelcome && !agreed_.questions.insert(note.number).second) {
    return;  // the hub's next process repeats the agreement
  }
  if (note.purpose == Purpose::kCheckpoint) {
    agreed_.checkpoints.insert(note.step.value());
  } else if (note.purpose == Purpose::kWait) {
    // A hub's next process tells all agreements of the run: a site that joined later has not stood
    // at that step.
    if (note.step.value() > joined_after_) wait_after(note.step.value());
  } else if (changes(note.purpose)) {
    if (agreed_.stop) return;
    agreed_.changes.insert(note.step.value());
    if (note.purpose == Purpose::kJoin) untaken_.join = note.step;
  } else if (note.step.value() < total_steps_ && !agreed_.stop) {
    agreed_.stop = {note.step.value(), note.purpose};
    // No site has been admitted or released yet, and no site joins or leaves a run that ends.
    untaken_.join.reset();
    untaken_.leave.reset();
  }
}

void SiteAgreement::leave(WorkerId site, NotesOut& out) {
  const bool were_enough = !too_few();
  live_[static_cast<std::size_t>(site.value())] = false;
  if (leaving_ == site) leaving_.reset();
  std::erase(waiting_, std::pair(Purpose::kLeave, site));
  std::vector<std::int64_t> open;
  for (auto& [number, question] : questions_) {
    question.answers.erase(site.value());
    open.push_back(number);
  }
  // Stops come first: they decide whether a join is still worthwhile.
  std::stable_partition(open.begin(), open.end(),
                        [&](std::int64_t number) { return stops(questions_.at(number).purpose); });
  for (const std::int64_t number : open) {
    conclude(number, out);
  }
  if (were_enough && too_few()) {
    // Of an earlier time; some may compare their states at that step already.
    if (agreed_.waits_after) agreed_.checkpoints.insert(*agreed_.waits_after);
    agreed_.waits_after.reset();
    if (coordinates()) ask(Purpose::kWait, self_, out);
  }
  ask_next(out);
}

void SiteAgreement::join(WorkerId site, StepIndex after, NotesOut& out) {
  live_[static_cast<std::size_t>(site.value())] = true;
  taken_in_by_ = after.value() + window_;
  if (too_few() && agreed_.waits_after) wait_after(*agreed_.waits_after);
  if (site == self_) {
    begun_ = std::max(begun_, after.value());
    joined_after_ = after.value();
    holds_[kWelcome] = after.value() + 1;
  } else {
    agreed_.changes.insert(after.value());  // a hub may have ended before it said so itself
  }
  if (!coordinates()) {
    return;
  }
  for (auto each = agreed_.checkpoints.upper_bound(after.value());
       each != agreed_.checkpoints.end(); ++each) {
    out.emplace_back(site, AgreedNote{kRepeated, Purpose::kCheckpoint, StepIndex(*each)});
  }
  if (!too_few() &&
      agreed_.waits_after > after.value()) {  // no site waits there, but all write a checkpoint
    out.emplace_back(site,
                     AgreedNote{kRepeated, Purpose::kCheckpoint, StepIndex(*agreed_.waits_after)});
  }
  for (auto each = agreed_.changes.upper_bound(after.value()); each != agreed_.changes.end();
       ++each) {
    out.emplace_back(site, AgreedNote{kRepeated, Purpose::kLeave, StepIndex(*each)});
  }
  if (agreed_.stop) {
    out.emplace_back(site,
                     AgreedNote{kRepeated, agreed_.stop->second, StepIndex(agreed_.stop->first)});
  }
  if (too_few() && agreed_.waits_after) {
    out.emplace_back(site, AgreedNote{kRepeated, Purpose::kWait, StepIndex(*agreed_.waits_after)});
  }
  ask_again(site, out);
  out.emplace_back(site, AgreedNote{kWelcome, Purpose::kJoin, after});
}

void SiteAgreement::ask_again(WorkerId site, NotesOut& out) const {
  for (const auto& [number, question] : questions_) {
    out.emplace_back(site, AskNote{number});
  }
}

}  // namespace isthmus::app
