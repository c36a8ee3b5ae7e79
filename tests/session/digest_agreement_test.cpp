// SPDX-License-Identifier: Apache-2.0
// Sites that settle what they hold while some of them die, with notes and the news of losses in the
// order that a seed gives: whoever is left decides as all others do, and nobody goes on with what
// is not its own replay.
#include "session/site/digest_agreement.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "core/base/rng.h"
#include "session/run/divergence_rule.h"

namespace isthmus::app::this_file {
namespace {

using testing::IsEmpty;
using testing::SizeIs;

const std::vector<std::string> kNames = {"east", "west", "north", "south"};
constexpr std::int64_t kSteps[] = {5, 10, 15};

/// What a site holds after a step, and what its replay comes to; empty: it has none.
struct Held {
  std::string digest;
  std::string replay;
};

/// Sites as tasks of one event loop. Notes of one pair keep their order, and so do the news of
/// losses at one site; no other order is kept. `last_words`: the news of a site over which the run
/// has ended come behind what it has sent.
class Sites {
 public:
  Sites(int members, int deaths, bool last_words, std::uint64_t seed)
      : rng_(seed, Stream::kTestData), last_words_(last_words) {
    for (int m = 0; m < members; ++m) {
      sites_.push_back(std::make_unique<Site>(
          DigestAgreement({.self = WorkerId(m),
                           .sites = {kNames.begin(), kNames.begin() + members},
                           .about = "here"})));
      for (const std::int64_t t : kSteps) sites_.back()->holds[t] = draw_held(t);
    }
    live_.assign(sites_.size(), true);
    news_.resize(sites_.size());
    std::set<int> victims;
    while (static_cast<int>(victims.size()) < deaths) {
      victims.insert(static_cast<int>(draw(sites_.size())));
    }
    for (const int victim : victims) dies_[1 + draw(60)] = victim;
  }

  /// Until nothing can happen any more.
  void play() {
    while (advance()) {
      if (const auto dies = dies_.find(++happened_); dies != dies_.end()) kill(dies->second);
    }
  }

  /// Of step t, of all who have decided: what they went on with, or that the run has ended.
  [[nodiscard]] std::set<std::string> gone_on_with(std::int64_t t) const {
    std::set<std::string> digests;
    for (const auto& site : sites_) {
      const auto decided = site->decided.find(t);
      if (decided != site->decided.end() && decided->second != kEnds) {
        digests.insert(decided->second);
      }
    }
    return digests;
  }
  /// Of step t, of all whom nothing has killed: the same, and whether somebody has not decided.
  [[nodiscard]] std::set<std::string> decided_by_survivors(std::int64_t t) const {
    std::set<std::string> all;
    for (const auto& site : sites_) {
      if (site->killed) continue;
      const auto decided = site->decided.find(t);
      all.insert(decided == site->decided.end() ? "has not decided" : decided->second);
    }
    return all;
  }
  /// Sites that went on with something else than their replay, where somebody's differed.
  [[nodiscard]] std::vector<std::string> unmended() const { return unmended_; }
  [[nodiscard]] int settled() const { return settled_; }

  static constexpr const char* kEnds = "ends";

 private:
  struct Site {
    explicit Site(DigestAgreement own) : words(std::move(own)) {}
    DigestAgreement words;
    std::map<std::int64_t, Held> holds;
    std::size_t at = 0;  // place of the step
    enum { kTrains, kCompares, kSettles, kOver } phase = kTrains;
    std::map<std::int64_t, std::string> decided;
    bool killed = false;
    bool detected = false;
  };

  std::size_t draw(std::size_t below) { return rng_.below(below, drawn_++); }

  Held draw_held(std::int64_t t) {
    const std::string right = fmt::format("{}-right", t);
    const auto another = [&] { return fmt::format("{}-wrong-{}", t, draw(2)); };
    Held held{.digest = draw(6) == 0 ? another() : right, .replay = right};
    const std::size_t kind = draw(24);
    if (kind == 0) held.replay = another();
    if (kind == 1 || kind == 2) held.replay.clear();
    return held;
  }

  [[nodiscard]] Site& site(int m) { return *sites_[static_cast<std::size_t>(m)]; }
  /// One that has taken the last step waits for the others, and serves them.
  [[nodiscard]] bool runs(int m) { return !site(m).killed && !ended(site(m)); }

  /// What it has sent may come in part.
  void kill(int m) {
    if (site(m).phase == Site::kOver) return;
    site(m).killed = true;
    for (auto& [pair, notes] : links_) {
      if (pair.first == m) notes.resize(draw(notes.size() + 1));
    }
  }

  bool advance() {
    std::vector<std::pair<int, int>> choices;  // of a note; of news: from -1; of a loss: to -1
    for (auto& [pair, notes] : links_) {
      if (!notes.empty() && runs(pair.second)) choices.push_back(pair);
    }
    for (int m = 0; m < static_cast<int>(sites_.size()); ++m) {
      if (runs(m) && hears_news(m)) choices.emplace_back(-1, m);
      if (runs(m) && may_act(site(m))) choices.emplace_back(m, m);
      if ((site(m).killed || ended(site(m))) && !site(m).detected) choices.emplace_back(m, -1);
    }
    if (choices.empty()) return false;
    const auto [from, to] = choices[draw(choices.size())];
    if (to < 0) {
      detect(from);
    } else if (from < 0) {
      auto& news = news_[static_cast<std::size_t>(to)];
      NotesOut out;
      site(to).words.leave(news.front(), out);
      news.pop_front();
      post(to, out);
    } else if (from == to) {
      act(to);
    } else {
      const Note note = links_[{from, to}].front();
      links_[{from, to}].pop_front();
      EXPECT_TRUE(site(to).words.receive(WorkerId(from), note));
    }
    return true;
  }

  [[nodiscard]] static bool ended(const Site& one) {
    return !one.decided.empty() && one.decided.rbegin()->second == kEnds;
  }

  [[nodiscard]] bool hears_news(int m) {
    const std::deque<Epoch>& news = news_[static_cast<std::size_t>(m)];
    if (news.empty()) return false;
    const int who = news.front().who.value();
    return !last_words_ || site(who).killed || links_[{who, m}].empty();
  }

  /// Whoever coordinates finds out, and tells all who are there.
  void detect(int m) {
    site(m).detected = true;
    live_[static_cast<std::size_t>(m)] = false;
    const Epoch epoch{.number = ++epoch_, .live = live_, .who = WorkerId(m), .why = "silent"};
    for (int to = 0; to < static_cast<int>(sites_.size()); ++to) {
      if (live_[static_cast<std::size_t>(to)]) news_[static_cast<std::size_t>(to)].push_back(epoch);
    }
  }

  [[nodiscard]] static bool may_act(const Site& one) {
    if (one.phase == Site::kOver) return false;
    const StepIndex t(kSteps[one.at]);
    if (one.words.difference()) return true;
    if (one.phase == Site::kCompares) return one.words.alike(t).has_value();
    if (one.phase == Site::kSettles) return one.words.words(t).has_value();
    return one.phase == Site::kTrains;
  }

  void act(int m) {
    Site& one = site(m);
    const StepIndex t(kSteps[one.at]);
    const Held& held = one.holds.at(t.value());
    NotesOut out;
    if (one.words.difference()) {
      end_step(one, kEnds);
    } else if (one.phase == Site::kTrains) {
      one.words.tell(t, held.digest, out);
      one.phase = Site::kCompares;
    } else if (one.phase == Site::kCompares && *one.words.alike(t)) {
      end_step(one, held.digest);
    } else if (one.phase == Site::kCompares) {
      one.words.tell_replay(t, {.digest = held.replay, .why = "no room"}, out);
      one.phase = Site::kSettles;
    } else {
      judge(m, t, out);
    }
    post(m, out);
  }

  void judge(int m, StepIndex t, NotesOut& out) {
    Site& one = site(m);
    const Held& held = one.holds.at(t.value());
    const std::vector<OuterWord> words = *one.words.words(t);
    const auto verdict = judge_outer(t, words);
    if (!verdict) {
      one.words.give_up(verdict.error(), out);
      end_step(one, kEnds);
      return;
    }
    ++settled_;
    one.words.healed(t, verdict->right);
    bool healed = false;
    for (const std::size_t place : verdict->wrong) {
      healed = healed || words[place].site == kNames[static_cast<std::size_t>(m)];
    }
    // As OuterHealing leaves it: in the state of its replay, where that is another.
    const std::string now =
        held.replay.empty() || held.replay == held.digest ? held.digest : held.replay;
    if (now != verdict->right || healed != (now != held.digest)) {
      unmended_.push_back(fmt::format("{} after step {}", m, t.value()));
    }
    end_step(one, now);
  }

  void end_step(Site& one, const std::string& decided) {
    one.decided[kSteps[one.at]] = decided;
    const bool over = decided == kEnds || ++one.at == std::size(kSteps);
    one.phase = over ? Site::kOver : Site::kTrains;
  }

  void post(int from, NotesOut& out) {
    for (auto& [to, note] : out) links_[{from, to.value()}].push_back(std::move(note));
  }

  const Rng rng_;
  const bool last_words_;
  std::uint64_t drawn_ = 0;
  std::vector<std::unique_ptr<Site>> sites_;
  std::map<std::pair<int, int>, std::deque<Note>> links_;
  std::vector<std::deque<Epoch>> news_;
  std::vector<bool> live_;  // as whoever coordinates knows it
  std::uint32_t epoch_ = 0;
  std::map<std::size_t, int> dies_;  // by how much has happened
  std::size_t happened_ = 0;
  std::vector<std::string> unmended_;
  int settled_ = 0;
};

TEST(DigestAgreement, WhoeverIsLeftDecidesAsAllOthersDoWhateverTheMomentOfALoss) {
  int settled = 0, ended = 0, alike = 0;
  for (std::uint64_t seed = 0; seed < 20'000; ++seed) {
    const int members = 2 + static_cast<int>(seed % 3);
    const int deaths = static_cast<int>(seed / 3 % static_cast<std::uint64_t>(members));
    const bool last_words = seed / 12 % 2 == 0;
    Sites run(members, deaths, last_words, seed);
    run.play();
    const std::string what = fmt::format("seed {}: {} sites, {} die", seed, members, deaths);
    for (const std::int64_t t : kSteps) {
      EXPECT_LE(run.gone_on_with(t).size(), 1U) << what << ", step " << t;
      std::set<std::string> decided = run.decided_by_survivors(t);
      const bool ends = decided.contains(Sites::kEnds);
      // Whose last words have not come has gone like one that has died.
      if (!last_words && ends && decided.size() > 1) decided.erase(Sites::kEnds);
      EXPECT_THAT(decided, SizeIs(1)) << what << ", step " << t;
      EXPECT_FALSE(decided.contains("has not decided")) << what << ", step " << t;
      ended += ends ? 1 : 0;
      alike += ends ? 0 : 1;
      if (ends) break;
    }
    EXPECT_THAT(run.unmended(), IsEmpty()) << what;
    settled += run.settled();
    if (HasFailure()) break;
  }
  EXPECT_GT(settled, 5'000);
  EXPECT_GT(ended, 1'000);
  EXPECT_GT(alike, 20'000);
}

}  // namespace
}  // namespace isthmus::app::this_file
