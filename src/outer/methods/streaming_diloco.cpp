// SPDX-License-Identifier: Apache-2.0
#include "outer/methods/streaming_diloco.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <utility>

#include "core/base/check.h"
#include "outer/parts/start_check.h"

namespace isthmus::outer {
StreamingDiLoCo::StreamingDiLoCo(FragmentedSettings settings, InnerLoop& inner, Exchange& exchange,
                                 const FragmentMaker& make, cuda::ResidentValues* values)
    : settings_(std::move(settings)),
      inner_(inner),
      places_(inner.parameters().size()),
      rounds_(settings_, exchange, settings_.schedule.overlap()),
      guard_(settings_.fragments.size(), settings_.outlier),
      values_(values) {
  for (const Fragment& fragment : settings_.fragments) {
    std::size_t begin = 0;
    for (const std::size_t i : fragment.parameters) {
      places_[i] = {index(fragment.id), begin, inner.parameters()[i].values.size()};
      begin += places_[i].size;
    }
    fragments_.push_back(make(fragment));
    if (fragments_.back()->beside() == nullptr) values_ = nullptr;
  }
  if (values_ != nullptr && !values_->go_beside(&beside_)) values_ = nullptr;
}

StreamingDiLoCo::~StreamingDiLoCo() {
  if (values_ != nullptr) static_cast<void>(values_->go_beside(nullptr));
}

StepReport StreamingDiLoCo::step() {
  const StepIndex t(steps_.value() + 1);
  if (t == StepIndex(1)) agree_on_parameters(inner_, rounds_.exchange());
  for (const auto& fragment : fragments_) fragment->drop_anchor_copy();  // of an evaluation, say
  StepReport report{.step = t, .inner = inner_.train_step(t), .rounds = {}};
  if (!failed_beside_) finish_send();  // where no step was taken
  rounds_.count(report.inner);
  trained_ = t;
  throw_what_failed_beside();
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

StepIndex StreamingDiLoCo::next_use() const {
  const StepIndex next(steps_.value() + 1);
  if (values_ != nullptr) return next;  // sends and results go on beside the steps
  const std::optional<StepIndex> due = rounds_.next_due();
  const StepIndex sends = settings_.schedule.next_send(next);
  return due ? std::min(sends, std::max(*due, next)) : sends;
}

// If several fragments are sent after one step, one is on its way at a time; a fragment that is
// applied at once is waited for.
void StreamingDiLoCo::send(const Sync& sync) {
  finish_send();
  state(sync.fragment).keep_residual();
  if (values_ != nullptr) {
    state(sync.fragment).beside()->begin_gradient();
    sending_ = Sending{.sync = sync};
    if (sync.apply == sync.sent) finish_send();
    return;
  }
  OuterGradient delta =
      state(sync.fragment)
          .outer_gradient(*settings_.codec, rounds_.key(sync.fragment, sync.sent),
                          [&](double norm) { return guard_.accepts(sync.fragment, norm); });
  give_up_unfit(sync.fragment, delta.norm, delta.fit);
  rounds_.launch(sync, std::move(delta), rounds_.window(sync.fragment).weight());
}

bool StreamingDiLoCo::decide_send() const {
  if (!sending_ || sending_->decided) return false;
  sending_->decided = true;
  const Sync& sync = sending_->sync;
  AsyncFragment& fragment = *state(sync.fragment).beside();
  const double norm = fragment.gradient_norm();
  const bool fit = guard_.accepts(sync.fragment, norm);
  fragment.begin_encoding(rounds_.key(sync.fragment, sync.sent), fit);
  give_up_unfit(sync.fragment, norm, fit);
  return !fit;
}

void StreamingDiLoCo::finish_send() const {
  if (!sending_) return;
  static_cast<void>(decide_send());
  const Sync sync = sending_->sync;
  sending_.reset();
  OuterGradient delta = state(sync.fragment).beside()->finish_encoding();
  rounds_.launch(sync, std::move(delta), rounds_.window(sync.fragment).weight());
}

void StreamingDiLoCo::give_up_unfit(FragmentId id, double norm, bool fit) const {
  if (!std::isfinite(norm)) {
    // The next step would spread it to every fragment.
    for (const auto& fragment : fragments_) {
      fragment->merge(0);
      if (rounds_.in_flight(fragment->fragment().id)) fragment->forget_kept_residual();
    }
    rounds_.give_up_windows();
    inner_.reset_optimizer();
  } else if (!fit) {
    state(id).merge(0);
  }
}

bool StreamingDiLoCo::Beside::passes_are_queued() noexcept {
  bool changed = false;
  outer_.keep_failure([&] { changed = outer_.decide_send(); });
  return changed;
}

void StreamingDiLoCo::Beside::step_is_queued(StepIndex t) noexcept {
  outer_.keep_failure([&] {
    outer_.finish_send();
    outer_.prepare(t);
  });
}

void StreamingDiLoCo::Beside::values_are_asked_for() noexcept {
  outer_.keep_failure([&] { outer_.finish_send(); });
}

void StreamingDiLoCo::keep_failure(const std::function<void()>& work) noexcept {
  if (failed_beside_) return;
  try {
    work();
  } catch (...) {
    failed_beside_ = std::current_exception();
    sending_.reset();
  }
}

// Step t is being computed: the data that its end needs is moved to the device. Which rounds slip
// depends on when they are asked for, so a round that may slip is not asked for earlier.
void StreamingDiLoCo::prepare(StepIndex t) {
  std::optional<FragmentId>
      next;  // the fragment whose anchor is asked for first: sends come before applies
  if (settings_.late == LateRound::kWait) {
    if (const auto round = rounds_.take_in(t)) {
      state(round->fragment).beside()->expect_step(round->mean);
      next = round->fragment;
    }
  }
  const std::vector<Sync> sends = settings_.schedule.due_to_send(t);
  if (!sends.empty()) next = sends.front().fragment;
  if (next) state(*next).beside()->expect_anchor();
}

void StreamingDiLoCo::throw_what_failed_beside() const {
  if (failed_beside_) std::rethrow_exception(std::exchange(failed_beside_, nullptr));
}

void StreamingDiLoCo::apply_due(StepIndex due, LateRound late, StepIndex now,
                                std::vector<RoundReport>& reports) {
  while (const auto round = rounds_.settle_due(due, late)) {
    reports.push_back(apply(*round, now));
  }
}

// A send comes before: it may give local values up.
RoundReport StreamingDiLoCo::apply(const Settled& round, StepIndex now) {
  static_cast<void>(decide_send());
  settle_residual(round);
  if (settings_.rates.vary()) {
    state(round.report.fragment).use_rates(settings_.rates.at(round.report.sent));
  }
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
  finish_send();
  throw_what_failed_beside();
  std::vector<RoundReport> reports;
  apply_due(steps_, LateRound::kWait, steps_, reports);
  return reports;
}

// Work that was not counted is not sent again: it is still in the local values or, if these have
// been given up in the meantime, goes back into the residual.
void StreamingDiLoCo::settle_residual(const Settled& round) {
  OuterFragment& fragment = state(round.report.fragment);
  if (round.report.counted) {
    fragment.forget_kept_residual();
  } else if (!fragment.recall_residual() && round.lost) {
    fragment.take_back(*settings_.codec, round.own);
  }
}

// If no worker contributed, there is no outer step either, its momentum included.
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

// A fragment sent at the last step has an empty window, so the closing round leaves it out.
std::vector<RoundReport> StreamingDiLoCo::finish() {
  std::vector<RoundReport> reports = apply_late();
  if (settings_.final_sync == FinalSync::kNone) {
    rounds_.drop();
    return reports;
  }
  const StepIndex everything(std::numeric_limits<std::int64_t>::max());
  apply_due(everything, LateRound::kWait, steps_, reports);
  if (settings_.final_sync == FinalSync::kFull) {
    rounds_.count_partial_windows();
    for (const Fragment& fragment : settings_.fragments) {
      if (rounds_.last_sent(fragment.id) != steps_) {
        send({fragment.id, steps_, steps_});  // applied at once: not beside anything
      }
    }
    const std::size_t drained = reports.size();
    apply_due(everything, LateRound::kWait, steps_, reports);
    for (std::size_t i = drained; i < reports.size(); ++i) reports[i].closing = true;
    rounds_.warn_of_losses(reports);
  }
  return reports;
}

std::span<const float> StreamingDiLoCo::values(std::size_t parameter) const {
  const Place& place = places_.at(parameter);
  return fragments_[place.fragment]->anchor().subspan(place.begin, place.size);
}

OuterFragment& StreamingDiLoCo::state(FragmentId id) const { return *fragments_.at(index(id)); }

void StreamingDiLoCo::save(StateWriter& writer) const {
  finish_send();
  throw_what_failed_beside();
  save_identity(identity_of(settings_, inner_.parameters()), writer);
  writer.integer("step", steps_.value());
  for (const auto& fragment : fragments_) {
    fragment->save(writer);
  }
  guard_.save(writer);
  rounds_.save(writer);
}

void StreamingDiLoCo::load(StateReader& reader) {
  sending_.reset();
  check_identity(identity_of(settings_, inner_.parameters()), reader, settings_.former_H);
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
  finish_send();
  for (const auto& fragment : fragments_) {
    fragment->forget_own_work();
  }
  rounds_.forget_own_work(steps_);
}

UncommittedDelta StreamingDiLoCo::uncommitted_delta() const {
  finish_send();
  UncommittedDelta work{.step = steps_, .trained = std::max(steps_, trained_), .parts = {}};
  for (const std::unique_ptr<OuterFragment>& fragment : fragments_) {
    const FragmentId id = fragment->fragment().id;
    const Window& open = rounds_.window(id);
    const std::optional<Window> unknown = rounds_.unknown(id);
    UncommittedDelta::Part part;
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

CarriesWork::Kept StreamingDiLoCo::carry(const UncommittedDelta& work) {
  ISTHMUS_CHECK(work.parts.size() == fragments_.size(), work.parts.size(), fragments_.size());
  finish_send();
  Kept kept;
  for (std::size_t p = 0; p < fragments_.size(); ++p) {
    const UncommittedDelta::Part& part = work.parts[p];
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
