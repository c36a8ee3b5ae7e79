// SPDX-License-Identifier: Apache-2.0
// Inner loops whose trajectories are known in closed form, and a checkpoint held in memory.
#pragma once

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "core/base/rng.h"
#include "isthmus/errors.h"
#include "isthmus/inner_loop.h"
#include "isthmus/outer.h"
#include "isthmus/transport.h"

namespace isthmus::testing_support {

struct TensorSpec {
  int layer = kNoLayer;
  std::size_t size = 1;
};

/// SGD on f = 1/2 |x - c|^2 + noise(t) x, with one centre for all elements of a worker.
class QuadraticLoop final : public InnerLoop {
 public:
  struct Options {
    std::vector<TensorSpec> tensors = {{0, 1}};
    float start = 2;
    float center = 0;
    float lr = 0.1f;
    float noise = 0;  // scale of a gradient noise that depends on (worker, step, element)
    int worker = 0;
    bool announce = true;  // call on_ready, in backward order
    float decay = 1;  // the rate of step t is lr * decay^(t - 1), in words only: `learning_rate`
    std::int64_t tokens = 1;                       // of a step
    std::function<void(std::span<float>)> poison;  // after the update of `poisoned_step`
    std::int64_t poisoned_step = 0;
  };

  explicit QuadraticLoop(Options options) : options_(std::move(options)) {
    std::int64_t begin = 0;
    for (std::size_t i = 0; i < options_.tensors.size(); ++i) {
      const TensorSpec& spec = options_.tensors[i];
      storage_.push_back(std::make_unique<std::vector<float>>(spec.size));
      for (std::size_t k = 0; k < spec.size; ++k) {
        (*storage_.back())[k] =
            options_.start + static_cast<float>(begin + static_cast<std::int64_t>(k)) / 64;
      }
      gradients_.emplace_back(spec.size);
      first_.emplace_back(spec.size);
      second_.emplace_back(spec.size);
      const auto size = static_cast<std::int64_t>(spec.size);
      parameters_.push_back({.name = "w" + std::to_string(i),
                             .layer = spec.layer,
                             .shape = {size},
                             .elements = {begin, begin + size},
                             .values = *storage_.back()});
      begin += size;
    }
  }

  [[nodiscard]] std::span<const Parameter> parameters() const override { return parameters_; }
  InnerStep train_step(StepIndex t) override {
    const InnerStep step = gradients(t, {});
    apply_gradients(t);
    if (options_.poison && t.value() == options_.poisoned_step) {
      options_.poison(parameters_[0].values);
    }
    return step;
  }
  InnerStep gradients(StepIndex t, const GradientReady& on_ready) override {
    const Rng rng{static_cast<std::uint64_t>(options_.worker), Stream::kTestData};
    for (std::size_t left = parameters_.size(); left > 0; --left) {
      const std::size_t i = left - 1;
      for (std::size_t k = 0; k < gradients_[i].size(); ++k) {
        const auto element = static_cast<std::uint64_t>(parameters_[i].elements.begin) + k;
        const double noise =
            options_.noise == 0 ? 0
                                : rng.uniform(element, static_cast<std::uint32_t>(t.value())) - 0.5;
        gradients_[i][k] =
            parameters_[i].values[k] - options_.center + options_.noise * static_cast<float>(noise);
      }
      if (on_ready && options_.announce) {
        on_ready(i);
      }
    }
    return {.loss = 0, .grad_norm = 0, .tokens = options_.tokens};
  }
  std::span<float> gradient(std::size_t parameter) override { return gradients_[parameter]; }
  double apply_gradients(StepIndex) override {
    double norm = 0;
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      for (std::size_t k = 0; k < gradients_[i].size(); ++k) {
        const float g = gradients_[i][k];
        norm += static_cast<double>(g) * static_cast<double>(g);
        parameters_[i].values[k] -= options_.lr * g;
      }
    }
    return std::sqrt(norm);
  }
  /// f / d, d the number of elements: of the order of one whatever the size.
  InnerStep train_loss(StepIndex t, SampleShare share, const ParameterSource& source) override {
    const Rng rng{static_cast<std::uint64_t>(options_.worker), Stream::kTestData};
    double sum = 0;
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      const std::span<const float> x = source.values(i);
      for (std::size_t k = 0; k < x.size(); ++k) {
        const auto element = static_cast<std::uint64_t>(parameters_[i].elements.begin) + k;
        const auto salt = static_cast<std::uint32_t>(t.value() * 64 + share.index);
        const double noise = options_.noise == 0 ? 0 : rng.uniform(element, salt) - 0.5;
        const double offset = static_cast<double>(x[k]) - static_cast<double>(options_.center);
        sum += 0.5 * offset * offset +
               static_cast<double>(options_.noise) * noise * static_cast<double>(x[k]);
      }
    }
    const auto elements = static_cast<double>(parameters_.back().elements.end);
    return {.loss = sum / elements, .grad_norm = 0, .tokens = 1};
  }
  [[nodiscard]] double learning_rate(StepIndex t) const override {
    return static_cast<double>(options_.lr) *
           std::pow(static_cast<double>(options_.decay), static_cast<double>(t.value() - 1));
  }
  void reset_optimizer() override { ++resets_; }
  /// Zero until a method that steps by them writes them; the loop's own steps are SGD.
  [[nodiscard]] AdamSettings adam_settings() const override { return {}; }
  [[nodiscard]] AdamMoments adam_moments(std::size_t i) override { return {first_[i], second_[i]}; }
  [[nodiscard]] int resets() const { return resets_; }
  [[nodiscard]] float first() const { return (*storage_[0])[0]; }
  void set(std::span<const float> flat) {
    std::size_t at = 0;
    for (const auto& tensor : storage_) {
      std::ranges::copy(flat.subspan(at, tensor->size()), tensor->begin());
      at += tensor->size();
    }
  }
  [[nodiscard]] std::vector<float> all() const {
    std::vector<float> flat;
    for (const auto& tensor : storage_) {
      flat.insert(flat.end(), tensor->begin(), tensor->end());
    }
    return flat;
  }

 private:
  Options options_;
  int resets_ = 0;
  std::vector<std::unique_ptr<std::vector<float>>> storage_;  // addresses must not move
  std::vector<std::vector<float>> gradients_;
  std::vector<std::vector<float>> first_, second_;
  std::vector<Parameter> parameters_;
};

/// Value i falls by rate i a step, whatever it is: what a window is worth does not depend on when.
class Drift final : public InnerLoop {
 public:
  explicit Drift(float rate, std::int64_t tokens = 0) : Drift(std::vector{rate}, tokens) {}
  explicit Drift(std::vector<float> rates, std::int64_t tokens = 0)
      : rates_(std::move(rates)), tokens_(tokens), value_(rates_.size()) {
    const auto size = static_cast<std::int64_t>(value_.size());
    parameters_.push_back(
        {.name = "x", .layer = 0, .shape = {size}, .elements = {0, size}, .values = value_});
  }
  [[nodiscard]] std::span<const Parameter> parameters() const override { return parameters_; }
  InnerStep train_step(StepIndex) override {
    for (std::size_t i = 0; i < value_.size(); ++i) value_[i] -= rates_[i];
    return {.tokens = tokens_};
  }
  [[nodiscard]] double learning_rate(StepIndex) const override { return 1; }
  [[nodiscard]] float value() const { return value_[0]; }
  void set(std::span<const float> values) { std::ranges::copy(values, value_.begin()); }

 private:
  std::vector<float> rates_;
  std::int64_t tokens_;
  std::vector<float> value_;
  std::vector<Parameter> parameters_;
};

inline std::vector<float> anchors_of(const OuterStrategy& strategy, const InnerLoop& inner) {
  std::vector<float> flat;
  for (std::size_t i = 0; i < inner.parameters().size(); ++i) {
    const std::span<const float> values = strategy.values(i);
    flat.insert(flat.end(), values.begin(), values.end());
  }
  return flat;
}

/// A checkpoint in memory.
class MemoryState final : public StateWriter, public StateReader {
 public:
  void tensor(std::string_view name, std::span<const float> values) override {
    put(name, std::vector<float>(values.begin(), values.end()));
  }
  void bytes(std::string_view name, std::span<const std::byte> values) override {
    put(name, std::vector<std::byte>(values.begin(), values.end()));
  }
  void integer(std::string_view name, std::int64_t value) override { put(name, value); }
  /// As a damaged checkpoint has it.
  template <typename T>
  void overwrite(const std::string& name, T value) {
    entries_.at(name) = std::move(value);
  }
  /// Values of all tensors whose names start so.
  [[nodiscard]] std::size_t tensor_values(std::string_view prefix) const {
    std::size_t values = 0;
    for (const auto& [name, entry] : entries_) {
      if (const auto* tensor = std::get_if<std::vector<float>>(&entry);
          tensor != nullptr && name.starts_with(prefix)) {
        values += tensor->size();
      }
    }
    return values;
  }
  bool operator==(const MemoryState& other) const { return entries_ == other.entries_; }
  void real(std::string_view name, double value) override { put(name, value); }
  void text(std::string_view name, std::string_view value) override {
    put(name, std::string(value));
  }
  [[nodiscard]] bool contains(std::string_view name) const override {
    return entries_.contains(std::string(name));
  }
  void tensor(std::string_view name, std::span<float> values) override {
    const auto& saved = get<std::vector<float>>(name);
    if (saved.size() != values.size()) {
      throw RunError(std::string(name) + " has another size");
    }
    std::copy(saved.begin(), saved.end(), values.begin());
  }
  [[nodiscard]] std::vector<std::byte> bytes(std::string_view name) override {
    return get<std::vector<std::byte>>(name);
  }
  [[nodiscard]] std::int64_t integer(std::string_view name) override {
    return get<std::int64_t>(name);
  }
  [[nodiscard]] double real(std::string_view name) override { return get<double>(name); }
  [[nodiscard]] std::string text(std::string_view name) override { return get<std::string>(name); }

 private:
  using Entry =
      std::variant<std::vector<float>, std::vector<std::byte>, std::int64_t, double, std::string>;
  void put(std::string_view name, Entry entry) {
    if (!entries_.emplace(std::string(name), std::move(entry)).second) {
      throw RunError(std::string(name) + " written twice");
    }
  }
  template <typename T>
  [[nodiscard]] const T& get(std::string_view name) const {
    const auto found = entries_.find(std::string(name));
    if (found == entries_.end() || !std::holds_alternative<T>(found->second)) {
      throw RunError(std::string(name) + " is absent");
    }
    return std::get<T>(found->second);
  }
  std::map<std::string, Entry> entries_;
};

/// Runs `method` for `steps` steps on `workers` quadratic loops; `options_of` makes each worker's
/// loop and `after_step` sees every step (on each worker's thread). Returns the final anchors of
/// worker 0 after finish().
struct FamilyRun {
  int workers = 2;
  int steps = 10;
  std::string method = "diloco";
  OuterOptions outer;
  std::function<QuadraticLoop::Options(int worker)> loop;
  std::function<void(int worker, const StepReport&, OuterStrategy&, QuadraticLoop&)> after_step;
  bool finish = true;
};
inline std::vector<float> run_family(const FamilyRun& run) {
  std::vector<float> result;
  run_in_process(run.workers, [&](WorkerContext& context) {
    QuadraticLoop inner(run.loop(context.rank.value()));
    const auto strategy = make_outer_strategy(run.method, run.outer, inner, context.exchange);
    for (int t = 0; t < run.steps; ++t) {
      const StepReport report = strategy->step();
      if (run.after_step) {
        run.after_step(context.rank.value(), report, *strategy, inner);
      }
    }
    if (run.finish) {
      (void)strategy->finish();
    }
    if (context.rank == WorkerId(0)) {
      result = anchors_of(*strategy, inner);
    }
  });
  return result;
}

/// f_m = 1/2 (x - c_m)^2, c = (1, -3), inner SGD lr 0.1, x0 = 2.
inline QuadraticLoop::Options two_parabolas(int worker) {
  QuadraticLoop::Options options;
  options.center = worker == 0 ? 1.0f : -3.0f;
  options.worker = worker;
  return options;
}

/// Several tensors over two tiles and four layers, noisy gradients that differ by worker.
inline QuadraticLoop::Options small_model(int worker) {
  QuadraticLoop::Options options;
  options.tensors = {{kNoLayer, 5000}, {0, 300}, {0, 4100}, {1, 700},
                     {2, 1},           {3, 64},  {3, 900},  {kNoLayer, 33}};
  options.center = 0.25f * static_cast<float>(worker);
  options.noise = 0.5f;
  options.worker = worker;
  return options;
}

}  // namespace isthmus::testing_support
