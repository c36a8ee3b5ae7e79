// SPDX-License-Identifier: Apache-2.0
// A trainer of your own under isthmus' outer loop. It uses only the installed headers.
//
// `SineNet` (sine_net.h) is the trainer; everything that the outer loop needs of a trainer is the
// InnerLoop interface that SineNet implements.
// `FallingPoint` (--model falling) is the toy of torchft's regression fixtures: two scalars that
// each inner step lowers by 2. `--json` prints every step's values for such replays.
#include <array>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <mutex>
#include <stdexcept>
#include <string>
#include <vector>

#include "isthmus/errors.h"
#include "isthmus/inner_loop.h"
#include "isthmus/outer.h"
#include "isthmus/transport.h"
#include "sine_net.h"

namespace {

using namespace isthmus;
using examples::SineNet;

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
