// SPDX-License-Identifier: Apache-2.0
#include "session/hub/hub_steps.h"

#include <algorithm>
#include <utility>

#include "core/base/log.h"
#include "session/site/site_routes.h"
#include "session/site/site_start.h"

namespace isthmus::app {

HubSteps::HubSteps(HubState& all) : all_(all) {
  begin_anew();
  agreement_->resume(all_.log.agreed());
  NotesOut none;
  for (std::size_t m = 0; m < all_.live.size(); ++m) {
    if (!all_.live[m]) agreement_->leave(WorkerId(static_cast<int>(m)), none);
  }
}

void HubSteps::begin_anew() {
  const WorkerId self(all_.config().workers());
  agreement_.emplace(self, all_.config().workers(), total_steps(all_.config()), 0,
                     all_.config().min_sites(), self);
  agreement_->set_relays(needed_relays(all_.config()), hidden_sites(all_.config().sites));
  agreement_->set_window(join_window(all_.config()) + 1);
  joiners_.clear();
}

void HubSteps::wish(WorkerId from, const WishNote& note) {
  if (note.purpose != Purpose::kJoin) {
    drive([&](NotesOut& out) { agreement_->receive(from, note, out); });
    return;
  }
  const bool known = note.joiner >= 0 && note.joiner < all_.config().workers() &&
                     std::ranges::none_of(joiners_, [&](const WishNote& each) {
                       return each.joiner == note.joiner;
                     });
  if (!known) {
    return;
  }
  joiners_.push_back(note);
  if (joiners_.size() == 1) ask_for_joiner();
}

void HubSteps::ask_for_joiner() {
  if (!joiners_.empty()) {
    drive([&](NotesOut& out) { agreement_->wish(Purpose::kJoin, out); });
  }
}

// An agreement is written to the log before any site is told.
void HubSteps::drive(const std::function<void(NotesOut&)>& step) {
  NotesOut out;
  step(out);
  const std::optional<StepIndex> join = agreement_->take_join();
  if (join) admit(*join);
  if (const auto leave = agreement_->take_leave();
      leave && !all_.exchange->release(leave->first, leave->second.value())) {
    agreement_->stays(leave->first, "somebody else has gone meanwhile", out);
  }
  for (const auto& [to, note] : out) {
    // A site that has not found this process yet is asked once it has.
    if (std::holds_alternative<AskNote>(note) && !all_.site(to).standing) continue;
    const auto* agreed = std::get_if<AgreedNote>(&note);
    const bool fresh = agreed != nullptr && agreed->number > 0 &&
                       std::ranges::none_of(all_.log.agreed(), [&](const AgreedNote& each) {
                         return each.number == agreed->number;
                       });
    if (fresh) all_.log.append(*agreed);
    all_.send(to, note);
  }
  if (join) ask_for_joiner();
}

/// Admits the first site in line, unless a site has come that the first one has not found: the
/// donor then tells it so.
void HubSteps::admit(StepIndex after) {
  if (joiners_.empty()) {
    return;
  }
  const WishNote wish = joiners_.front();
  joiners_.pop_front();
  const WorkerId joiner(wish.joiner);
  const std::vector<int> live = all_.live_sites(joiner);
  const bool knows_all = std::ranges::all_of(
      live, [&](int m) { return std::ranges::find(wish.linked, m) != wish.linked.end(); });
  const bool in_time = after.value() < total_steps(all_.config());
  if (!knows_all || !in_time || !all_.exchange->admit(joiner, after.value())) {
    log_warning("site {} could not join after step {}", all_.name(joiner), after.value());
    return;
  }
  all_.site(joiner) = {.hello = {}, .standing = true, .lost = {}};
}

void HubSteps::receive(WorkerId from, const Note& note) {
  drive([&](NotesOut& out) { agreement_->receive(from, note, out); });
}

void HubSteps::welcome_back(WorkerId site) {
  for (const AgreedNote& agreed : all_.log.agreed()) all_.send(site, agreed);
  all_.send(site, ServeNote{});  // what the site promised to an earlier process is void
  drive([&](NotesOut& out) { agreement_->ask_again(site, out); });
}

void HubSteps::lost(WorkerId site) {
  std::erase_if(joiners_, [&](const WishNote& wish) { return wish.joiner == site.value(); });
}

void HubSteps::changed(const Epoch& epoch) {
  drive([&](NotesOut& out) {
    if (epoch.joins) {
      agreement_->join(epoch.who, StepIndex(epoch.after), out);
    } else {
      agreement_->leave(epoch.who, out);
    }
  });
}

}  // namespace isthmus::app
