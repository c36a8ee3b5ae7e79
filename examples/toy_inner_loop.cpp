// SPDX-License-Identifier: Apache-2.0
// A trainer of your own under isthmus' outer loop. It uses only the installed headers.
//
// `SineNet` is the trainer: a one-hidden-layer network with hand-written gradients that learns
// sin(x); each worker sees its own part of the x axis, so workers must agree to learn the whole.
// Everything that isthmus needs of a trainer is the InnerLoop interface it implements.
// `FallingPoint` (--model falling) is the toy of torchft's regression fixtures: two scalars that
// each inner step lowers by 2. `--json` prints every step's values for such replays.
#include <array>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <mutex>
#include <numbers>
#include <stdexcept>
#include <string>
#include <vector>

#include "isthmus/errors.h"
#include "isthmus/inner_loop.h"
#include "isthmus/outer.h"
#include "isthmus/transport.h"

namespace {

using namespace isthmus;

constexpr std::size_t kHidden = 16;
constexpr std::size_t kSamples = 32;

class SineNet final : public InnerLoop {
 public:
  SineNet(int worker, int workers) : worker_(worker), workers_(workers) {
    add("hidden.weight", 0, hidden_weight_, gradient_hidden_weight_);
    add("hidden.bias", 0, hidden_bias_, gradient_hidden_bias_);
    add("out.weight", 1, out_weight_, gradient_out_weight_);
    for (std::size_t h = 0; h < kHidden; ++h) {
      const float turn = static_cast<float>(h) / kHidden;  // equal on all workers, as it must be
      hidden_weight_[h] = 0.4f + turn;
      hidden_bias_[h] = 4 * turn - 2;
      out_weight_[h] = h % 2 == 0 ? 0.2f : -0.2f;
    }
  }

  [[nodiscard]] std::span<const Parameter> parameters() const override { return parameters_; }

  InnerStep train_step(StepIndex t) override {
    InnerStep step = gradients(t, {});
    step.grad_norm = apply_gradients(t);
    return step;
  }

  // Separate gradients and update are what method ddp needs; diloco would do with train_step alone.
  InnerStep gradients(StepIndex t, const GradientReady& on_ready) override {
    for (const std::span<float> gradient : gradients_) {
      for (float& g : gradient) g = 0;
    }
    double loss = 0;
    for (std::size_t i = 0; i < kSamples; ++i) {
      const float x = sample(t, i);
      std::array<float, kHidden> activation{};
      const float error = predict(x, activation) - std::sin(x);
      loss += 0.5 * static_cast<double>(error * error) / kSamples;
      for (std::size_t h = 0; h < kHidden; ++h) {
        const float back = error * out_weight_[h] * (1 - activation[h] * activation[h]) / kSamples;
        gradient_out_weight_[h] += error * activation[h] / kSamples;
        gradient_hidden_weight_[h] += back * x;
        gradient_hidden_bias_[h] += back;
      }
    }
    for (std::size_t left = parameters_.size(); on_ready && left > 0; --left) {
      on_ready(left - 1);
    }
    return {.loss = loss, .grad_norm = 0, .tokens = kSamples};
  }
  std::span<float> gradient(std::size_t parameter) override { return gradients_[parameter]; }
  double apply_gradients(StepIndex t) override {
    double squares = 0;
    for (std::size_t p = 0; p < parameters_.size(); ++p) {
      for (std::size_t i = 0; i < gradients_[p].size(); ++i) {
        const float g = gradients_[p][i];
        squares += static_cast<double>(g * g);
        parameters_[p].values[i] -= static_cast<float>(learning_rate(t)) * g;
      }
    }
    return std::sqrt(squares);
  }
  [[nodiscard]] double learning_rate(StepIndex) const override { return 0.1; }

  /// Mean squared error over the whole axis, with the outer parameters.
  [[nodiscard]] double error_of(const ParameterSource& source) const {
    double sum = 0;
    constexpr int kPoints = 200;
    for (int i = 0; i < kPoints; ++i) {
      const float x = std::numbers::pi_v<float> * (2.0f * static_cast<float>(i) / kPoints - 1);
      float y = 0;
      for (std::size_t h = 0; h < kHidden; ++h) {
        y += source.values(2)[h] * std::tanh(source.values(0)[h] * x + source.values(1)[h]);
      }
      sum += std::pow(static_cast<double>(y - std::sin(x)), 2);
    }
    return sum / kPoints;
  }

 private:
  using Tensor = std::array<float, kHidden>;

  void add(const char* name, int layer, Tensor& values, Tensor& gradient) {
    const auto begin = static_cast<std::int64_t>(parameters_.size() * kHidden);
    parameters_.push_back({.name = name,
                           .layer = layer,
                           .shape = {kHidden},
                           .elements = {begin, begin + static_cast<std::int64_t>(kHidden)},
                           .values = values,
                           .decay = false});
    gradients_.push_back(gradient);
  }
  [[nodiscard]] float predict(float x, Tensor& activation) const {
    float y = 0;
    for (std::size_t h = 0; h < kHidden; ++h) {
      activation[h] = std::tanh(hidden_weight_[h] * x + hidden_bias_[h]);
      y += out_weight_[h] * activation[h];
    }
    return y;
  }
  /// Position is a pure function of (worker, step, sample): a resumed run sees the same data.
  [[nodiscard]] float sample(StepIndex t, std::size_t i) const {
    const double golden = 0.6180339887498949;
    const double point = static_cast<double>(t.value()) * kSamples + static_cast<double>(i);
    const double within = point * golden - std::floor(point * golden);
    const double unit = (worker_ + within) / workers_;
    return static_cast<float>(std::numbers::pi * (2 * unit - 1));
  }

  int worker_;
  int workers_;
  Tensor hidden_weight_{}, hidden_bias_{}, out_weight_{};
  Tensor gradient_hidden_weight_{}, gradient_hidden_bias_{}, gradient_out_weight_{};
  std::vector<Parameter> parameters_;
  std::vector<std::span<float>> gradients_;
};

class FallingPoint final : public InnerLoop {
 public:
  FallingPoint() {
    for (int layer = 0; layer < 2; ++layer) {
      parameters_.push_back({.name = "layers." + std::to_string(layer) + ".weight",
                             .layer = layer,
                             .shape = {1, 1},
                             .elements = {layer, layer + 1},
                             .values = {&values_[static_cast<std::size_t>(layer)], 1},
                             .decay = false});
    }
  }
  [[nodiscard]] std::span<const Parameter> parameters() const override { return parameters_; }
  InnerStep train_step(StepIndex) override {
    for (float& value : values_) value -= 2;
    return {};
  }
  [[nodiscard]] double learning_rate(StepIndex) const override { return 1; }

 private:
  std::array<float, 2> values_ = {1, 1};
  std::vector<Parameter> parameters_;
};

struct Arguments {
  int workers = 2;
  int steps = 600;
  std::string model = "sine";
  std::string method = "diloco";
  OuterOptions outer;
  bool json = false;
};

constexpr const char* kUsage =
    "usage: toy_inner_loop [--workers M] [--steps T] [--model sine|falling] [--method NAME] [--H "
    "N]\n"
    "    [--lr X] [--momentum X] [--fragments P] [--offsets A,B,...] [--overlap N] [--alpha X]\n"
    "    [--codec NAME] [--json]\n";

template <typename Number>
Number number(const std::string& flag, const std::string& text) {
  Number value{};
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || stop != end) {
    throw std::invalid_argument(flag + " " + text + ": not a number");
  }
  return value;
}

std::vector<std::int64_t> list(const std::string& flag, const std::string& text) {
  std::vector<std::int64_t> values;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t comma = std::min(text.find(',', begin), text.size());
    values.push_back(number<std::int64_t>(flag, text.substr(begin, comma - begin)));
    begin = comma + 1;
  }
  return values;
}

Arguments parse(int argc, char** argv) {
  Arguments arguments;
  arguments.outer.H = 10;
  for (int i = 1; i < argc; ++i) {
    const std::string flag = argv[i];
    if (flag == "--json") {
      arguments.json = true;
      continue;
    }
    if (i + 1 == argc) throw std::invalid_argument(flag + ": needs a value\n" + kUsage);
    const std::string value = argv[++i];
    if (flag == "--workers")
      arguments.workers = number<int>(flag, value);
    else if (flag == "--steps")
      arguments.steps = number<int>(flag, value);
    else if (flag == "--model")
      arguments.model = value;
    else if (flag == "--method")
      arguments.method = value;
    else if (flag == "--H")
      arguments.outer.H = number<std::int64_t>(flag, value);
    else if (flag == "--lr")
      arguments.outer.lr = number<double>(flag, value);
    else if (flag == "--momentum")
      arguments.outer.momentum = number<double>(flag, value);
    else if (flag == "--fragments")
      arguments.outer.fragments = number<int>(flag, value);
    else if (flag == "--offsets")
      arguments.outer.offsets = list(flag, value);
    else if (flag == "--overlap")
      arguments.outer.overlap = number<std::int64_t>(flag, value);
    else if (flag == "--alpha")
      arguments.outer.alpha = number<double>(flag, value);
    else if (flag == "--codec")
      arguments.outer.codec = value;
    else
      throw std::invalid_argument(flag + ": no such flag\n" + kUsage);
  }
  if (arguments.method == "ddp") arguments.outer.H = 1;
  return arguments;
}

/// {"worker":0,"step":3,"local":[...],"anchors":[...]}: values before step + 1.
void print_values(int worker, int step, const InnerLoop& inner, const OuterStrategy& strategy) {
  const auto join = [&](const auto& values_of) {
    std::string text;
    for (std::size_t p = 0; p < inner.parameters().size(); ++p) {
      for (const float value : values_of(p)) {
        char number_text[32];
        std::snprintf(number_text, sizeof number_text, "%.9g", static_cast<double>(value));
        text += (text.empty() ? "" : ",") + std::string(number_text);
      }
    }
    return text;
  };
  const std::string local = join([&](std::size_t p) { return inner.parameters()[p].values; });
  const std::string anchors = join([&](std::size_t p) { return strategy.values(p); });
  std::printf("{\"worker\":%d,\"step\":%d,\"local\":[%s],\"anchors\":[%s]}\n", worker, step,
              local.c_str(), anchors.c_str());
}

void run(const Arguments& arguments, WorkerContext& context, std::mutex& terminal) {
  SineNet sine(context.rank.value(), context.workers);
  FallingPoint falling;
  const bool is_sine = arguments.model == "sine";
  InnerLoop& inner = is_sine ? static_cast<InnerLoop&>(sine) : falling;

  const auto strategy =
      make_outer_strategy(arguments.method, arguments.outer, inner, context.exchange);
  const auto show = [&](int step, double loss) {
    const std::scoped_lock lock(terminal);
    if (arguments.json) {
      print_values(context.rank.value(), step, inner, *strategy);
    } else if (context.rank == WorkerId(0) && is_sine &&
               step % std::max(arguments.steps / 10, 1) == 0) {
      std::printf("%6d  %12.6f  %16.6f  %12llu\n", step, loss, sine.error_of(*strategy),
                  static_cast<unsigned long long>(context.exchange.bytes().payload));
    }
  };
  show(0, std::nan(""));  // no step taken yet
  for (int t = 1; t <= arguments.steps; ++t) {
    const StepReport report = strategy->step();
    show(t, report.inner.loss);
  }
  (void)strategy->finish();
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const Arguments arguments = parse(argc, argv);
    if (arguments.model != "sine" && arguments.model != "falling") {
      throw std::invalid_argument("--model " + arguments.model + ": sine or falling");
    }
    if (!arguments.json) {
      std::printf("%d workers, method %s\n", arguments.workers, arguments.method.c_str());
      std::printf("%6s  %12s  %16s  %12s\n", "step", "worker 0 loss", "error of anchors",
                  "bytes sent");
    }
    std::mutex terminal;
    isthmus::run_in_process(arguments.workers, [&](isthmus::WorkerContext& context) {
      run(arguments, context, terminal);
    });
    return 0;
  } catch (const isthmus::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return static_cast<int>(error.exit_code());
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 2;
  }
}
