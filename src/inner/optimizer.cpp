// SPDX-License-Identifier: Apache-2.0
#include "inner/optimizer.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/check.h"
#include "isthmus/errors.h"
#include "kernels/optimizer.h"

namespace isthmus {
namespace {
constexpr double kClipEpsilon = 1e-6;
constexpr const char* kMomentNames[] = {"moment1", "moment2"};

std::size_t bytes_of(std::int64_t elements, int arrays) {
  return static_cast<std::size_t>(elements) * static_cast<std::size_t>(arrays) * sizeof(float);
}
}  // namespace

double clip_coefficient(double clip, double norm) {
  return clip == 0 ? 1.0 : std::min(1.0, clip / (norm + kClipEpsilon));
}

int InnerOptimizer::moments(const InnerConfig& config) {
  if (config.optimizer == "adamw") return 2;
  if (config.optimizer == "sgd") return config.momentum == 0 ? 0 : 1;
  throw ConfigError(
      fmt::format("inner.optimizer = \"{}\": must be adamw or sgd", config.optimizer));
}

InnerOptimizer::InnerOptimizer(const InnerConfig& config, const ModelLayout& layout)
    : config_(config),
      elements_(layout.elements()),
      moments_(bytes_of(layout.elements(), moments(config))) {
  for (const TensorInfo& tensor : layout.tensors()) {
    const double decay = tensor.decay() ? config.weight_decay : 0.0;
    if (!runs_.empty() && runs_.back().weight_decay == decay) {
      runs_.back().elements.end = tensor.elements.end;
    } else {
      runs_.push_back({tensor.elements, decay});
    }
  }
  reset();
}

std::span<float> InnerOptimizer::moment(int index) const {
  return {static_cast<float*>(moments_.data()) + index * elements_,
          static_cast<std::size_t>(elements_)};
}

void InnerOptimizer::reset() {
  updates_ = 0;
  const auto count = elements_ * moments(config_);
  std::fill_n(static_cast<float*>(moments_.data()), count, 0.0f);
}

void InnerOptimizer::update(kernels::ThreadTeam& team, double lr, double gradient_scale,
                            std::span<float> values, std::span<const float> gradients) {
  ISTHMUS_CHECK(static_cast<std::int64_t>(values.size()) == elements_, values.size());
  ISTHMUS_CHECK(static_cast<std::int64_t>(gradients.size()) == elements_, gradients.size());
  ++updates_;
  const int kept = moments(config_);
  for (const Run& run : runs_) {
    const std::int64_t at = run.elements.begin;
    const std::int64_t n = run.elements.size();
    float* const p = values.data() + at;
    const float* const g = gradients.data() + at;
    if (config_.optimizer == "adamw") {
      kernels::adamw_step<float>(team,
                                 {.lr = lr,
                                  .beta1 = config_.beta1,
                                  .beta2 = config_.beta2,
                                  .eps = config_.eps,
                                  .weight_decay = run.weight_decay,
                                  .step = updates_,
                                  .gradient_scale = gradient_scale},
                                 n, p, g, moment(0).data() + at, moment(1).data() + at);
    } else {
      kernels::sgd_step<float>(team,
                               {.lr = lr,
                                .momentum = config_.momentum,
                                .nesterov = config_.nesterov,
                                .weight_decay = run.weight_decay,
                                .first_step = updates_ == 1,
                                .gradient_scale = gradient_scale},
                               n, p, g, kept == 0 ? nullptr : moment(0).data() + at);
    }
  }
}

void InnerOptimizer::save(StateWriter& writer) const {
  writer.text("optimizer", config_.optimizer);
  writer.integer("updates", updates_);
  for (int i = 0; i < moments(config_); ++i) writer.tensor(kMomentNames[i], moment(i));
}

void InnerOptimizer::load(StateReader& reader) {
  const std::string stored = reader.text("optimizer");
  if (stored != config_.optimizer) {
    throw RunError(fmt::format(
        "checkpoint holds the state of optimizer {}, the configuration asks for {}: resume with "
        "inner.optimizer = \"{}\"",
        stored, config_.optimizer, stored));
  }
  updates_ = reader.integer("updates");
  if (updates_ < 0) {
    throw RunError(fmt::format("checkpoint: {} optimizer updates: must not be negative", updates_));
  }
  for (int i = 0; i < moments(config_); ++i) reader.tensor(kMomentNames[i], moment(i));
}

}  // namespace isthmus
