// SPDX-License-Identifier: Apache-2.0
#include "inner/model/schedule.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include "core/base/check.h"
#include "isthmus/errors.h"

namespace isthmus {
namespace {

/// Where `t` lies between `begin` and `end`, in [0, 1]; 1 for an empty interval that t has passed.
double progress(double t, double begin, double end) {
  if (t <= begin) return 0;
  return t >= end ? 1 : (t - begin) / (end - begin);
}

double cosine_between(double from, double to, double u) {
  return to + (from - to) * 0.5 * (1 + std::cos(std::numbers::pi * u));
}

}  // namespace

LearningRateSchedule::Kind LearningRateSchedule::parse(const std::string& name) {
  if (name == "constant") return Kind::kConstant;
  if (name == "linear") return Kind::kLinear;
  if (name == "cosine") return Kind::kCosine;
  if (name == "wsd") return Kind::kWsd;
  if (name == "infinite") return Kind::kInfinite;
  if (name == "inverse-sqrt") return Kind::kInverseSqrt;
  throw ConfigError(fmt::format(
      "inner.schedule = \"{}\": must be constant, linear, cosine, wsd, infinite or inverse-sqrt",
      name));
}

LearningRateSchedule::LearningRateSchedule(const InnerConfig& config, std::int64_t total_steps)
    : kind_(parse(config.schedule)),
      peak_(config.lr),
      floor_(config.floor),
      warmup_(static_cast<double>(config.warmup.resolve(total_steps))),
      decay_(static_cast<double>(config.decay.resolve(total_steps))),
      cycle_begins_{1},
      total_steps_(total_steps) {
  if (kind_ == Kind::kInfinite && floor_ <= 0) {
    throw ConfigError(fmt::format(
        "inner.floor = {}: must be > 0 with inner.schedule = \"infinite\" (its last phase is "
        "exponential)",
        floor_));
  }
  if (has_last_phase()) {
    if (config.decay.fraction.value_or(static_cast<double>(config.decay.steps)) <= 0) {
      throw ConfigError(
          fmt::format("inner.decay = 0: must be > 0 with inner.schedule = \"{}\" (its last phase)",
                      config.schedule));
    }
    decay_ = std::max(decay_, 1.0);  // a small share of a short run
  }
  for (const StepCount& point : config.rewarm) {
    const std::int64_t begin = point.resolve(total_steps);
    if (begin > 1) cycle_begins_.push_back(begin);
  }
  std::sort(cycle_begins_.begin(), cycle_begins_.end());
  cycle_begins_.erase(std::unique(cycle_begins_.begin(), cycle_begins_.end()), cycle_begins_.end());
  check_cycles();
}

bool LearningRateSchedule::has_last_phase() const {
  return kind_ == Kind::kWsd || kind_ == Kind::kInfinite;
}

void LearningRateSchedule::check_cycles() const {
  // A single cycle shorter than its warm-up is a run cut short and stays well defined.
  if (!has_last_phase() && cycle_begins_.size() == 1) return;
  const int decays = kind_ == Kind::kInfinite ? 2 : kind_ == Kind::kWsd ? 1 : 0;
  const double needed = warmup_ + decays * decay_;
  for (std::size_t i = 0; i < cycle_begins_.size(); ++i) {
    const std::int64_t begin = cycle_begins_[i];
    if (begin > total_steps_) {
      throw ConfigError(fmt::format("inner.rewarm holds {}: the run has only {} steps; remove it",
                                    begin, total_steps_));
    }
    const std::int64_t end = i + 1 < cycle_begins_.size() ? cycle_begins_[i + 1] : total_steps_ + 1;
    if (static_cast<double>(end - begin) < needed) {
      throw ConfigError(fmt::format(
          "inner.{}: the {} steps from step {} on cannot hold warmup = {}{}; shorten these phases "
          "or move the re-warm points",
          decays > 0 ? "decay" : "rewarm", end - begin, begin, warmup_,
          decays == 0 ? std::string()
          : decays == 1
              ? fmt::format(" and decay = {}", decay_)
              : fmt::format(" and twice decay = {} (to the level, and at the end)", decay_)));
    }
  }
}

double LearningRateSchedule::at(StepIndex t) const {
  ISTHMUS_CHECK(t.value() >= 1, t.value());
  const auto next = std::upper_bound(cycle_begins_.begin(), cycle_begins_.end(), t.value());
  const std::int64_t begin = *(next - 1);
  const std::int64_t end = next == cycle_begins_.end() ? total_steps_ + 1 : *next;
  const double step = static_cast<double>(t.value() - begin + 1);
  const double warm = warmup_ >= 1 ? std::min(1.0, step / warmup_) : 1.0;
  return peak_ * warm * share(step, static_cast<double>(end - begin));
}

double LearningRateSchedule::share(double t, double cycle) const {
  const double warm = std::max(warmup_, 1.0);
  const double last_phase = cycle - decay_;
  switch (kind_) {
    case Kind::kConstant:
      return 1;
    case Kind::kLinear:
      return 1 - (1 - floor_) * progress(t, warm, cycle);
    case Kind::kCosine:
      return cosine_between(1, floor_, progress(t, warm, cycle));
    case Kind::kWsd:
      return 1 - (1 - floor_) * progress(t, last_phase, cycle);
    case Kind::kInfinite: {
      const double level = (1 + floor_) / 2;
      if (t > last_phase) {
        return level * std::pow(floor_ / level, progress(t, last_phase, cycle));
      }
      return cosine_between(1, level, progress(t, warm, warm + decay_));
    }
    case Kind::kInverseSqrt:
      return std::sqrt(warm / std::max(t, warm));
  }
  ISTHMUS_CHECK(false, "kind");
  return 0;
}

}  // namespace isthmus
