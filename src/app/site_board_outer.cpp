// SPDX-License-Identifier: Apache-2.0
// What a site's board does about the digests of outer states: they are compared where sites start
// and join, and where all lay down a checkpoint. There all wait for one another's, which come with
// the lines up to that step, so that what is not alike is settled before anybody writes it down.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "app/site_board.h"
#include "core/log.h"
#include "isthmus/errors.h"

namespace isthmus::app {

void SiteBoard::tell_outer(StepIndex t, const Digest128& digest) {
  const OuterNote note{.step = t, .digest = digest.hex(), .about = options_.about};
  queue_->update([&] { compare(options_.self, note); });
  tell_others(note);
}

void SiteBoard::take_outer(Rank from, const OuterNote& note) {
  queue_->update([&] {
    if (note.replayed) {
      replays_[note.step.value()][from.value()] = {.digest = note.digest, .why = note.why};
    } else {
      compare(from, note);
    }
  });
}

bool SiteBoard::settles(int site, std::int64_t t) const {
  const auto place = static_cast<std::size_t>(site);
  return t > options_.resumed_after && live_[place] && after_[place] < t;
}

void SiteBoard::compare(Rank site, const OuterNote& note) {
  const std::int64_t t = note.step.value();
  std::map<int, std::string>& known = digests_[t];
  known[site.value()] = note.digest;
  about_[site.value()] = note.about;
  for (const auto& [other, digest] : known) {
    const int first = std::min(site.value(), other);
    const int second = std::max(site.value(), other);
    const auto here = [&](int one) { return live_[static_cast<std::size_t>(one)]; };
    if (digest == note.digest || !here(first) || !here(second)) continue;
    if (settles(first, t) && settles(second, t)) continue;
    if (difference_) continue;
    difference_ = fmt::format(
        "after step {} the outer parameters of sites {} ({}) and {} ({}) differ ({} and {}): {}", t,
        name(Rank(first)), about_[first], name(Rank(second)), about_[second], known[first],
        known[second],
        t == 0 ? "they start from unlike weights; is model.init the same everywhere?"
               : kOuterRemedy);
  }
  forget_compared();
}

bool SiteBoard::all_settle(std::int64_t t, const std::map<int, std::string>& known) const {
  for (int site = 0; site < static_cast<int>(live_.size()); ++site) {
    if (settles(site, t) && !known.contains(site)) return false;
  }
  return true;
}

bool SiteBoard::alike(std::int64_t t) const {
  const std::map<int, std::string>& known = digests_.at(t);
  const std::string& own = known.at(options_.self.value());
  return std::ranges::all_of(
      known, [&](const auto& each) { return !settles(each.first, t) || each.second == own; });
}

void SiteBoard::await_outer(StepIndex t, const std::function<bool()>& ready) {
  bool here = false;
  const TimePoint deadline = has_hub() ? now() + options_.patience : kNever;
  (void)queue_->wait(
      [&] {
        here = ready();
        return here || lost_ || failure_ || difference_;
      },
      deadline);
  explain();
  if (!here) {
    throw PeerError(fmt::format(
        "not all sites have told within net.patience what they hold after step {}", t.value()));
  }
}

bool SiteBoard::outer_agrees(StepIndex t, const Digest128& digest) {
  flush();
  tell_outer(t, digest);
  bool agree = false;
  await_outer(t, [&] {
    const bool all = all_settle(t.value(), digests_.at(t.value()));
    agree = all && alike(t.value());
    return all;
  });
  if (agree) queue_->update([&] { replays_.clear(); });
  return agree;
}

std::vector<OuterWord> SiteBoard::words_of_outer(StepIndex t) const {
  std::vector<OuterWord> words;
  const std::map<int, OuterReplay>& replays = replays_.at(t.value());
  for (const auto& [site, digest] : digests_.at(t.value())) {
    if (!settles(site, t.value())) continue;
    words.push_back({.site = name(Rank(site)),
                     .about = about_.at(site),
                     .digest = digest,
                     .replay = replays.at(site)});
  }
  return words;
}

// Whose digest was another may go meanwhile, and the others then need no replay to go on: perhaps
// they have never seen it.
void SiteBoard::settle_outer(StepIndex t, const OuterReplay& replay) {
  const std::int64_t step = t.value();
  const OuterNote note{.step = t,
                       .digest = replay.digest,
                       .about = options_.about,
                       .replayed = true,
                       .why = replay.why};
  take_outer(options_.self, note);
  tell_others(note);
  Expected<OuterVerdict, std::string> verdict = OuterVerdict{};
  std::vector<OuterWord> words;
  await_outer(t, [&] {
    if (alike(step)) return true;
    for (const auto& [site, digest] : digests_.at(step)) {
      if (settles(site, step) && !replays_.at(step).contains(site)) return false;
    }
    words = words_of_outer(t);
    verdict = judge_outer(t, words);
    return true;
  });
  queue_->update([&] {
    replays_.clear();
    if (!verdict) difference_ = verdict.error();
  });
  check();
  for (const std::size_t place : verdict->wrong) {
    const OuterWord& word = words[place];
    const auto who = std::ranges::find(options_.sites, word.site) - options_.sites.begin();
    const std::string what = fmt::format(
        "after step {} it did not hold what the committed results make of the last state that all "
        "had alike ({}, not {}): its memory, processor or disk has changed it; it goes on from its "
        "own replay of them, without the work of its open windows. If that comes again, {} is in "
        "doubt",
        step, word.digest, verdict->right, word.about);
    log_warning("site {} is healed: {}", word.site, what);
    whole_.healed(Rank(static_cast<int>(who)), t, what);
    queue_->update([&] { digests_.at(step)[static_cast<int>(who)] = verdict->right; });
  }
}

// Notes of one site keep their order, so nobody tells of a step before one that all have told of.
// That one stays: who joins where all stand tells of it after them.
void SiteBoard::forget_compared() {
  auto last = digests_.end();
  for (auto each = digests_.begin(); each != digests_.end(); ++each) {
    if (all_told(each->first, each->second)) last = each;
  }
  if (last != digests_.end()) digests_.erase(digests_.begin(), last);
}

bool SiteBoard::all_told(std::int64_t t, const std::map<int, std::string>& known) const {
  for (std::size_t site = 0; site < live_.size(); ++site) {
    if (live_[site] && after_[site] <= t && !known.contains(static_cast<int>(site))) {
      return false;
    }
  }
  return true;
}

}  // namespace isthmus::app
