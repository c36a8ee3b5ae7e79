// SPDX-License-Identifier: Apache-2.0
#include "outer/streaming_diloco.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "core/check.h"

namespace isthmus::outer {
namespace {

std::size_t index(FragmentId id) { return static_cast<std::size_t>(id.value()); }

}  // namespace

StreamingDiLoCo::StreamingDiLoCo(FragmentedSettings settings, InnerLoop& inner, Exchange& exchange,
                                 const FragmentMaker& make)
    : settings_(std::move(settings)),
      inner_(inner),
      places_(inner.parameters().size()),
      rounds_(settings_, exchange, settings_.schedule.overlap()),
      guard_(settings_.fragments.size(), settings_.outlier) {
  for (const Fragment& fragment : settings_.fragments) {
    std::size_t begin = 0;
    for (const std::size_t i : fragment.parameters) {
      places_[i] = {index(fragment.id), begin, inner.parameters()[i].values.size()};
      begin += places_[i].size;
    }
    fragments_.push_back(make(fragment));
  }
}

StepReport StreamingDiLoCo::step() {
  const StepIndex t(steps_.value() + 1);
  for (const auto& fragment : fragments_) fragment->drop_anchor_copy();  // of an evaluation, say
  StepReport report{.step = t, .inner = inner_.train_step(t), .rounds = {}};
  rounds_.count(report.inner);
  trained_ = t;
  const std::vector<Sync> sends = settings_.schedule.due_to_send(t);
  for (const Sync& sync : sends) {
    if (const auto late = rounds_.settle_of(sync.fragment)) {
      report.rounds.push_back(apply(*late, t));
    }
  }
  for (const Sync& sync : sends) {
    send(sync);
  }
  apply_due(t, settings_.late, t, report.rounds);
  steps_ = t;
  return report;
}

void StreamingDiLoCo::send(const Sync& sync) {
  state(sync.fragment).keep_residual();
  OuterGradient delta =
      state(sync.fragment)
          .outer_gradient(*settings_.codec, rounds_.key(sync.fragment, sync.sent),
                          [&](double norm) { return guard_.accepts(sync.fragment, norm); });
  if (!std::isfinite(delta.norm)) {
    // The next step would spread it to every fragment.
    for (const auto& fragment : fragments_) {
      fragment->merge(0);
      if (rounds_.in_flight(fragment->fragment().id)) fragment->forget_kept_residual();
    }
    rounds_.give_up_windows();
    inner_.reset_optimizer();
  } else if (!delta.fit) {
    state(sync.fragment).merge(0);
  }
  rounds_.launch(sync, std::move(delta), rounds_.window(sync.fragment).weight());
}

void StreamingDiLoCo::apply_due(StepIndex due, LateRound late, StepIndex now,
                                std::vector<RoundReport>& reports) {
  while (const auto round = rounds_.settle_due(due, late)) {
    reports.push_back(apply(*round, now));
  }
}

RoundReport StreamingDiLoCo::apply(const Settled& round, StepIndex now) {
  settle_residual(round);
  if (round.lost) {
    apply_without_own(round);
  } else if (!round.mean.empty()) {
    state(round.report.fragment).step(round.mean);
    state(round.report.fragment).merge(settings_.alpha);
  }
  RoundReport report = round.report;
  report.applied = now;
  return report;
}

std::vector<RoundReport> StreamingDiLoCo::apply_late() {
  std::vector<RoundReport> reports;
  apply_due(steps_, LateRound::kWait, steps_, reports);
  return reports;
}

// What was not counted is not sent: it is in the local values still, or, where those have been
// given up in the meantime, goes back into the residual.
void StreamingDiLoCo::settle_residual(const Settled& round) {
  OuterFragment& fragment = state(round.report.fragment);
  if (round.report.counted) {
    fragment.forget_kept_residual();
  } else if (!fragment.recall_residual() && round.lost) {
    fragment.take_back(*settings_.codec, round.own);
  }
}

// Where nobody contributed there is no outer step either, its momentum included.
void StreamingDiLoCo::apply_without_own(const Settled& round) {
  OuterFragment& fragment = state(round.report.fragment);
  switch (settings_.carry) {
    case LostContribution::kCarry:
      rounds_.carry_window(round);
      if (!round.mean.empty()) fragment.step_and_rebase(round.mean);
      break;
    case LostContribution::kStay:
      if (!round.mean.empty()) fragment.step(round.mean);
      break;
    case LostContribution::kRollback:
      if (!round.mean.empty()) fragment.step(round.mean);
      fragment.merge(0);
      break;
  }
}

// A fragment sent at the last step has nothing newer to give, so a full sync leaves it out.
std::vector<RoundReport> StreamingDiLoCo::finish() {
  std::vector<RoundReport> reports = apply_late();
  if (settings_.final_sync == FinalSync::kNone) {
    rounds_.drop();
    return reports;
  }
  const StepIndex everything(std::numeric_limits<std::int64_t>::max());
  apply_due(everything, LateRound::kWait, steps_, reports);
  if (settings_.final_sync == FinalSync::kFull) {
    for (const Fragment& fragment : settings_.fragments) {
      if (rounds_.last_sent(fragment.id) != steps_) {
        send({fragment.id, steps_, steps_});
      }
    }
    apply_due(everything, LateRound::kWait, steps_, reports);
  }
  return reports;
}

std::span<const float> StreamingDiLoCo::values(std::size_t parameter) const {
  const Place& place = places_.at(parameter);
  return fragments_[place.fragment]->anchor().subspan(place.begin, place.size);
}

OuterFragment& StreamingDiLoCo::state(FragmentId id) { return *fragments_.at(index(id)); }

void StreamingDiLoCo::save(StateWriter& writer) const {
  save_identity(identity_of(settings_, inner_.parameters()), writer);
  writer.integer("step", steps_.value());
  for (const auto& fragment : fragments_) {
    fragment->save(writer);
  }
  guard_.save(writer);
  rounds_.save(writer);
}

void StreamingDiLoCo::load(StateReader& reader) {
  check_identity(identity_of(settings_, inner_.parameters()), reader);
  steps_ = StepIndex(reader.integer("step"));
  for (const auto& fragment : fragments_) {
    fragment->load(reader);
  }
  guard_.load(reader);
  rounds_.load(reader, steps_);
  rounds_.take_up_dropped(reader);
  for (const auto& fragment : fragments_) {
    if (!rounds_.in_flight(fragment->fragment().id)) static_cast<void>(fragment->recall_residual());
  }
}

void StreamingDiLoCo::forget_own_work() {
  for (const auto& fragment : fragments_) {
    fragment->forget_own_work();
  }
  rounds_.forget_own_work(steps_);
}

OwnWork StreamingDiLoCo::own_work() const {
  OwnWork work{.step = steps_, .trained = std::max(steps_, trained_), .parts = {}};
  for (const std::unique_ptr<OuterFragment>& fragment : fragments_) {
    const FragmentId id = fragment->fragment().id;
    const Window& open = rounds_.window(id);
    const std::optional<Window> unknown = rounds_.unknown(id);
    OwnWork::Part part;
    if (settings_.carry == LostContribution::kCarry && !unknown && open.steps > 0) {
      part = {.beyond = fragment->beyond(), .tokens = open.tokens, .steps = open.steps};
      if (!std::ranges::all_of(part.beyond, [](float x) { return std::isfinite(x); })) part = {};
    }
    if (part.beyond.empty()) {
      part.lost_tokens = open.tokens + (unknown ? unknown->tokens : 0);
    }
    work.parts.push_back(std::move(part));
  }
  return work;
}

CarriesWork::Kept StreamingDiLoCo::carry(const OwnWork& work) {
  ISTHMUS_CHECK(work.parts.size() == fragments_.size(), work.parts.size(), fragments_.size());
  Kept kept;
  for (std::size_t p = 0; p < fragments_.size(); ++p) {
    const OwnWork::Part& part = work.parts[p];
    const FragmentId id = fragments_[p]->fragment().id;
    const bool has_place = !rounds_.in_flight(id);
    kept.lost_tokens = std::max(kept.lost_tokens, part.lost_tokens + (has_place ? 0 : part.tokens));
    if (part.beyond.empty() || !has_place) continue;
    fragments_[p]->add_to_local(part.beyond);
    rounds_.take_up(id, part.tokens, part.steps);
    kept.tokens = std::max(kept.tokens, part.tokens);
  }
  return kept;
}

}  // namespace isthmus::outer
