// SPDX-License-Identifier: Apache-2.0
#include "c/handed_trainer.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "core/base/all_elements.h"
#include "isthmus/errors.h"
#include "outer/place/outer_placement.h"

namespace isthmus::c {
namespace {

/// How long the results of steps that the caller takes by itself may wait for the run.
constexpr Duration kMostBehind = std::chrono::milliseconds(20);

}  // namespace

void check_handed(const Config& config) {
  if (config.outer_placement == "device")
    throw ConfigError(
        "outer.placement = \"device\": the outer state of a trainer that is not isthmus' own is in "
        "host memory, wherever its parameters are: set it to \"host\", or to \"ranks\" where "
        "several processes train the model of this site");
}

Answer Channel::ask(const Asked& asked) {
  std::optional<std::string> failed;
  // A worker's steps and a task that takes lone steps ask in turn.
  (void)queue_->wait(
      [&] {
        if (busy_ && !caller_failed_) return false;
        busy_ = true;
        asked_ = asked;
        answer_.reset();
        taken_ = is_ahead(asked);
        if (!taken_) until_ = StepIndex(0);
        return true;
      },
      kNever);
  queue_->update([] {});
  std::optional<Answer> given;
  bool behind = true;  // whether the caller may run on without being woken at each answer
  const auto answered = [&] {
    if (using_ > 0) return false;
    failed = caller_failed_;
    if (!failed) given = take_answer(asked);
    behind = asked.step < std::max(until_, asked.until);
    return failed || given;
  };
  while (!queue_->wait(answered, behind ? runtime_.clock().now() + kMostBehind : kNever)) {
  }
  queue_->update([&] {
    asked_.reset();
    busy_ = false;
  });
  if (failed) throw RunError(*failed);
  return *std::move(given);
}

// Another step than those that the caller has taken ahead is asked for only once a run has failed.
bool Channel::is_ahead(const Asked& asked) {
  if (asked.kind != Asked::Kind::kTrain) return false;
  if (!trained_.empty() && trained_.front().first != asked.step) trained_.clear();
  return !trained_.empty() || (open_ && open_->step == asked.step) ||
         (given_ < asked.step && asked.step <= until_);
}

std::optional<Answer> Channel::take_answer(const Asked& asked) {
  if (asked.kind != Asked::Kind::kTrain) return std::exchange(answer_, std::nullopt);
  while (!trained_.empty() && trained_.front().first != asked.step) trained_.pop_front();
  if (trained_.empty()) return std::nullopt;
  std::optional<Answer> given = std::move(trained_.front().second);
  trained_.pop_front();
  return given;
}

void Channel::stop_ahead() {
  queue_->update([&] { stopping_ = true; });
  (void)queue_->wait([&] { return caller_failed_ || (!open_ && given_ >= until_); }, kNever);
  queue_->update([&] {
    trained_.clear();
    until_ = StepIndex(0);
    stopping_ = false;
  });
}

void Channel::finish(const std::exception_ptr& failure) {
  queue_->update([&] {
    over_ = true;
    failure_ = failure;
  });
}

Channel::Next Channel::next(TimePoint deadline, Asked& asked) {
  Next found = Next::kNothing;
  bool unanswered = false;
  (void)queue_->wait(
      [&] {
        unanswered = open_ && !over_;
        if (unanswered) return true;
        found = take();
        return found != Next::kNothing;
      },
      deadline);
  if (unanswered)
    throw ConfigError("isthmus_next: the worker's last request has not been answered");
  if (found == Next::kAsked) asked = *open_;  // the caller's thread alone changes it
  if (found == Next::kEnd && failure_) std::rethrow_exception(failure_);  // set before over_
  return found;
}

// A run that has failed meanwhile says so after the steps that the caller takes by itself: the
// caller may be one of several ranks, which take them together.
Channel::Next Channel::take() {
  if (open_) until_ = StepIndex(0);  // given up by a caller whose run is over
  open_.reset();
  part_begun_ = false;
  if (given_ < until_) {
    open_ = Asked{.step = StepIndex(given_.value() + 1), .until = until_};
  } else if (asked_ && !taken_) {
    open_ = *asked_;
    taken_ = true;
    until_ = open_->until;
  } else {
    return over_ ? Next::kEnd : Next::kNothing;
  }
  if (open_->kind == Asked::Kind::kTrain) given_ = open_->step;
  return Next::kAsked;
}

void Channel::with_open(const std::function<void(const Asked&)>& work) {
  std::optional<Asked> asked;
  queue_->update([] {});  // the run may be behind
  (void)queue_->wait(
      [&] {
        if (!open_) return true;
        const bool there = asked_ && asked_->kind == open_->kind && asked_->step == open_->step;
        const bool gone = over_ || caller_failed_ || stopping_;
        if (!there && !gone) return false;
        if (there) {
          asked = *asked_;
        } else if (open_->kind == Asked::Kind::kTrain) {
          asked = {.step = open_->step};  // other objects that it pointed to may be gone
        }
        if (asked) ++using_;
        return true;
      },
      kNever);
  if (!asked) throw ConfigError("no request is open: isthmus_next gives one");
  const auto done = [&] { queue_->update([&] { --using_; }); };
  try {
    work(*asked);
  } catch (...) {
    done();
    throw;
  }
  done();
}

void Channel::answer(Answer answer, std::span<const Asked::Kind> of) {
  if (!open_) throw ConfigError("no request is open: isthmus_next gives one");
  const Asked::Kind kind = open_->kind;
  if (std::ranges::find(of, kind) == of.end())
    throw ConfigError(
        "the answer is not of the kind of the open request: answer what isthmus_next gave");
  if (kind == Asked::Kind::kRanks && !part_begun_)
    throw ConfigError(
        "ISTHMUS_RANKS is open, and its part has not been done: call isthmus_ranks, then answer");
  bool waits = false;  // the run looks for it by itself, and takes it in together with later ones
  (void)queue_->wait(
      [&] {
        if (kind == Asked::Kind::kTrain) {
          trained_.emplace_back(open_->step, std::move(answer));
          waits = open_->step < until_ && !stopping_;
        } else {
          answer_ = std::move(answer);
        }
        open_.reset();
        return true;
      },
      kNever);
  if (!waits) queue_->update([] {});
}

void Channel::run_part(const HandedRanks& ranks) {
  with_open([&](const Asked& open) {
    if (open.kind != Asked::Kind::kRanks)
      throw ConfigError("isthmus_ranks: at rank 0 only while ISTHMUS_RANKS is open");
    if (std::exchange(part_begun_, true))
      throw ConfigError(
          "isthmus_ranks: was called for this ISTHMUS_RANKS before: call it once, then answer");
    run_part(ranks, *open.part);
  });
}

// The ranks may have done different shares of it, so the run has no way on.
void Channel::run_part(const HandedRanks& ranks, const RanksPart& part) {
  try {
    ranks.run(part);
  } catch (const std::exception& error) {
    fail(error.what());
    throw;
  }
}

bool Channel::caller_inside() {
  bool inside = false;
  queue_->update([&] { inside = using_ > 0; });
  return inside;
}

void Channel::fail(const std::string& text) {
  queue_->update([&] {
    if (!caller_failed_) caller_failed_ = text;
  });
}

void HandedLoop::read_values(CanonicalRange elements) {
  if (!copies_ || elements.size() == 0) return;
  (void)channel_.ask({.kind = Asked::Kind::kRead, .elements = elements});
}

void HandedLoop::wrote_values(CanonicalRange elements) {
  wrote_ = true;
  if (!copies_ || elements.size() == 0) return;
  (void)channel_.ask({.kind = Asked::Kind::kWrote, .elements = elements});
}

InnerStep HandedLoop::train_step(StepIndex t) {
  const Answer answer = channel_.ask({.kind = Asked::Kind::kTrain,
                                      .step = t,
                                      .wrote = std::exchange(wrote_, false),
                                      .outer = strategy_,
                                      .until = std::exchange(until_, StepIndex(0))});
  learning_rate_ = answer.learning_rate;
  return answer.step;
}

InnerStep HandedLoop::gradients(StepIndex t, const GradientReady& on_ready) {
  if (gradients_.empty()) return InnerLoop::gradients(t, on_ready);
  const Answer answer = channel_.ask({.kind = Asked::Kind::kGradients,
                                      .step = t,
                                      .wrote = std::exchange(wrote_, false),
                                      .outer = strategy_});
  given_ = t;
  if (on_ready) {
    for (std::size_t p = gradients_.size(); p-- > 0;) on_ready(p);
  }
  return answer.step;
}

std::span<float> HandedLoop::gradient(std::size_t parameter) {
  return gradients_.empty() ? InnerLoop::gradient(parameter) : gradients_.at(parameter);
}

double HandedLoop::apply_gradients(StepIndex t) {
  if (gradients_.empty()) return InnerLoop::apply_gradients(t);
  // A worker that applies the results of others is not asked for its own gradients.
  const bool own = std::exchange(given_, StepIndex(0)) == t;
  const Answer answer = channel_.ask({.kind = own ? Asked::Kind::kApply : Asked::Kind::kReplay,
                                      .step = t,
                                      .wrote = !own && std::exchange(wrote_, false)});
  learning_rate_ = answer.learning_rate;
  return answer.step.grad_norm;
}

void HandedLoop::reset_optimizer() { (void)channel_.ask({.kind = Asked::Kind::kRestart}); }

void HandedLoop::save(StateWriter& writer) const {
  (void)channel_.ask({.kind = Asked::Kind::kSave, .writer = &writer});
}

void HandedLoop::load(StateReader& reader) {
  (void)channel_.ask({.kind = Asked::Kind::kLoad, .reader = &reader});
}

std::optional<std::int64_t> HandedTrainer::evaluation_parts() const {
  if (parts_ == 0) return std::nullopt;
  return parts_;
}

std::vector<EvalPart> HandedTrainer::evaluate(InnerLoop&, const ParameterSource& source,
                                              std::span<const std::int64_t> parts) {
  loop_.read_values(all_elements(loop_));
  const std::span<const Parameter> own = loop_.parameters();
  std::vector<std::vector<float>> kept;
  for (std::size_t p = 0; p < own.size(); ++p) {
    kept.emplace_back(own[p].values.begin(), own[p].values.end());
    const std::span<const float> shown = source.values(p);
    // The source may be the loop's own values.
    if (shown.data() != own[p].values.data()) std::ranges::copy(shown, own[p].values.begin());
  }
  const auto put_back = [&] {
    for (std::size_t p = 0; p < own.size(); ++p) std::ranges::copy(kept[p], own[p].values.begin());
  };
  try {
    std::vector<EvalPart> losses =
        channel_.ask({.kind = Asked::Kind::kEvaluate, .parts = {parts.begin(), parts.end()}})
            .losses;
    put_back();
    return losses;
  } catch (...) {
    put_back();
    throw;
  }
}

std::unique_ptr<OuterStrategy> HandedTrainer::make_strategy(const std::string& method,
                                                            const OuterOptions& options,
                                                            InnerLoop& through,
                                                            Exchange& exchange) {
  if (ranks_ == nullptr) return make_outer_strategy(method, options, through, exchange);
  return outer::make_outer_strategy_on_ranks(
      method, options, through, exchange, [this](const RanksPart& part) {
        if (channel_.caller_inside()) {  // isthmus_outer_values, on the caller's thread
          channel_.run_part(*ranks_, part);
        } else {
          (void)channel_.ask({.kind = Asked::Kind::kRanks, .part = &part});
        }
      });
}

}  // namespace isthmus::c
