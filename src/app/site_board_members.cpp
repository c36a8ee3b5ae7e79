// SPDX-License-Identifier: Apache-2.0
// What a site's board hears from the links: the others' notes, and who goes and comes.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "app/signals.h"
#include "app/site_board.h"
#include "core/log.h"
#include "core/units.h"
#include "isthmus/errors.h"

namespace isthmus::app {
namespace {

constexpr Duration kLook = std::chrono::milliseconds(100);

}  // namespace

// What others say of their steps counts from when they, and this site, take part.
void SiteBoard::receive(Rank from, const Note& note) {
  const auto place = static_cast<std::size_t>(from.value());
  const bool of_steps =
      std::holds_alternative<PostsNote>(note) || std::holds_alternative<EvalNote>(note) ||
      std::holds_alternative<OuterNote>(note) || std::holds_alternative<GoneNote>(note) ||
      std::holds_alternative<DifferNote>(note);
  if (!of_steps) {
    drive([&](NotesOut& out) { agreement_.receive(from, note, out); });
  } else if ((live_[place] || until_[place]) &&
             live_[static_cast<std::size_t>(options_.self.value())]) {
    take(from, note);  // the last word of one that has left may come after the news of that
  } else {
    early_[place].push_back(note);
  }
}

void SiteBoard::take(Rank from, const Note& note) {
  if (const auto* posts = std::get_if<PostsNote>(&note)) {
    take_posts(from, *posts);
  } else if (const auto* eval = std::get_if<EvalNote>(&note)) {
    take_eval(from, *eval);
  } else {
    Expected<void, std::string> taken;
    queue_->update([&] { taken = outer_.receive(from, note); });
    if (!taken) throw PeerError(fmt::format("site {} told {}", name(from), taken.error()));
  }
}

void SiteBoard::take_posts(Rank from, const PostsNote& note) {
  const auto place = static_cast<std::size_t>(from.value());
  for (const StepPost& post : note.posts) {
    const StepIndex t = post.report.step;
    if (t.value() <= after_[place]) {
      continue;
    }
    if (t.value() != ++told_[place] || t.value() > options_.total_steps) {
      throw PeerError(fmt::format("site {} told of step {} out of turn", name(from), t.value()));
    }
    whole_.post_step(from, t, post);
  }
}

void SiteBoard::take_eval(Rank from, const EvalNote& note) {
  const auto place = static_cast<std::size_t>(from.value());
  const std::int64_t t = note.step.value();
  if (t <= after_[place]) {
    return;
  }
  if (t != told_[place] || t <= evaluated_[place]) {
    throw PeerError(
        fmt::format("site {} told of an evaluation after step {} out of turn", name(from), t));
  }
  evaluated_[place] = t;
  whole_.post_eval(from, note.step, {.parts = note.parts, .now = note.now});
}

void SiteBoard::lost(Rank site, const std::string& why) {
  if (has_hub() && site == options_.coordinator) {
    log_warning("the hub is gone ({}): rounds wait until it is back, for net.patience at most",
                why);
    return;
  }
  if (options_.elastic && site != options_.coordinator) {
    const auto place = static_cast<std::size_t>(site.value());
    early_[place].clear();  // a new process begins anew
    const std::optional<std::int64_t> until = std::exchange(until_[place], std::nullopt);
    if (until && told_[place] < *until) whole_.leave(site, why);
    return;
  }
  queue_->update([&] {
    if (!lost_) {
      lost_ = fmt::format("site {} is gone ({})", name(site), why);
    }
  });
  whole_.abandon();
}

void SiteBoard::epoch(const Epoch& epoch) {
  const bool here = live_[static_cast<std::size_t>(options_.self.value())];
  if (epoch.leaves && here) {
    take_leave(epoch);
  } else if (!epoch.joins && epoch.after >= 0 && here) {
    part_with(epoch);
  } else if (epoch.joins && (here || epoch.who == options_.self)) {
    join(epoch);
  } else if (!epoch.joins && here) {
    leave(epoch);
  }  // else the epoch in which this site joins tells who is there
}

void SiteBoard::leave(const Epoch& epoch) {
  if (epoch.who == options_.self) {
    queue_->update([&] {
      if (!lost_) lost_ = fmt::format("the others go on without this site ({})", epoch.why);
    });
    whole_.abandon();
    return;
  }
  const auto left = std::ranges::count(epoch.live, true);
  log_warning("site {} is gone ({}): {} with {} of {} sites", name(epoch.who), epoch.why,
              left < options_.min_sites ? "what is under way ends" : "going on", left,
              epoch.live.size());
  drive([&](NotesOut& out) {
    admitting_ = false;
    live_[static_cast<std::size_t>(epoch.who.value())] = false;
    agreement_.leave(epoch.who, out);
    outer_.leave(epoch, out);
  });
  until_[static_cast<std::size_t>(epoch.who.value())].reset();
  whole_.leave(epoch.who, epoch.why);
}

std::string SiteBoard::too_few() const {
  std::vector<std::string> missing;
  for (std::size_t site = 0; site < stands_with_->size(); ++site) {
    if (!(*stands_with_)[site]) missing.push_back(options_.sites[site]);
  }
  return fmt::format("{} of {} sites are fewer than net.min_sites = {} ({} {} gone)",
                     stands_with_->size() - missing.size(), stands_with_->size(),
                     options_.min_sites, fmt::join(missing, ", "),
                     missing.size() == 1 ? "is" : "are");
}

// Signals and whoever comes back want the worker now and then. The time counts from when this site
// has come to stand, since what is under way may take long to end, and anew whenever somebody
// comes; a site that gives up before others lengthens it for nobody.
void SiteBoard::stand_still(StepIndex t) {
  std::vector<bool> live;
  queue_->update([&] { live = live_; });
  const TimePoint at = now();
  const bool came =
      !stands_with_ || std::ranges::count(live, true) > std::ranges::count(*stands_with_, true);
  if (came || (options_.takes_in && options_.takes_in())) stands_since_ = at;
  if (stands_with_ != live) {
    stands_with_ = live;
    if (options_.on_wait) options_.on_wait(too_few());
    log_warning("{}: waiting after step {}, for net.gather = {} at most", too_few(), t.value() - 1,
                human_time(std::chrono::duration<double>(options_.gather).count()));
  }
  if (at - stands_since_ >= options_.gather) {
    // No PeerError: to try to come back would help nobody.
    throw Error(ExitCode::kPeer,
                fmt::format("{}, and have been so for net.gather: start again with --resume auto",
                            too_few()));
  }
  // Whom a signal is told may be gone as well; all up to here is on the disk.
  if (const StopWish wish = SignalScope::wish(); wish != StopWish::kNone) {
    if (!stop_asked_) stop_asked_ = at;
    if (at - *stop_asked_ >= options_.patience) {
      throw Error(exit_code_of(wish),
                  fmt::format("stopped after step {}, where the run stood, by a signal that the "
                              "hub has not answered within net.patience",
                              t.value() - 1));
    }
  }
  (void)queue_->wait([&] { return !agreement_.waits(t) || lost_ || failure_; }, now() + kLook);
}

void SiteBoard::go_on() {
  int here = 0;
  queue_->update([&] { here = static_cast<int>(std::ranges::count(live_, true)); });
  log_info("{}", here < options_.min_sites ? "going on for a while, to take in who has come back"
                                           : "enough sites are there again: going on");
  if (options_.on_wait) options_.on_wait("");
  stands_with_.reset();
  window_begin_ = now();
  window_steps_ = 0;
}

void SiteBoard::take_leave(const Epoch& epoch) {
  const StepIndex after(epoch.after);
  if (epoch.who == options_.self) {
    log_info("this site leaves the run after step {}; the others go on", after.value());
    whole_.end_after(after);
  } else {
    log_info("site {} leaves the run after step {}", name(epoch.who), after.value());
    until_[static_cast<std::size_t>(epoch.who.value())] = after.value();
    whole_.leave_after(epoch.who, after, "asked to");
  }
  queue_->update([&] {
    admitting_ = false;
    if (epoch.who == options_.self) leaves_after_ = after.value();
  });
}

void SiteBoard::part_with(const Epoch& epoch) {
  if (epoch.who == options_.self) {
    return;  // it has ended what it was to do
  }
  log_info("site {} has left after step {}: going on with {} of {} sites", name(epoch.who),
           epoch.after, std::ranges::count(epoch.live, true), epoch.live.size());
  drive([&](NotesOut& out) {
    live_[static_cast<std::size_t>(epoch.who.value())] = false;
    agreement_.leave(epoch.who, out);
    outer_.leave(epoch, out);
  });
}

void SiteBoard::join(const Epoch& epoch) {
  const StepIndex after(epoch.after);
  const bool self = epoch.who == options_.self;
  std::vector<Rank> fresh;
  for (int site = 0; site < static_cast<int>(epoch.live.size()); ++site) {
    if (self ? epoch.live[static_cast<std::size_t>(site)] : Rank(site) == epoch.who) {
      fresh.emplace_back(site);
    }
  }
  if (self) {
    drive([&](NotesOut& out) {
      for (std::size_t site = 0; site < epoch.live.size(); ++site) {
        if (!epoch.live[site]) agreement_.leave(Rank(static_cast<int>(site)), out);
      }
    });
    whole_.start(options_.self, epoch.live, after);
  } else {
    whole_.join(epoch.who, after);
  }
  log_info("site {} {}: {} of {} sites from step {}", name(epoch.who),
           self ? "has joined" : "is back", std::ranges::count(epoch.live, true), epoch.live.size(),
           epoch.after + 1);
  for (const Rank site : fresh) {
    admit(site, after);
  }
  for (const Rank site : fresh) {
    for (const Note& note : std::exchange(early_[static_cast<std::size_t>(site.value())], {})) {
      take(site, note);
    }
  }
}

void SiteBoard::admit(Rank site, StepIndex after) {
  const auto place = static_cast<std::size_t>(site.value());
  told_[place] = after.value();
  evaluated_[place] = after.value();
  until_[place].reset();
  drive([&](NotesOut& out) {
    admitting_ = false;
    live_[place] = true;
    after_[place] = after.value();
    agreement_.join(site, after, out);
    outer_.join(site, after);
  });
}

}  // namespace isthmus::app
