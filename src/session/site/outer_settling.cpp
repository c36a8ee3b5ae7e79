// SPDX-License-Identifier: Apache-2.0
#include "session/site/outer_settling.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/base/log.h"
#include "core/base/units.h"
#include "isthmus/errors.h"

namespace isthmus::app {

void OuterSettling::tell(StepIndex t, const Digest128& digest, const std::string& tensors) {
  all_.drive([&](NotesOut& out) { all_.outer.tell(t, digest.hex(), out, tensors); });
}

void OuterSettling::await(StepIndex t, const std::function<bool()>& ready) {
  bool here = false;
  const TimePoint deadline = all_.has_hub() ? all_.now() + all_.options.patience : kNever;
  (void)all_.queue->wait(
      [&] {
        here = ready();
        return here || all_.lost || all_.failure || all_.outer.difference();
      },
      deadline);
  all_.explain();
  if (!here) {
    throw PeerError(fmt::format(
        "after step {} not all sites told the digest of their outer parameters within net.patience "
        "= {}: start the sites again with --resume auto, or raise net.patience if a link is slow",
        t.value(), human_time(in_seconds(all_.options.patience))));
  }
}

bool OuterSettling::agrees(StepIndex t) {
  std::optional<bool> alike;
  await(t, [&] {
    alike = all_.outer.alike(t);
    return alike.has_value();
  });
  return *alike;
}

void OuterSettling::settle(StepIndex t, const OuterReplay& replay) {
  all_.drive([&](NotesOut& out) { all_.outer.tell_replay(t, replay, out); });
  std::optional<std::vector<OuterWord>> words;
  await(t, [&] {
    words = all_.outer.words(t);
    return words.has_value();
  });
  const Expected<DivergenceVerdict, std::string> verdict = judge_outer(t, *words);
  all_.drive([&](NotesOut& out) {
    if (verdict) {
      all_.outer.healed(t, verdict->right);
    } else {
      all_.outer.give_up(verdict.error(), out);
    }
  });
  all_.check();
  const std::vector<std::string>& sites = all_.options.sites;
  for (const std::size_t place : verdict->wrong) {
    const OuterWord& word = (*words)[place];
    const auto who = std::ranges::find(sites, word.site) - sites.begin();
    const std::string what = fmt::format(
        "after step {} it did not hold what the committed results make of the last state that all "
        "had alike ({}, not {}): its memory, processor or disk has changed it; it goes on from its "
        "own replay of them, without the work of its open windows. If that comes again, {} is in "
        "doubt",
        t.value(), word.digest, verdict->right, word.about);
    log_warning("site {} is healed: {}", word.site, what);
    all_.whole.healed(WorkerId(static_cast<int>(who)), t, what);
  }
}

}  // namespace isthmus::app
