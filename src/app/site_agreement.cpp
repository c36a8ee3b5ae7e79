// SPDX-License-Identifier: Apache-2.0
#include "app/site_agreement.h"

#include <algorithm>

namespace isthmus::app {

SiteAgreement::SiteAgreement(Rank self, int members, std::int64_t total_steps, std::int64_t taken)
    : self_(self), members_(members), total_steps_(total_steps), begun_(taken) {}

bool SiteAgreement::begin(StepIndex t) {
  const bool held =
      std::ranges::any_of(holds_, [&](const auto& hold) { return t.value() >= hold.second; });
  if (!held) {
    begun_ = std::max(begun_, t.value());
  }
  return !held;
}

void SiteAgreement::look_ahead(std::int64_t steps) { ahead_ = std::max<std::int64_t>(1, steps); }

void SiteAgreement::wish(Purpose purpose, NotesOut& out) {
  if (purpose != Purpose::kCheckpoint && !wished_.insert(purpose).second) {
    return;
  }
  if (self_ == Rank(0)) {
    ask(purpose, out);
  } else {
    out.emplace_back(Rank(0), WishNote{purpose});
  }
}

void SiteAgreement::receive(Rank from, const Note& note, NotesOut& out) {
  if (const auto* wanted = std::get_if<WishNote>(&note)) {
    if (self_ == Rank(0)) ask(wanted->purpose, out);
  } else if (const auto* question = std::get_if<AskNote>(&note)) {
    if (from == Rank(0)) answer(question->number, out);
  } else if (const auto* hold = std::get_if<HoldNote>(&note)) {
    if (self_ == Rank(0)) count(from, *hold, out);
  } else if (const auto* agreed = std::get_if<AgreedNote>(&note)) {
    if (from == Rank(0)) settle(*agreed);
  }
}

// One question of a kind at a time; of several wishes to stop the first decides how the run ends.
void SiteAgreement::ask(Purpose purpose, NotesOut& out) {
  const bool stops = purpose != Purpose::kCheckpoint;
  const auto alike = [&](const auto& open) {
    return (open.second.purpose != Purpose::kCheckpoint) == stops;
  };
  if ((stops && stop_) || std::ranges::any_of(questions_, alike)) {
    return;
  }
  const std::int64_t number = ++asked_;
  questions_[number].purpose = purpose;
  for (int to = 1; to < members_; ++to) {
    out.emplace_back(Rank(to), AskNote{number});
  }
  answer(number, out);
}

void SiteAgreement::answer(std::int64_t number, NotesOut& out) {
  const std::int64_t step = std::min(begun_ + ahead_, total_steps_);
  holds_[number] = step;
  const HoldNote note{number, StepIndex(step)};
  if (self_ == Rank(0)) {
    count(self_, note, out);
  } else {
    out.emplace_back(Rank(0), note);
  }
}

void SiteAgreement::count(Rank from, const HoldNote& note, NotesOut& out) {
  const auto found = questions_.find(note.number);
  if (found == questions_.end()) {
    return;
  }
  found->second.answers[from.value()] = note.step.value();
  if (found->second.answers.size() < static_cast<std::size_t>(members_)) {
    return;
  }
  std::int64_t step = 0;
  for (const auto& [site, answer] : found->second.answers) {
    step = std::max(step, answer);
  }
  const AgreedNote agreed{note.number, found->second.purpose, StepIndex(step)};
  questions_.erase(found);
  for (int to = 1; to < members_; ++to) {
    out.emplace_back(Rank(to), agreed);
  }
  settle(agreed);
}

// With the last step the run ends by itself, complete, and with a checkpoint.
void SiteAgreement::settle(const AgreedNote& note) {
  holds_.erase(note.number);
  if (note.purpose == Purpose::kCheckpoint) {
    checkpoints_.insert(note.step.value());
  } else if (note.step.value() < total_steps_ && !stop_) {
    stop_ = {note.step.value(), note.purpose};
  }
}

}  // namespace isthmus::app
