// SPDX-License-Identifier: Apache-2.0
#include "inner/model/optimizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/base/check.h"
#include "core/base/log.h"
#include "isthmus/errors.h"
#include "kernels/muon.h"
#include "kernels/optimizer.h"

namespace isthmus {
namespace {
constexpr const char* kMomentNames[] = {"moment1", "moment2"};

enum class Rule { kAdamW, kSgd, kMuon };

Rule rule_of(const InnerConfig& config) {
  if (config.optimizer == "adamw") return Rule::kAdamW;
  if (config.optimizer == "sgd") return Rule::kSgd;
  if (config.optimizer == "muon") return Rule::kMuon;
  throw ConfigError(
      fmt::format("inner.optimizer = \"{}\": must be adamw, sgd or muon", config.optimizer));
}

bool takes_muon(const InnerConfig& config, const TensorInfo& tensor) {
  return rule_of(config) == Rule::kMuon && tensor.hidden_matrix();
}

CanonicalRange all_of(const ModelLayout& layout) { return {0, layout.elements()}; }

std::int64_t first_moments(const InnerConfig& config, std::int64_t elements) {
  return rule_of(config) == Rule::kSgd && config.momentum == 0 ? 0 : elements;
}

std::int64_t second_moments(const InnerConfig& config, const ModelLayout& layout,
                            CanonicalRange elements) {
  if (rule_of(config) == Rule::kSgd) return 0;
  std::int64_t values = elements.size();
  for (const TensorInfo& tensor : layout.tensors()) {
    if (takes_muon(config, tensor)) values -= common(tensor.elements, elements).size();
  }
  return values;
}

/// torch.optim.Muon's adjust_lr_fn. It takes rows for the outputs, as in torch's Linear; GPT-2's
/// matrices are stored (in, out), and here the same layer has the same factor however it is stored.
double update_scale(const InnerConfig& config, double out, double in) {
  if (config.adjust_lr == "original") return std::sqrt(std::max(1.0, out / in));
  if (config.adjust_lr == "match_rms_adamw") return 0.2 * std::sqrt(std::max(out, in));
  if (config.adjust_lr == "spectral_norm") return std::sqrt(out / in);
  throw ConfigError(
      fmt::format("inner.adjust_lr = \"{}\": must be original, match_rms_adamw or spectral_norm",
                  config.adjust_lr));
}
}  // namespace

std::optional<MuonMatrix> muon_matrix(const InnerConfig& config, const ModelLayout& layout,
                                      const TensorInfo& tensor) {
  if (!takes_muon(config, tensor)) return std::nullopt;
  const auto rows = static_cast<double>(tensor.shape[0]);
  const auto cols = static_cast<double>(tensor.shape[1]);
  const bool stored_in_out = layout.shape().architecture == Architecture::kGpt2;
  return MuonMatrix{.rows = tensor.shape[0],
                    .cols = tensor.shape[1],
                    .update_scale = stored_in_out ? update_scale(config, cols, rows)
                                                  : update_scale(config, rows, cols)};
}

std::int64_t InnerOptimizer::moment_values(const InnerConfig& config, const ModelLayout& layout) {
  return first_moments(config, layout.elements()) + second_moments(config, layout, all_of(layout));
}

std::int64_t InnerOptimizer::moment_values(const InnerConfig& config, std::int64_t elements) {
  return first_moments(config, elements) + (rule_of(config) == Rule::kSgd ? 0 : elements);
}

InnerOptimizer::InnerOptimizer(const InnerConfig& config, const ModelLayout& layout)
    : InnerOptimizer(config, layout, all_of(layout)) {}

InnerOptimizer::InnerOptimizer(const InnerConfig& config, const ModelLayout& layout,
                               CanonicalRange elements)
    : config_(config),
      elements_(elements),
      first_values_(first_moments(config, elements.size())),
      second_values_(second_moments(config, layout, elements)),
      moments_(static_cast<std::size_t>(first_values_ + second_values_)) {
  std::int64_t second = 0;
  for (const TensorInfo& tensor : layout.tensors()) {
    const double decay = tensor.decay() ? config.weight_decay : 0.0;
    const CanonicalRange own = common(tensor.elements, elements);
    if (own.size() == 0) continue;
    if (const std::optional<MuonMatrix> matrix = muon_matrix(config, layout, tensor)) {
      ISTHMUS_CHECK(own.size() == tensor.elements.size(), own.begin, own.end);
      runs_.push_back({.elements = tensor.elements,
                       .weight_decay = decay,
                       .rows = matrix->rows,
                       .update_scale = matrix->update_scale});
      continue;
    }
    if (!runs_.empty() && runs_.back().rows == 0 && runs_.back().weight_decay == decay) {
      runs_.back().elements.end = own.end;
    } else {
      runs_.push_back({.elements = own, .weight_decay = decay, .second = second});
    }
    second += own.size();
  }
  cut_runs();
}

// A multiple of the kernels' blocks, so that the cuts are none of arithmetic.
void InnerOptimizer::cut_runs() {
  constexpr std::int64_t kLongest = std::int64_t{1} << 21;
  std::vector<Run> parts;
  for (const Run& run : runs_) {
    if (run.rows != 0) {
      parts.push_back(run);
      continue;
    }
    for (std::int64_t at = run.elements.begin; at < run.elements.end; at += kLongest) {
      parts.push_back(run);
      parts.back().elements = {at, std::min(run.elements.end, at + kLongest)};
      parts.back().second += at - run.elements.begin;
    }
  }
  runs_ = std::move(parts);
}

std::span<float> InnerOptimizer::moment(int index) const {
  float* const first = moments_.data();
  if (index == 0) return {first, static_cast<std::size_t>(first_values_)};
  return {first + first_values_, static_cast<std::size_t>(second_values_)};
}

void check_adamw(const InnerConfig& config) {
  if (config.optimizer == "adamw") return;
  throw ConfigError(
      fmt::format("inner.optimizer = \"{}\": methods that exchange Adam's momentum need "
                  "\"adamw\"; choose it, "
                  "or another outer.method",
                  config.optimizer));
}

AdamMoments InnerOptimizer::adam_moments(CanonicalRange elements) const {
  check_adamw(config_);
  const auto begin = static_cast<std::size_t>(elements.begin - elements_.begin);
  const auto size = static_cast<std::size_t>(elements.size());
  return {moment(0).subspan(begin, size), moment(1).subspan(begin, size)};
}

void InnerOptimizer::reset(std::int64_t updates) {
  updates_ = updates;
  moments_.fill_zero();
}

void InnerOptimizer::update(kernels::ThreadTeam& team, double lr, double gradient_scale,
                            std::span<float> values, std::span<const float> gradients) {
  ISTHMUS_CHECK(static_cast<std::int64_t>(values.size()) == elements_.size(), values.size());
  ISTHMUS_CHECK(static_cast<std::int64_t>(gradients.size()) == elements_.size(), gradients.size());
  ++updates_;
  const auto visit = [&](const Run& run, const StateWalk::Visit& visit_values) {
    const auto begin = static_cast<std::size_t>(run.elements.begin - elements_.begin);
    const auto size = static_cast<std::size_t>(run.elements.size());
    visit_values(values.subspan(begin, size), StateUse::kWrite);
    visit_values(gradients.subspan(begin, size), StateUse::kRead);
    if (first_values_ != 0) visit_values(moment(0).subspan(begin, size), StateUse::kWrite);
    if (second_values_ == 0 || run.rows != 0) return;
    visit_values(moment(1).subspan(static_cast<std::size_t>(run.second), size), StateUse::kWrite);
  };
  if (runs_.empty()) return;  // an empty slice
  visit(runs_.front(), state_needed);
  for (std::size_t i = 0; i < runs_.size(); ++i) {
    const Run& run = runs_[i];
    if (i + 1 < runs_.size()) visit(runs_[i + 1], state_needed);
    visit(run, [](std::span<const float> part, StateUse) { state_await(part); });
    const std::int64_t first = run.elements.begin - elements_.begin;
    update_run(team, run, lr, gradient_scale, values.data() + first, gradients.data() + first);
    visit(run, state_done);
  }
}

void InnerOptimizer::update_run(kernels::ThreadTeam& team, const Run& run, double lr,
                                double gradient_scale, float* p, const float* g) {
  const std::int64_t n = run.elements.size();
  float* const first =
      first_values_ == 0 ? nullptr : moment(0).data() + (run.elements.begin - elements_.begin);
  if (run.rows != 0) {
    kernels::muon_step(team,
                       {.lr = lr,
                        .momentum = config_.momentum,
                        .nesterov = config_.nesterov,
                        .weight_decay = run.weight_decay,
                        .update_scale = run.update_scale,
                        .gradient_scale = gradient_scale},
                       run.rows, n / run.rows, p, g, first);
  } else if (rule_of(config_) == Rule::kSgd) {
    kernels::sgd_step<float>(team,
                             {.lr = lr,
                              .momentum = config_.momentum,
                              .nesterov = config_.nesterov,
                              .weight_decay = run.weight_decay,
                              .first_step = updates_ == 1,
                              .gradient_scale = gradient_scale},
                             n, p, g, first);
  } else {
    kernels::adamw_step<float>(team,
                               {.lr = lr,
                                .beta1 = config_.beta1,
                                .beta2 = config_.beta2,
                                .eps = config_.eps,
                                .weight_decay = run.weight_decay,
                                .step = updates_,
                                .gradient_scale = gradient_scale},
                               n, p, g, first, moment(1).data() + run.second);
  }
}

void InnerOptimizer::save(StateWriter& writer) const {
  save_updates(writer, config_, updates_);
  for (const int i : {0, 1}) {
    if (!moment(i).empty()) save_moment(writer, i, moment(i));
  }
}

void InnerOptimizer::load(StateReader& reader) {
  updates_ = load_updates(reader, config_);
  for (const int i : {0, 1}) {
    if (!moment(i).empty()) load_moment(reader, i, moment(i));
  }
}

bool is_of_another_trainer(StateReader& reader) {
  if (reader.contains("optimizer")) return false;
  log_warning(
      "the state that this site begins with is of a site with another trainer: what the optimizer "
      "holds begins anew");
  return true;
}

void save_updates(StateWriter& writer, const InnerConfig& config, std::int64_t updates) {
  writer.text("optimizer", config.optimizer);
  writer.integer("updates", updates);
}

void save_moment(StateWriter& writer, int index, std::span<const float> values) {
  writer.tensor(kMomentNames[index], values);
}

std::int64_t load_updates(StateReader& reader, const InnerConfig& config) {
  const std::string stored = reader.text("optimizer");
  if (stored != config.optimizer) {
    throw RunError(fmt::format(
        "checkpoint holds the state of optimizer {}, the configuration asks for {}: resume with "
        "inner.optimizer = \"{}\"",
        stored, config.optimizer, stored));
  }
  const std::int64_t updates = reader.integer("updates");
  if (updates < 0) {
    throw RunError(fmt::format("checkpoint: {} optimizer updates: must not be negative", updates));
  }
  return updates;
}

void load_moment(StateReader& reader, int index, std::span<float> values) {
  reader.tensor(kMomentNames[index], values);
}

}  // namespace isthmus
