// SPDX-License-Identifier: Apache-2.0
// A mean along rings or trees on links (transport/exchange/tree/tree_plan.h). A part goes up as
// sums and down as the mean; frames get onto a link as they become ready, whichever way they go.
#include <algorithm>
#include <map>
#include <utility>

#include "plan/exchange_model.h"
#include "plan/exchange_ways.h"
#include "transport/wire/frame.h"

namespace isthmus::plan {

class ExchangeModel::AlongTrees {
 public:
  AlongTrees(ExchangeModel& model, const TreePlan& plan, std::span<const PathTime> begin,
             std::vector<PathTime>& whole)
      : model_(model), plan_(plan), whole_(whole), sums_(plan.cut.parts.size() * begin.size()) {
    for (std::size_t k = 0; k < plan_.cut.parts.size(); ++k) {
      for (std::size_t m = 0; m < begin.size(); ++m) {
        sum(k, m) = {plan_.tree(k).children(static_cast<int>(m)).size(), begin[m]};
      }
    }
  }

  void run() {
    for (std::size_t k = 0; k < plan_.cut.parts.size(); ++k) {
      for (std::size_t m = 0; m < model_.workers_; ++m) {
        if (sum(k, m).missing == 0) pass_on(k, m);
      }
    }
    while (!waiting_.empty()) {
      const Frame frame = waiting_.extract(waiting_.begin()).mapped();
      const PathTime there =
          model_.send_data(frame.from, frame.to, frame.ready, plan_.cut.parts[frame.part].bytes,
                           kFrameOverheadBytes);
      frame.mean ? take_mean(frame.part, frame.to, there) : take_sum(frame.part, frame.to, there);
    }
  }

 private:
  struct Frame {
    bool mean = false;
    std::size_t part = 0, from = 0, to = 0;
    PathTime ready;
  };
  struct Sum {
    std::size_t missing = 0;  // children
    PathTime ready;
  };

  Sum& sum(std::size_t k, std::size_t m) { return sums_[k * model_.workers_ + m]; }

  void queue(Frame frame) {
    const double at = frame.ready.at;
    waiting_.emplace(at, std::move(frame));
  }

  void take_sum(std::size_t k, std::size_t m, const PathTime& at) {
    sum(k, m).ready = later(sum(k, m).ready, at);
    if (--sum(k, m).missing == 0) pass_on(k, m);
  }

  void pass_on(std::size_t k, std::size_t m) {
    const int up = plan_.tree(k).up[m];
    if (up < 0) {
      take_mean(k, m, sum(k, m).ready);
    } else {
      queue({false, k, m, static_cast<std::size_t>(up), sum(k, m).ready});
    }
  }

  void take_mean(std::size_t k, std::size_t m, const PathTime& at) {
    whole_[m] = later(whole_[m], at);
    for (const int to : plan_.tree(k).followers(static_cast<int>(m))) {
      queue({true, k, m, static_cast<std::size_t>(to), at});
    }
  }

  ExchangeModel& model_;
  const TreePlan& plan_;
  std::vector<PathTime>& whole_;
  std::vector<Sum> sums_;                 // [part][member]
  std::multimap<double, Frame> waiting_;  // of equal times in the order in which they came
};

std::vector<PathTime> ExchangeModel::exchange_along(const TreePlan& plan,
                                                    std::span<const PathTime> begin) {
  std::vector<PathTime> whole(begin.begin(), begin.end());
  AlongTrees(*this, plan, begin, whole).run();
  return whole;
}

}  // namespace isthmus::plan

namespace isthmus {

double predict_round_along(const PredictionInput& input, const TreePlan& plan) {
  plan::ExchangeModel model(input);
  const std::vector<plan::PathTime> begin(static_cast<std::size_t>(input.workers));
  double seconds = 0;
  for (const plan::PathTime& each : model.commit(model.exchange_along(plan, begin))) {
    seconds = std::max(seconds, each.at);
  }
  return seconds;
}

}  // namespace isthmus
