// SPDX-License-Identifier: Apache-2.0
#include "session/site/site_step_state.h"

#include "core/base/log.h"
#include "isthmus/errors.h"

namespace isthmus::app {

SiteStepState::SiteStepState(SiteStepCoordinatorOptions given, Runtime& the_runtime, RunLog& log)
    : options(std::move(given)),
      wishes(*options.wishes),
      runtime(the_runtime),
      whole(static_cast<int>(options.sites.size()), options.total_steps, log, wishes),
      queue(runtime.make_wait_queue()),
      agreement(options.self, static_cast<int>(options.sites.size()), options.total_steps,
                options.resumed_after, options.min_sites, options.coordinator),
      outer({.self = options.self,
             .sites = options.sites,
             .about = options.about,
             .resumed_after = options.resumed_after,
             .joining = options.joining}),
      live(options.sites.size(), !options.joining),
      after(options.sites.size(), -1) {
  whole.attach(runtime);
  agreement.set_window(options.window);
  if (options.joining) whole.stand_by();
}

void SiteStepState::drive(const std::function<void(NotesOut&)>& step) {
  NotesOut out;
  std::optional<StepIndex> join;
  std::optional<std::pair<WorkerId, StepIndex>> leave;
  std::optional<std::string> refusal;
  queue->update([&] {
    step(out);
    join = agreement.take_join();
    leave = agreement.take_leave();
    refusal = agreement.take_refusal();
    admitting = admitting || join || leave;
  });
  if (refusal) {
    wishes.refuse_leave();
    log_warning("this site cannot leave: {}; it goes on", *refusal);
  }
  const bool joins = join && options.on_join && options.on_join(*join);
  const bool leaves = leave && options.on_leave && options.on_leave(leave->first, leave->second);
  for (const auto& [to, note] : out) {
    options.send(to, note);
  }
  if ((join && !joins) || (leave && !leaves)) {
    queue->update([&] { admitting = false; });
  }
  if (leave && !leaves) {
    drive([&](NotesOut& more) {
      agreement.stays(leave->first, "somebody else has gone meanwhile", more);
    });
  }
}

void SiteStepState::tell_others(const Note& note) const {
  std::vector<bool> here;
  queue->update([&] { here = live; });
  for (int to = 0; to < static_cast<int>(here.size()); ++to) {
    if (WorkerId(to) != options.self && here[static_cast<std::size_t>(to)]) {
      options.send(WorkerId(to), note);
    }
  }
}

bool SiteStepState::takes_part(StepIndex t) const {
  const auto self = static_cast<std::size_t>(options.self.value());
  bool yes = false;
  queue->update([&] { yes = live[self] && after[self] < t.value(); });
  return yes;
}

std::optional<std::pair<std::int64_t, Purpose>> SiteStepState::end() const {
  std::optional<std::pair<std::int64_t, Purpose>> end;
  queue->update([&] {
    end = agreement.stop();
    if (leaves_after && (!end || *leaves_after < end->first)) {
      end = {*leaves_after, Purpose::kLeave};
    }
  });
  return end;
}

void SiteStepState::check() const {
  std::optional<std::string> difference;
  std::exception_ptr thrown;
  queue->update([&] {
    difference = outer.difference();
    thrown = failure;
  });
  if (difference) {
    throw Error(ExitCode::kPeer, *difference);  // not a PeerError: no site comes back from it
  }
  if (thrown) {
    std::rethrow_exception(thrown);
  }
}

void SiteStepState::explain() const {
  check();
  std::optional<std::string> why;
  queue->update([&] { why = lost; });
  if (why) {
    throw PeerError(*why);
  }
}

void SiteStepState::lose(const std::string& why) {
  queue->update([&] {
    if (!lost) lost = why;
  });
  whole.abandon();
}

}  // namespace isthmus::app
