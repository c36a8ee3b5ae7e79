// SPDX-License-Identifier: Apache-2.0
#include "session/site/site_members.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "core/base/log.h"
#include "isthmus/errors.h"

namespace isthmus::app {

SiteMembers::SiteMembers(SiteStepState& all)
    : all_(all),
      early_(all.options.sites.size()),
      until_(all.options.sites.size()),
      told_(all.options.sites.size(), all.options.resumed_after),
      evaluated_(all.options.sites.size(), all.options.resumed_after) {}

// Notes of other sites about their steps count from the step at which those sites, and this one,
// take part.
void SiteMembers::receive(WorkerId from, const Note& note) {
  const auto place = static_cast<std::size_t>(from.value());
  const bool of_steps =
      std::holds_alternative<PostsNote>(note) || std::holds_alternative<EvalNote>(note) ||
      std::holds_alternative<OuterNote>(note) || std::holds_alternative<GoneNote>(note) ||
      std::holds_alternative<DifferNote>(note);
  if (!of_steps) {
    all_.drive([&](NotesOut& out) { all_.agreement.receive(from, note, out); });
  } else if ((all_.live[place] || until_[place]) &&
             all_.live[static_cast<std::size_t>(all_.options.self.value())]) {
    take(from,
         note);  // the last note of a site that has left may arrive after the news of its leaving
  } else {
    early_[place].push_back(note);
  }
}

void SiteMembers::take(WorkerId from, const Note& note) {
  if (const auto* posts = std::get_if<PostsNote>(&note)) {
    take_posts(from, *posts);
  } else if (const auto* eval = std::get_if<EvalNote>(&note)) {
    take_eval(from, *eval);
  } else {
    Expected<void, std::string> taken;
    all_.queue->update([&] { taken = all_.outer.receive(from, note); });
    if (!taken) throw PeerError(fmt::format("site {} told {}", all_.name(from), taken.error()));
  }
}

void SiteMembers::take_posts(WorkerId from, const PostsNote& note) {
  const auto place = static_cast<std::size_t>(from.value());
  for (const StepPost& post : note.posts) {
    const StepIndex t = post.report.step;
    if (t.value() <= all_.after[place]) {
      continue;
    }
    if (t.value() != ++told_[place] || t.value() > all_.options.total_steps) {
      throw PeerError(
          fmt::format("site {} told of step {} out of turn", all_.name(from), t.value()));
    }
    all_.whole.post_step(from, t, post);
  }
}

void SiteMembers::take_eval(WorkerId from, const EvalNote& note) {
  const auto place = static_cast<std::size_t>(from.value());
  const std::int64_t t = note.step.value();
  if (t <= all_.after[place]) {
    return;
  }
  if (t != told_[place] || t <= evaluated_[place]) {
    throw PeerError(
        fmt::format("site {} told of an evaluation after step {} out of turn", all_.name(from), t));
  }
  evaluated_[place] = t;
  all_.whole.post_eval(from, note.step, {.parts = note.parts, .now = note.now});
}

void SiteMembers::lost(WorkerId site, const std::string& why) {
  if (all_.has_hub() && site == all_.options.coordinator) {
    log_warning("the hub is gone ({}): rounds wait until it is back, for net.patience at most",
                why);
    return;
  }
  if (all_.options.elastic && site != all_.options.coordinator) {
    const auto place = static_cast<std::size_t>(site.value());
    early_[place].clear();  // a new process begins anew
    const std::optional<std::int64_t> until = std::exchange(until_[place], std::nullopt);
    if (until && told_[place] < *until) all_.whole.leave(site, why);
    return;
  }
  all_.lose(fmt::format("site {} is gone ({})", all_.name(site), why));
}

void SiteMembers::epoch(const Epoch& epoch) {
  const bool here = all_.live[static_cast<std::size_t>(all_.options.self.value())];
  if (epoch.leaves && here) {
    take_leave(epoch);
  } else if (!epoch.joins && epoch.after >= 0 && here) {
    part_with(epoch);
  } else if (epoch.joins && (here || epoch.who == all_.options.self)) {
    join(epoch);
  } else if (!epoch.joins && here) {
    leave(epoch);
  }  // otherwise the membership in which this site joins tells which sites are present
}

void SiteMembers::leave(const Epoch& epoch) {
  if (epoch.who == all_.options.self) {
    all_.lose(fmt::format("the others go on without this site ({})", epoch.why));
    return;
  }
  const auto left = std::ranges::count(epoch.live, true);
  log_warning("site {} is gone ({}): {} with {} of {} sites", all_.name(epoch.who), epoch.why,
              left < all_.options.min_sites ? "what is under way ends" : "going on", left,
              epoch.live.size());
  all_.drive([&](NotesOut& out) {
    all_.admitting = false;
    all_.live[static_cast<std::size_t>(epoch.who.value())] = false;
    all_.agreement.leave(epoch.who, out);
    all_.outer.leave(epoch, out);
  });
  until_[static_cast<std::size_t>(epoch.who.value())].reset();
  all_.whole.leave(epoch.who, epoch.why);
}

void SiteMembers::take_leave(const Epoch& epoch) {
  const StepIndex after(epoch.after);
  if (epoch.who == all_.options.self) {
    log_info("this site leaves the run after step {}; the others go on", after.value());
    all_.whole.end_after(after);
  } else {
    log_info("site {} leaves the run after step {}", all_.name(epoch.who), after.value());
    until_[static_cast<std::size_t>(epoch.who.value())] = after.value();
    all_.whole.leave_after(epoch.who, after, "asked to");
  }
  all_.queue->update([&] {
    all_.admitting = false;
    if (epoch.who == all_.options.self) all_.leaves_after = after.value();
  });
}

void SiteMembers::part_with(const Epoch& epoch) {
  if (epoch.who == all_.options.self) {
    return;  // the site has finished its work
  }
  log_info("site {} has left after step {}: going on with {} of {} sites", all_.name(epoch.who),
           epoch.after, std::ranges::count(epoch.live, true), epoch.live.size());
  all_.drive([&](NotesOut& out) {
    all_.live[static_cast<std::size_t>(epoch.who.value())] = false;
    all_.agreement.leave(epoch.who, out);
    all_.outer.leave(epoch, out);
  });
}

void SiteMembers::join(const Epoch& epoch) {
  const StepIndex after(epoch.after);
  const bool self = epoch.who == all_.options.self;
  std::vector<WorkerId> fresh;
  for (int site = 0; site < static_cast<int>(epoch.live.size()); ++site) {
    if (self ? epoch.live[static_cast<std::size_t>(site)] : WorkerId(site) == epoch.who) {
      fresh.emplace_back(site);
    }
  }
  if (self) {
    all_.drive([&](NotesOut& out) {
      for (std::size_t site = 0; site < epoch.live.size(); ++site) {
        if (!epoch.live[site]) all_.agreement.leave(WorkerId(static_cast<int>(site)), out);
      }
    });
    all_.whole.start(all_.options.self, epoch.live, after);
  } else {
    all_.whole.join(epoch.who, after);
  }
  log_info("site {} {}: {} of {} sites from step {}", all_.name(epoch.who),
           self ? "has joined" : "is back", std::ranges::count(epoch.live, true), epoch.live.size(),
           epoch.after + 1);
  for (const WorkerId site : fresh) {
    admit(site, after);
  }
  for (const WorkerId site : fresh) {
    for (const Note& note : std::exchange(early_[static_cast<std::size_t>(site.value())], {})) {
      take(site, note);
    }
  }
}

void SiteMembers::admit(WorkerId site, StepIndex after) {
  const auto place = static_cast<std::size_t>(site.value());
  told_[place] = after.value();
  evaluated_[place] = after.value();
  until_[place].reset();
  all_.drive([&](NotesOut& out) {
    all_.admitting = false;
    all_.live[place] = true;
    all_.after[place] = after.value();
    all_.agreement.join(site, after, out);
    all_.outer.join(site, after);
  });
}

}  // namespace isthmus::app
