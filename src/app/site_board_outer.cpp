// SPDX-License-Identifier: Apache-2.0
// What a site's board does about the digests of outer states: they are compared where sites start
// and join, and where all lay down a checkpoint. There all wait for one another's, which come with
// the lines up to that step, so that what is not alike is settled before anybody writes it down.
#include <fmt/format.h>

#include <algorithm>

#include "app/site_board.h"
#include "core/log.h"
#include "isthmus/errors.h"

namespace isthmus::app {

void SiteBoard::tell_outer(StepIndex t, const Digest128& digest) {
  drive([&](NotesOut& out) { outer_.tell(t, digest.hex(), out); });
}

void SiteBoard::await_outer(StepIndex t, const std::function<bool()>& ready) {
  bool here = false;
  const TimePoint deadline = has_hub() ? now() + options_.patience : kNever;
  (void)queue_->wait(
      [&] {
        here = ready();
        return here || lost_ || failure_ || outer_.difference();
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
  std::optional<bool> alike;
  await_outer(t, [&] {
    alike = outer_.alike(t);
    return alike.has_value();
  });
  return *alike;
}

void SiteBoard::settle_outer(StepIndex t, const OuterReplay& replay) {
  drive([&](NotesOut& out) { outer_.tell_replay(t, replay, out); });
  std::optional<std::vector<OuterWord>> words;
  await_outer(t, [&] {
    words = outer_.words(t);
    return words.has_value();
  });
  const Expected<OuterVerdict, std::string> verdict = judge_outer(t, *words);
  drive([&](NotesOut& out) {
    if (verdict) {
      outer_.healed(t, verdict->right);
    } else {
      outer_.give_up(verdict.error(), out);
    }
  });
  check();
  for (const std::size_t place : verdict->wrong) {
    const OuterWord& word = (*words)[place];
    const auto who = std::ranges::find(options_.sites, word.site) - options_.sites.begin();
    const std::string what = fmt::format(
        "after step {} it did not hold what the committed results make of the last state that all "
        "had alike ({}, not {}): its memory, processor or disk has changed it; it goes on from its "
        "own replay of them, without the work of its open windows. If that comes again, {} is in "
        "doubt",
        t.value(), word.digest, verdict->right, word.about);
    log_warning("site {} is healed: {}", word.site, what);
    whole_.healed(Rank(static_cast<int>(who)), t, what);
  }
}

}  // namespace isthmus::app
