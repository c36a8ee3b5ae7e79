// SPDX-License-Identifier: Apache-2.0
// A mean along a ring on links (transport/exchange/ring/ring_plan.h). A part goes round as sums,
// then as the mean; frames get onto a link as they become ready, whichever they are.
#include <algorithm>
#include <map>
#include <utility>

#include "plan/exchange_model.h"
#include "plan/exchange_ways.h"
#include "transport/wire/frame.h"

namespace isthmus::plan {

class ExchangeModel::AlongRing {
 public:
  AlongRing(ExchangeModel& model, const RingPlan& plan, std::span<const PathTime> begin,
            std::vector<PathTime>& whole)
      : model_(model), plan_(plan), begin_(begin), whole_(whole) {}

  void run() {
    for (std::size_t k = 0; k < plan_.cut.parts.size(); ++k) {
      for (std::size_t m = 0; m < model_.workers_; ++m) {
        if (plan_.begins_sum(k, static_cast<int>(m))) pass_on(k, m, begin_[m]);
      }
    }
    while (!waiting_.empty()) {
      const Frame frame = waiting_.extract(waiting_.begin()).mapped();
      const PathTime there =
          model_.send_data(frame.from, frame.to, frame.ready, plan_.cut.parts[frame.part].bytes,
                           kFrameOverheadBytes);
      frame.mean ? take_mean(frame.part, frame.to, there)
                 : pass_on(frame.part, frame.to, later(begin_[frame.to], there));
    }
  }

 private:
  struct Frame {
    bool mean = false;
    std::size_t part = 0, from = 0, to = 0;
    PathTime ready;
  };
  void queue(Frame frame) {
    const double at = frame.ready.at;
    waiting_.emplace(at, std::move(frame));
  }

  void pass_on(std::size_t k, std::size_t m, const PathTime& ready) {
    if (plan_.root(k) == static_cast<int>(m)) {
      take_mean(k, m, ready);
    } else {
      queue({false, k, m, next_of(m), ready});
    }
  }

  void take_mean(std::size_t k, std::size_t m, const PathTime& at) {
    whole_[m] = later(whole_[m], at);
    if (plan_.passes_mean(k, static_cast<int>(m))) queue({true, k, m, next_of(m), at});
  }

  [[nodiscard]] std::size_t next_of(std::size_t m) const {
    return static_cast<std::size_t>(plan_.next_of(static_cast<int>(m)));
  }

  ExchangeModel& model_;
  const RingPlan& plan_;
  std::span<const PathTime> begin_;
  std::vector<PathTime>& whole_;
  std::multimap<double, Frame> waiting_;  // of equal times in the order in which they came
};

std::vector<PathTime> ExchangeModel::exchange_along(const RingPlan& plan,
                                                    std::span<const PathTime> begin) {
  std::vector<PathTime> whole(begin.begin(), begin.end());
  AlongRing(*this, plan, begin, whole).run();
  return whole;
}

}  // namespace isthmus::plan

namespace isthmus {

double predict_round_along(const PredictionInput& input, const RingPlan& plan) {
  plan::ExchangeModel model(input);
  const std::vector<plan::PathTime> begin(static_cast<std::size_t>(input.workers));
  double seconds = 0;
  for (const plan::PathTime& each : model.commit(model.exchange_along(plan, begin))) {
    seconds = std::max(seconds, each.at);
  }
  return seconds;
}

}  // namespace isthmus
