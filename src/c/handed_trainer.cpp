// SPDX-License-Identifier: Apache-2.0
#include "c/handed_trainer.h"

#include <algorithm>
#include <utility>

#include "core/base/all_elements.h"
#include "core/base/deadline.h"
#include "isthmus/errors.h"

namespace isthmus::c {

Answer Channel::ask(const Asked& asked) {
  std::optional<std::string> failed;
  // A worker's steps and a task that takes lone steps ask in turn.
  (void)queue_->wait(
      [&] {
        if (busy_ && !caller_failed_) return false;
        busy_ = true;
        asked_ = asked;
        taken_ = false;
        answer_.reset();
        return true;
      },
      kNever);
  queue_->update([] {});
  Answer given;
  (void)queue_->wait(
      [&] {
        if (using_ > 0) return false;
        failed = caller_failed_;
        if (failed) return true;
        if (!answer_) return false;
        given = *std::move(answer_);
        return true;
      },
      kNever);
  queue_->update([&] {
    asked_.reset();
    answer_.reset();
    busy_ = false;
  });
  if (failed) throw RunError(*failed);
  return given;
}

void Channel::finish(const std::exception_ptr& failure) {
  queue_->update([&] {
    over_ = true;
    failure_ = failure;
  });
}

Channel::Next Channel::next(TimePoint deadline, Asked& asked) {
  Next found = Next::kNothing;
  std::exception_ptr failure;
  bool unanswered = false;
  (void)queue_->wait(
      [&] {
        unanswered = asked_ && taken_ && !answer_ && !over_;
        if (unanswered) return true;
        if (asked_ && !taken_) {
          asked = *asked_;
          taken_ = true;
          found = Next::kAsked;
          return true;
        }
        if (!over_) return false;
        failure = failure_;
        found = Next::kEnd;
        return true;
      },
      deadline);
  if (unanswered)
    throw ConfigError("isthmus_next: the worker's last request has not been answered");
  if (failure) std::rethrow_exception(failure);
  return found;
}

Asked Channel::open() const {
  std::optional<Asked> asked;
  queue_->update([&] {
    if (asked_ && taken_ && !answer_) asked = asked_;
  });
  if (!asked) throw ConfigError("no request is open: isthmus_next gives one");
  return *asked;
}

void Channel::with_open(const std::function<void(const Asked&)>& work) {
  std::optional<Asked> asked;
  queue_->update([&] {
    if (!asked_ || !taken_ || answer_) return;
    asked = asked_;
    ++using_;
  });
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
  if (std::ranges::find(of, open().kind) == of.end())
    throw ConfigError("the open request is of another kind than the answer");
  queue_->update([&] { answer_ = std::move(answer); });
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
                                      .outer = strategy_});
  learning_rate_ = answer.learning_rate;
  return answer.step;
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

}  // namespace isthmus::c
