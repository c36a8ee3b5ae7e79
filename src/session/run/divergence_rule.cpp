// SPDX-License-Identifier: Apache-2.0
#include "session/run/divergence_rule.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "core/base/check.h"

namespace isthmus::app {
namespace {

std::string named(const OuterWord& word) { return fmt::format("{} ({})", word.site, word.about); }

}  // namespace

Expected<DivergenceVerdict, std::string> judge_outer(StepIndex t,
                                                     const std::vector<OuterWord>& words) {
  const auto undecided = [&](const std::string& why) {
    const OuterWord& first = words.front();
    const auto other = std::ranges::find_if(
        words, [&](const OuterWord& word) { return word.digest != first.digest; });
    ISTHMUS_CHECK(other != words.end(), t.value());
    return Unexpected<std::string>(fmt::format(
        "after step {} the outer parameters of sites {} and {} differ ({} and {}), {}: {}",
        t.value(), named(first), named(*other), first.digest, other->digest, why, kOuterRemedy));
  };
  const OuterWord* replayed = nullptr;
  for (const OuterWord& word : words) {
    if (!word.replay || word.replay->digest.empty()) continue;
    if (replayed == nullptr) replayed = &word;
    if (word.replay->digest != replayed->replay->digest) {
      return undecided(fmt::format(
          "and so do the replays of the same committed results at {} ({}) and {} ({}), so that "
          "nobody can say which is right",
          named(*replayed), replayed->replay->digest, named(word), word.replay->digest));
    }
  }
  if (replayed == nullptr) {
    const auto told =
        std::ranges::find_if(words, [](const OuterWord& word) { return word.replay.has_value(); });
    ISTHMUS_CHECK(told != words.end(), t.value());
    return undecided(fmt::format("and no site can replay what was committed ({}: {})", told->site,
                                 told->replay->why));
  }
  DivergenceVerdict verdict{.right = replayed->replay->digest, .wrong = {}};
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (words[i].digest == verdict.right || !words[i].replay) continue;
    // The replay of the other site may be wrong as well, if no third site's replay is there to
    // compare it with.
    if (words[i].replay->digest.empty()) {
      return undecided(fmt::format(
          "and {}, whose state is not what others' replays come to, has none to be healed by ({})",
          words[i].site, words[i].replay->why));
    }
    if (!words[i].gone) verdict.wrong.push_back(i);
  }
  return verdict;
}

}  // namespace isthmus::app
