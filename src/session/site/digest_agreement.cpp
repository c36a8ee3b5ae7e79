// SPDX-License-Identifier: Apache-2.0
#include "session/site/digest_agreement.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "core/base/check.h"
#include "session/run/run_start.h"

namespace isthmus::app {

DigestAgreement::DigestAgreement(Options options)
    : options_(std::move(options)),
      live_(options_.sites.size(), !options_.joining),
      after_(options_.sites.size(), -1) {}

const std::string& DigestAgreement::name(int site) const {
  return options_.sites[static_cast<std::size_t>(site)];
}

void DigestAgreement::tell_others(const Note& note, NotesOut& out) const {
  for (int to = 0; to < static_cast<int>(live_.size()); ++to) {
    if (WorkerId(to) != options_.self && live_[static_cast<std::size_t>(to)]) {
      out.emplace_back(WorkerId(to), note);
    }
  }
}

void DigestAgreement::tell(StepIndex t, const std::string& digest, NotesOut& out,
                           const std::string& tensors) {
  const OuterNote note{.step = t, .digest = digest, .about = options_.about, .why = tensors};
  take(options_.self, note);
  tell_others(note, out);
}

void DigestAgreement::tell_replay(StepIndex t, const OuterReplay& replay, NotesOut& out) {
  const OuterNote note{.step = t,
                       .digest = replay.digest,
                       .about = options_.about,
                       .replayed = true,
                       .why = replay.why};
  take(options_.self, note);
  tell_others(note, out);
}

void DigestAgreement::give_up(const std::string& why, NotesOut& out) {
  if (!difference_) difference_ = why;
  tell_others(DifferNote{why}, out);
}

Expected<void, std::string> DigestAgreement::receive(WorkerId from, const Note& note) {
  // All members already know everything that a lost site has said.
  if (!live_[static_cast<std::size_t>(from.value())]) return {};
  if (const auto* outer = std::get_if<OuterNote>(&note)) {
    take(from, *outer);
  } else if (const auto* gone = std::get_if<GoneNote>(&note)) {
    return take_gone(from, *gone);
  } else if (const auto* differ = std::get_if<DifferNote>(&note)) {
    if (!difference_) difference_ = differ->why;
  }
  return {};
}

/// The first note counts.
void DigestAgreement::note_down(Told& told, const OuterNote& note) {
  told.about = note.about;
  if (!note.replayed && told.digest.empty()) {
    told.digest = note.digest;
    told.tensors = note.why;
  }
  if (note.replayed && !told.replay) told.replay = {.digest = note.digest, .why = note.why};
}

void DigestAgreement::take(WorkerId from, const OuterNote& note) {
  const std::int64_t t = note.step.value();
  note_down(told_[t][from.value()], note);
  if (!note.replayed) compare(from.value(), t);
  forget_compared();
}

Expected<void, std::string> DigestAgreement::take_gone(WorkerId from, const GoneNote& note) {
  for (const GoneNote::Word& word : note.words) {
    if (word.site < 0 || word.site >= static_cast<int>(live_.size())) {
      return Unexpected<std::string>(fmt::format("a word of site {}", word.site));
    }
    Gone& gone = gone_[word.note.step.value()][word.epoch];
    gone.site = word.site;
    note_down(gone.told, word.note);
  }
  if (note.epoch > epoch_) {
    ahead_[note.epoch].insert(from.value());
  } else if (const auto owing = owing_.find(note.epoch); owing != owing_.end()) {
    owing->second.erase(from.value());
    if (owing->second.empty()) owing_.erase(owing);
  }
  return {};
}

GoneNote DigestAgreement::all_gone(std::uint32_t epoch) const {
  GoneNote note{.epoch = epoch, .words = {}};
  for (const auto& [t, gone] : gone_) {
    for (const auto& [left, each] : gone) {
      const auto word = [&, left = left, t = t, site = each.site](OuterNote outer) {
        outer.step = StepIndex(t);
        note.words.push_back({.epoch = left, .site = site, .note = std::move(outer)});
      };
      const Told& told = each.told;
      if (!told.digest.empty()) word({.step = {}, .digest = told.digest, .about = told.about});
      if (!told.replay) continue;
      word({.step = {},
            .digest = told.replay->digest,
            .about = told.about,
            .replayed = true,
            .why = told.replay->why});
    }
  }
  return note;
}

void DigestAgreement::leave(const Epoch& epoch, NotesOut& out) {
  const int who = epoch.who.value();
  for (auto& [t, told] : told_) {
    const auto word = told.find(who);
    if (word == told.end()) continue;
    if (settles(who, t)) {
      Gone& gone = gone_[t][epoch.number];  // another may have told of it before
      gone.site = who;
      gone.told.about = word->second.about;
      if (gone.told.digest.empty()) gone.told.digest = word->second.digest;
      if (!gone.told.replay) gone.told.replay = word->second.replay;
    }
    told.erase(word);
  }
  live_[static_cast<std::size_t>(who)] = false;
  for (auto each = owing_.begin(); each != owing_.end();) {
    each->second.erase(who);
    each = each->second.empty() ? owing_.erase(each) : std::next(each);
  }
  epoch_ = epoch.number;
  const std::set<int> told = std::exchange(ahead_[epoch.number], {});
  ahead_.erase(ahead_.begin(), ahead_.upper_bound(epoch.number));
  std::set<int> owing;
  for (int site = 0; site < static_cast<int>(live_.size()); ++site) {
    const bool other = live_[static_cast<std::size_t>(site)] && WorkerId(site) != options_.self;
    if (other && !told.contains(site)) owing.insert(site);
  }
  if (!owing.empty()) owing_.emplace(epoch.number, std::move(owing));
  tell_others(all_gone(epoch.number), out);
  forget_compared();
}

void DigestAgreement::join(WorkerId site, StepIndex after) {
  const auto place = static_cast<std::size_t>(site.value());
  live_[place] = true;
  after_[place] = after.value();
}

bool DigestAgreement::settles(int site, std::int64_t t) const {
  const auto place = static_cast<std::size_t>(site);
  return t > options_.resumed_after && live_[place] && after_[place] < t;
}

std::string DigestAgreement::remedy_of_start(const Told& told, const Told& other) {
  const std::string tensor = first_unlike(told.tensors, other.tensors);
  if (tensor.empty()) return "they start from unlike weights; is model.init the same everywhere?";
  return fmt::format(
      "they start from unlike values, and '{}' is the first tensor that differs: give all sites "
      "the same ones, or net.start = \"first\", with which those of the first site count",
      tensor);
}

void DigestAgreement::compare(int site, std::int64_t t) {
  const std::map<int, Told>& known = told_.at(t);
  const Told& word = known.at(site);
  for (const auto& [other, told] : known) {
    if (told.digest == word.digest || told.digest.empty()) continue;
    const auto& [first, second] = std::minmax(site, other);
    if ((settles(first, t) && settles(second, t)) || difference_) continue;
    difference_ = fmt::format(
        "after step {} the outer parameters of sites {} ({}) and {} ({}) differ ({} and {}): {}", t,
        name(first), known.at(first).about, name(second), known.at(second).about,
        known.at(first).digest, known.at(second).digest,
        t == 0 ? remedy_of_start(known.at(first), known.at(second)) : kOuterRemedy);
  }
}

std::optional<bool> DigestAgreement::alike(StepIndex t) const {
  const std::map<int, Told>& told = told_.at(t.value());
  const std::string& own = told.at(options_.self.value()).digest;
  bool alike = true;
  for (int site = 0; site < static_cast<int>(live_.size()); ++site) {
    if (!settles(site, t.value())) continue;
    const auto word = told.find(site);
    if (word == told.end()) return std::nullopt;
    alike = alike && word->second.digest == own;
  }
  if (!owing_.empty()) return std::nullopt;
  if (const auto gone = gone_.find(t.value()); gone != gone_.end()) {
    for (const auto& [epoch, each] : gone->second) alike = alike && each.told.digest == own;
  }
  return alike;
}

std::optional<std::vector<OuterWord>> DigestAgreement::words(StepIndex t) const {
  std::vector<OuterWord> words;
  const auto add = [&](int site, const Told& told, bool gone) {
    words.push_back({.site = name(site),
                     .about = told.about,
                     .digest = told.digest,
                     .replay = told.replay,
                     .gone = gone});
  };
  for (const auto& [site, told] : told_.at(t.value())) {
    if (!settles(site, t.value())) continue;
    if (!told.replay) return std::nullopt;
    add(site, told, false);
  }
  if (!owing_.empty()) return std::nullopt;
  if (const auto gone = gone_.find(t.value()); gone != gone_.end()) {
    for (const auto& [epoch, each] : gone->second) add(each.site, each.told, true);
  }
  return words;
}

void DigestAgreement::healed(StepIndex t, const std::string& digest) {
  for (auto& [site, told] : told_.at(t.value())) {
    if (settles(site, t.value())) told.digest = digest;
  }
}

// Notes of one site keep their order, so no site tells of a step before one that all have told of.
// The entry of that step stays: a site that joins while all stand tells of it after the others.
void DigestAgreement::forget_compared() {
  std::optional<std::int64_t> last;
  for (const auto& [t, told] : told_) {
    bool all = true;
    for (int site = 0; site < static_cast<int>(live_.size()); ++site) {
      const auto place = static_cast<std::size_t>(site);
      all = all && (!live_[place] || after_[place] > t || told.contains(site));
    }
    if (all) last = t;
  }
  if (!last) return;
  told_.erase(told_.begin(), told_.lower_bound(*last));
  gone_.erase(gone_.begin(), gone_.lower_bound(*last));
}

}  // namespace isthmus::app
