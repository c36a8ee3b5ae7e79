// SPDX-License-Identifier: Apache-2.0
#include "plan/prediction.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <deque>
#include <numeric>
#include <utility>

#include "core/base/check.h"
#include "plan/critical_path.h"
#include "plan/exchange_model.h"
#include "plan/prediction_terms.h"
#include "record/round_times.h"

namespace isthmus {
namespace plan {
namespace {

// A run of more steps is not played whole: its rounds repeat, so one stretch stands for the others.
constexpr std::int64_t kPlayedWhole = std::int64_t{1} << 17;
// Least steps of a stretch, and most steps between two rounds that are played one by one.
constexpr std::int64_t kStretch = std::int64_t{1} << 14;

/// The run step by step: when each worker has come how far.
class RunModel {
 public:
  explicit RunModel(const PredictionInput& input, RoundTimes* times = nullptr,
                    WorkerId observer = WorkerId(0))
      : input_(input),
        times_(times),
        observer_(static_cast<std::size_t>(observer.value())),
        exchange_(input),
        now_(static_cast<std::size_t>(input.workers)),
        computed_(now_.size(), 0.0) {}

  /// Time: of at most kPlayedWhole steps, or of three stretches, whatever the number of steps. A
  /// stretch has whole periods of the rounds, so bytes and rounds are counted exactly; the first
  /// one lets rounds find their rhythm, the second is repeated, and what is left is played at the
  /// end.
  void run() {
    const std::int64_t stretch = repeating_stretch();
    const std::int64_t repeats = input_.steps / stretch - 2;
    if (times_ != nullptr || !is_long() || repeats < 1) {
      play(input_.steps);
      finish();
      return;
    }
    play(stretch);
    const Standing first = standing();
    play(2 * stretch);
    const Standing second = standing();
    played_ = input_.steps - repeats * stretch;
    play(played_);
    finish();
    add(first, second, repeats);
  }

  [[nodiscard]] const std::vector<PathTime>& ends() const { return now_; }
  [[nodiscard]] const std::vector<double>& computed() const { return computed_; }
  /// Bytes of all workers together, not scaled.
  [[nodiscard]] double payload_bytes() const { return payload_bytes_ + exchange_.payload_bytes(); }
  [[nodiscard]] double wire_bytes() const { return wire_bytes_ + exchange_.wire_bytes(); }
  [[nodiscard]] std::int64_t rounds() const { return rounds_; }
  /// Bytes of all workers together, not scaled.
  [[nodiscard]] const ClosingCost& closing() const { return closing_; }

 private:
  struct InFlight {
    std::int64_t apply = 0;
    std::vector<PathTime> known;  // by worker
  };

  /// How far the run is.
  struct Standing {
    PathTime latest;
    std::vector<double> computed;
    double payload_bytes = 0;
    double wire_bytes = 0;
    std::int64_t rounds = 0;
  };

  [[nodiscard]] bool alone() const { return input_.workers == 1; }
  [[nodiscard]] bool is_long() const { return input_.steps > kPlayedWhole; }

  /// Whole periods of sends and, where that is not long, of commits. The rhythm of the rounds may
  /// be one of several periods (two, say, where workers take turns in being late), so there are
  /// many.
  [[nodiscard]] std::int64_t repeating_stretch() const {
    constexpr std::int64_t kMany = 60, kFew = 12;
    std::int64_t period = input_.H;
    if (input_.commit_every > 0 && input_.commit_every <= kPlayedWhole) {
      const std::int64_t both = std::lcm(input_.H, input_.commit_every);
      if (both <= kPlayedWhole) period = both;
    }
    period *= period <= kPlayedWhole ? kMany : kFew;
    return (kStretch + period - 1) / period * period;
  }

  [[nodiscard]] Standing standing() const {
    Standing here{.latest = now_[0],
                  .computed = computed_,
                  .payload_bytes = exchange_.payload_bytes(),
                  .wire_bytes = exchange_.wire_bytes(),
                  .rounds = rounds_};
    for (const PathTime& time : now_) here.latest = later(here.latest, time);
    return here;
  }

  void add(const Standing& from, const Standing& to, std::int64_t times) {
    const PathTime more = repeated(from.latest, to.latest, times);
    const auto n = static_cast<double>(times);
    for (std::size_t w = 0; w < now_.size(); ++w) {
      now_[w] = after(more, now_[w]);
      computed_[w] += n * (to.computed[w] - from.computed[w]);
    }
    payload_bytes_ = n * (to.payload_bytes - from.payload_bytes);
    wire_bytes_ = n * (to.wire_bytes - from.wire_bytes);
    rounds_ += times * (to.rounds - from.rounds);
  }

  /// Steps up to `last`.
  void play(std::int64_t last) {
    while (done_ < last) {
      const std::int64_t quiet = is_long() && input_.H > kStretch ? quiet_steps(last) : 0;
      if (quiet > kStretch) {
        compute_alone(quiet);
      } else {
        step(++done_);
      }
    }
  }

  /// Steps from the next one on, up to `last`, in which nothing is sent or applied.
  [[nodiscard]] std::int64_t quiet_steps(std::int64_t last) const {
    std::int64_t next = last + 1;
    const auto sent = [&](std::int64_t offset) {
      const std::int64_t since = (done_ + 1 - offset) % input_.H;
      next = std::min(next, done_ + 1 + (since == 0 ? 0 : (input_.H - since) % input_.H));
    };
    if (input_.round_behind) sent(0);
    for (const PlannedFragment& fragment : input_.fragments) sent(fragment.offset);
    const bool awaits = !input_.round_behind && !in_flight_.empty();  // else at the next send
    if (awaits) next = std::min(next, in_flight_.front().apply);
    return next - 1 - done_;
  }

  /// So many steps with the mean length of the first of them.
  void compute_alone(std::int64_t steps) {
    for (std::size_t w = 0; w < now_.size(); ++w) {
      const WorkerId worker(static_cast<int>(w));
      double seconds = 0;
      for (std::int64_t i = 1; i <= kStretch; ++i) {
        seconds += in_seconds(input_.step_time(worker, StepIndex(done_ + i)));
      }
      seconds *= static_cast<double>(steps) / static_cast<double>(kStretch);
      now_[w].compute(seconds);
      computed_[w] += seconds;
    }
    done_ += steps;
  }

  // Sends before applies, as the outer strategies do; a fragment may be ready within the step.
  void step(std::int64_t t) {
    const std::vector<PathTime> before = now_;
    std::vector<double> length(now_.size());
    for (std::size_t w = 0; w < now_.size(); ++w) {
      length[w] = in_seconds(input_.step_time(WorkerId(static_cast<int>(w)), StepIndex(t)));
      now_[w].compute(length[w]);
      computed_[w] += length[w];
    }
    if (input_.round_behind) {
      if (t % input_.H == 0) {
        end_round(t);
      }
      return;
    }
    for (std::size_t p = 0; p < input_.fragments.size(); ++p) {
      const PlannedFragment& fragment = input_.fragments[p];
      if (t % input_.H != fragment.offset) {
        continue;
      }
      std::vector<PathTime> begin = before;
      for (std::size_t w = 0; w < begin.size(); ++w) {
        begin[w].compute(length[w] * fragment.ready);
      }
      const bool last = p + 1 == input_.fragments.size();
      launch(p, t, t + input_.overlap, begin,
             input_.commit_every == 0 || (last && commits_after(input_.steps_before + t)));
    }
    apply_due(t);
  }

  /// The first sync in each stretch of so many steps.
  [[nodiscard]] bool commits_after(std::int64_t sent) const {
    return sent / input_.commit_every != (sent - input_.H) / input_.commit_every;
  }

  // The round before is awaited first.
  void end_round(std::int64_t t) {
    apply_due(t);
    launch(0, t, t + 1, now_, true);
  }

  void launch(std::size_t p, std::int64_t sent, std::int64_t apply,
              const std::vector<PathTime>& begin, bool commits) {
    ++rounds_;
    if (alone()) {
      return;
    }
    std::vector<PathTime> whole = exchange_.exchange(input_.fragments[p].elements, begin);
    if (input_.commit_every > 0) {
      remember_whole(whole);  // DONE covers the rounds before it
      whole = commits ? whole_so_far_ : whole;
    }
    put_in_flight(p, sent, apply, begin, commits ? exchange_.commit(whole) : std::move(whole));
  }

  void put_in_flight(std::size_t p, std::int64_t sent, std::int64_t apply,
                     const std::vector<PathTime>& begin, std::vector<PathTime> known) {
    if (times_ != nullptr) {
      times_->add(FragmentId(static_cast<int>(p)), StepIndex(input_.steps_before + sent),
                  known[observer_].at - begin[observer_].at);
    }
    in_flight_.push_back({apply, std::move(known)});
  }

  void remember_whole(const std::vector<PathTime>& whole) {
    if (whole_so_far_.empty()) {
      whole_so_far_ = whole;
    }
    for (std::size_t w = 0; w < whole.size(); ++w) {
      whole_so_far_[w] = later(whole_so_far_[w], whole[w]);
    }
  }

  void apply_due(std::int64_t t) {
    while (!in_flight_.empty() && in_flight_.front().apply <= t) {
      for (std::size_t w = 0; w < now_.size(); ++w) {
        now_[w] = later(now_[w], in_flight_.front().known[w]);
      }
      in_flight_.pop_front();
    }
  }

  void finish() {
    if (!input_.ends_the_run) {
      return;
    }
    if (input_.closes_always) {
      close();
    } else if (input_.commit_every > 0) {
      commit_the_rest();
    } else if (input_.final_sync != FinalSync::kNone) {
      drain();
      if (input_.final_sync == FinalSync::kFull) close();
    }
  }

  void commit_the_rest() {
    if ((input_.steps_before + input_.steps) % input_.commit_every == 0 || alone()) return;
    in_flight_.push_back({played_, exchange_.commit(now_)});
    apply_due(played_);
  }

  void drain() {
    if (!input_.round_behind) {
      apply_due(played_ + input_.overlap);
    } else if (input_.drains || input_.final_sync == FinalSync::kFull) {
      apply_due(played_ + 1);
    }
  }

  /// Whether the fragment's window is open after the last step.
  [[nodiscard]] bool closes(const PlannedFragment& fragment) const {
    return input_.closes_always ||
           (input_.final_sync == FinalSync::kFull && input_.steps % input_.H != fragment.offset);
  }

  // The closing round: fragments with an open window, together, and awaited.
  void close() {
    const std::vector<PathTime> begin = now_;
    const double payload = exchange_.payload_bytes();
    const double wire = exchange_.wire_bytes();
    std::vector<std::size_t> open;
    std::vector<std::int64_t> elements;
    for (std::size_t p = 0; p < input_.fragments.size(); ++p) {
      if (!closes(input_.fragments[p])) continue;
      open.push_back(p);
      elements.push_back(input_.fragments[p].elements);
    }
    closing_.rounds = static_cast<std::int64_t>(open.size());
    rounds_ += closing_.rounds;
    if (alone()) return;
    const std::vector<PathTime> whole = exchange_.exchange_together(elements, begin);
    if (input_.commit_every > 0) remember_whole(whole);
    for (const std::size_t p : open) {
      std::vector<PathTime> known = whole;
      if (input_.commit_every == 0) {
        known = exchange_.commit(whole);
      } else if (p == open.back()) {
        known = exchange_.commit(whole_so_far_);
      }
      put_in_flight(p, played_, played_, begin, std::move(known));
    }
    apply_due(played_);
    closing_.payload_bytes = static_cast<std::uint64_t>(exchange_.payload_bytes() - payload);
    closing_.wire_bytes = static_cast<std::uint64_t>(exchange_.wire_bytes() - wire);
    closing_.seconds = latest(now_) - latest(begin);
  }

  [[nodiscard]] static double latest(const std::vector<PathTime>& times) {
    double at = 0;
    for (const PathTime& time : times) at = std::max(at, time.at);
    return at;
  }

  const PredictionInput& input_;
  RoundTimes* const times_;  // of single rounds at the observer; null: nobody asks
  const std::size_t observer_;
  ExchangeModel exchange_;
  std::vector<PathTime> now_;
  std::vector<double> computed_;
  std::vector<PathTime> whole_so_far_;
  std::deque<InFlight> in_flight_;
  std::int64_t rounds_ = 0;
  ClosingCost closing_;
  std::int64_t done_ = 0;               // steps played so far
  std::int64_t played_ = input_.steps;  // of them in all: the run's, without the repeated ones
  double payload_bytes_ = 0;            // of the repeated ones
  double wire_bytes_ = 0;
};

void check(const PredictionInput& input) {
  ISTHMUS_CHECK(input.workers >= 1, input.workers);
  ISTHMUS_CHECK(input.steps >= 0, input.steps);
  ISTHMUS_CHECK(input.H >= 1, input.H);
  ISTHMUS_CHECK(input.overlap >= 0, input.overlap);
  ISTHMUS_CHECK(input.overlap < input.H, input.overlap, input.H);
  ISTHMUS_CHECK(input.codec != nullptr);
  ISTHMUS_CHECK(static_cast<bool>(input.step_time));
}

double one_round_s(const PredictionInput& input) {
  std::int64_t largest = 0;
  for (const PlannedFragment& fragment : input.fragments) {
    largest = std::max(largest, fragment.elements);
  }
  if (input.workers == 1) {
    return 0;
  }
  ExchangeModel model(input);
  std::vector<PathTime> whole =
      model.exchange(largest, std::vector<PathTime>(static_cast<std::size_t>(input.workers)));
  double end = 0;
  for (const PathTime& time : input.commit_every <= 1 ? model.commit(whole) : whole) {
    end = std::max(end, time.at);
  }
  return end;
}

}  // namespace
}  // namespace plan

Prediction predict(const PredictionInput& input) {
  plan::check(input);
  plan::RunModel model(input);
  model.run();
  std::size_t last = 0;
  double utilisation = 0;
  for (std::size_t w = 0; w < model.ends().size(); ++w) {
    last = model.ends()[w].at > model.ends()[last].at ? w : last;
    utilisation += model.ends()[w].at > 0 ? model.computed()[w] / model.ends()[w].at : 1;
  }
  const auto workers = static_cast<double>(input.workers);
  const double scale = input.link.byte_scale / workers;
  Prediction prediction{
      .terms = plan::terms_of(input, model.ends()[last], model.computed()[last], model.rounds()),
      .predicted_s = model.ends()[last].at,
      .compute_s = model.computed()[last],
      .utilisation = utilisation / workers,
      .rounds = model.rounds(),
      .round_s = plan::one_round_s(input)};
  prediction.payload_bytes =
      static_cast<std::uint64_t>(std::llround(model.payload_bytes() * scale));
  prediction.wire_bytes = static_cast<std::uint64_t>(std::llround(model.wire_bytes() * scale));
  prediction.closing = model.closing();
  for (std::uint64_t* const bytes :
       {&prediction.closing.payload_bytes, &prediction.closing.wire_bytes}) {
    *bytes = static_cast<std::uint64_t>(std::llround(static_cast<double>(*bytes) * scale));
  }
  return prediction;
}

RoundTimes predict_rounds(const PredictionInput& input, WorkerId observer) {
  plan::check(input);
  ISTHMUS_CHECK(observer.value() >= 0, observer.value());
  ISTHMUS_CHECK(observer.value() < input.workers, observer.value(), input.workers);
  RoundTimes times;
  plan::RunModel(input, &times, observer).run();
  return times;
}

Prediction one_after_another(const Prediction& first, const Prediction& second) {
  Prediction both = second;
  for (const PredictionTerm& term : first.terms) {
    const auto same = std::ranges::find_if(
        both.terms, [&](const PredictionTerm& each) { return each.name == term.name; });
    if (same == both.terms.end()) {
      both.terms.push_back(term);
    } else {
      same->formula = term.formula + "; then " + same->formula;
      same->seconds += term.seconds;
    }
  }
  both.predicted_s += first.predicted_s;
  both.compute_s += first.compute_s;
  both.utilisation =
      both.predicted_s > 0
          ? (first.utilisation * first.predicted_s + second.utilisation * second.predicted_s) /
                both.predicted_s
          : 1;
  both.rounds += first.rounds;
  both.round_s = std::max(first.round_s, second.round_s);
  both.payload_bytes += first.payload_bytes;
  both.wire_bytes += first.wire_bytes;
  return both;
}

}  // namespace isthmus
