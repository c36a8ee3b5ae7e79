// SPDX-License-Identifier: Apache-2.0
#include "plan/utilisation.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/base/check.h"
#include "plan/utilisation_latency.h"

namespace isthmus {
namespace {

constexpr std::int64_t kMeasuredSteps = 300;  // at least; whole periods

/// Reductions of one send, on the link or done, that a forward pass will wait for.
struct Flight {
  std::int64_t awaited = 0;  // by the forward pass of this step
  const UtilisationSchedule::Send* send = nullptr;
  std::vector<double> done;  // of each share
};

/// Walks the graph step by step; steps in which nothing is sent or awaited are one jump.
class EventGraph {
 public:
  EventGraph(const UtilisationModel& model, const UtilisationSchedule& schedule, double bits_per_s,
             double latency_s)
      : model_(model),
        schedule_(schedule),
        node_s_(model.step_s / (3.0 * model.layers)),
        whole_model_s_(model.parameters * schedule.bits / bits_per_s),
        latency_s_(latency_s),
        flights_(2 * schedule.sends.size() + 1) {}

  /// Takes all steps before `step`.
  void run_until(std::int64_t step) {
    while (step_ < step) {
      const std::int64_t next = std::min({step, next_send_step(), next_awaited_step()});
      if (step_ < next) {
        now_ += static_cast<double>(next - step_) * step_s();
        step_ = next;
        continue;
      }
      forward();
      backward();
      ++step_;
    }
  }

  [[nodiscard]] double now() const { return now_; }
  /// Seconds that the nodes of a step take: one less than three a layer.
  [[nodiscard]] double step_s() const { return (3.0 * model_.layers - 1) * node_s_; }
  /// Seconds on the link of all that is due in a period.
  [[nodiscard]] double period_on_link_s() const {
    double shares = 0;
    for (const UtilisationSchedule::Send& each : schedule_.sends) {
      for (const LayerShare& part : each.shares) shares += part.share;
    }
    return shares * whole_model_s_;
  }

 private:
  [[nodiscard]] std::int64_t next_send_step() const {
    return schedule_.sends.empty() ? std::numeric_limits<std::int64_t>::max()
                                   : periods_sent_ * schedule_.period + send().step;
  }
  [[nodiscard]] std::int64_t next_awaited_step() const {
    return in_flight_ == 0 ? std::numeric_limits<std::int64_t>::max() : oldest().awaited;
  }
  [[nodiscard]] const UtilisationSchedule::Send& send() const {
    return schedule_.sends[next_send_];
  }
  [[nodiscard]] const Flight& oldest() const { return flights_[first_flight_]; }

  void forward() {
    // Layer l begins l nodes after the pass does, or the pass is put off by so much.
    double begin = now_;
    while (next_awaited_step() == step_) {
      for (std::size_t i = 0; i < oldest().done.size(); ++i) {
        begin = std::max(begin, oldest().done[i] - oldest().send->shares[i].layer * node_s_);
      }
      first_flight_ = (first_flight_ + 1) % flights_.size();
      --in_flight_;
    }
    now_ = begin + model_.layers * node_s_;
  }

  void backward() {
    if (next_send_step() == step_) {
      Flight& flight = flights_[(first_flight_ + in_flight_) % flights_.size()];
      ISTHMUS_CHECK(in_flight_ < flights_.size(), in_flight_);
      ++in_flight_;
      flight.awaited = step_ + 1 + schedule_.overlap;
      flight.send = &send();
      flight.done.clear();
      for (const LayerShare& part : send().shares) {
        link_free_ = std::max(link_free_, now_ + parameters_done(part.layer) * node_s_) +
                     part.share * whole_model_s_;
        flight.done.push_back(link_free_ + latency_s_);
      }
      ++next_send_;
      if (next_send_ == schedule_.sends.size()) {
        next_send_ = 0;
        ++periods_sent_;
      }
    }
    now_ += (2.0 * model_.layers - 1) * node_s_;
  }

  /// Nodes of a backward pass up to the end of a layer's backward for parameters.
  [[nodiscard]] double parameters_done(int layer) const {
    return layer > 0 ? 2.0 * (model_.layers - layer) : 2.0 * model_.layers - 1;
  }

  const UtilisationModel& model_;
  const UtilisationSchedule& schedule_;
  double node_s_;
  double whole_model_s_;  // on the link
  double latency_s_;      // of a reduction, after that
  double now_ = 0;
  double link_free_ = 0;
  std::int64_t step_ = 0;
  std::size_t next_send_ = 0;
  std::int64_t periods_sent_ = 0;
  std::vector<Flight> flights_;  // a ring, oldest first
  std::size_t first_flight_ = 0;
  std::size_t in_flight_ = 0;
};

}  // namespace

double compute_utilisation(const UtilisationModel& model, const UtilisationSchedule& schedule,
                           double bits_per_s, double latency_s) {
  ISTHMUS_CHECK(model.layers >= 1, model.layers);
  ISTHMUS_CHECK(schedule.period >= 1, schedule.period);
  ISTHMUS_CHECK(schedule.overlap >= 0, schedule.overlap);
  ISTHMUS_CHECK(schedule.overlap <= schedule.period, schedule.overlap, schedule.period);
  ISTHMUS_CHECK(bits_per_s > 0, bits_per_s);
  ISTHMUS_CHECK(latency_s >= 0, latency_s);
  EventGraph graph(model, schedule, bits_per_s, latency_s);
  // Two periods until what was sent in the first one has been awaited.
  const std::int64_t warm_up = 2;
  const std::int64_t measured = (kMeasuredSteps + schedule.period - 1) / schedule.period;
  graph.run_until(warm_up * schedule.period);
  const double from = graph.now();
  graph.run_until((warm_up + measured) * schedule.period);
  const double computing = static_cast<double>(measured * schedule.period) * graph.step_s();
  // A link that is a little too slow falls behind a little in each period, and a large overlap
  // hides that for longer than is walked here; in the end nobody is faster than the link.
  const double sending = static_cast<double>(measured) * graph.period_on_link_s();
  return computing / std::max(graph.now() - from, sending);
}

double compute_utilisation(const UtilisationModel& model, const UtilisationSchedule& schedule,
                           double bits_per_s) {
  return compute_utilisation(model, schedule, bits_per_s, 0);
}

std::span<const double> bandwidth_grid() {
  static const std::vector<double> grid = [] {
    constexpr int kPoints = 50;
    constexpr double kLowest = 1e8;
    constexpr double kDecades = 4;
    std::vector<double> rates(kPoints);
    for (int i = 0; i < kPoints; ++i) {
      rates[static_cast<std::size_t>(i)] = kLowest * std::pow(10, kDecades * i / (kPoints - 1));
    }
    return rates;
  }();
  return grid;
}

std::array<std::optional<double>, kUtilisationTargets.size()> bandwidth_needed(
    const UtilisationModel& model, const UtilisationSchedule& schedule, double latency_s) {
  std::array<std::optional<double>, kUtilisationTargets.size()> needed;
  for (const double rate : bandwidth_grid()) {
    const double utilisation = compute_utilisation(model, schedule, rate, latency_s);
    for (std::size_t i = 0; i < needed.size(); ++i) {
      if (utilisation < kUtilisationTargets[i]) {
        needed[i] = rate;
      }
    }
  }
  return needed;
}

std::array<std::optional<double>, kUtilisationTargets.size()> bandwidth_needed(
    const UtilisationModel& model, const UtilisationSchedule& schedule) {
  return bandwidth_needed(model, schedule, 0);
}

}  // namespace isthmus
