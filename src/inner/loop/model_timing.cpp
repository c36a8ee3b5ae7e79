// SPDX-License-Identifier: Apache-2.0
#include "inner/loop/model_timing.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <memory>
#include <vector>

#include "config/schema/recompute.h"
#include "core/base/rng.h"
#include "inner/loop/language_model_loop.h"
#include "inner/loop/model_cost.h"
#include "inner/model/model_linear.h"
#include "kernels/attention.h"
#include "kernels/isa.h"

namespace isthmus {
namespace {
constexpr std::int64_t kFewestSteps = 3;
constexpr std::int64_t kMostSteps = 400;
constexpr int kWarmUpSteps = 2;
constexpr int kRepetitions = 5;  // of an isolated operation; the best counts

class Stopwatch {
 public:
  explicit Stopwatch(const Clock& clock) : clock_(clock), last_(clock.now()) {}
  /// Milliseconds since the last call.
  double lap() {
    const TimePoint now = clock_.now();
    const double ms = std::chrono::duration<double, std::milli>(now - last_).count();
    last_ = now;
    return ms;
  }

 private:
  const Clock& clock_;
  TimePoint last_;
};

double median(std::vector<double> x) {
  const auto middle = x.begin() + static_cast<std::ptrdiff_t>(x.size() / 2);
  std::nth_element(x.begin(), middle, x.end());
  return *middle;
}

double best_ms(const Clock& clock, const std::function<void()>& call) {
  call();
  Stopwatch watch(clock);
  double best = watch.lap();
  for (int i = 0; i < kRepetitions; ++i) {
    call();
    const double ms = watch.lap();
    best = i == 0 ? ms : std::min(best, ms);
  }
  return best;
}

/// Random tokens, the same in every step.
struct RandomBatch {
  std::vector<std::int32_t> inputs, targets;
  std::int64_t sequences, length;

  RandomBatch(const Workload& w, std::int64_t count) : sequences(count), length(w.context) {
    const Rng rng{0, Stream::kTestData};
    const auto vocab = static_cast<std::uint64_t>(w.model.vocab);
    for (std::int64_t i = 0; i < sequences * length; ++i) {
      const auto at = static_cast<std::uint64_t>(i);
      inputs.push_back(static_cast<std::int32_t>(rng.below(vocab, at, 0)));
      targets.push_back(static_cast<std::int32_t>(rng.below(vocab, at, 1)));
    }
  }
  [[nodiscard]] TokenBatch batch() const { return {inputs, targets, sequences, length}; }
};

/// Forward, input and weight gradient of y = x W^T, one after another; activations stored as T.
template <typename T>
double products_ms(const Clock& clock, kernels::ThreadTeam& team, const LinearShape& s) {
  const std::vector<T> x(static_cast<std::size_t>(s.rows * s.in), T(0.5f));
  const std::vector<float> w(static_cast<std::size_t>(s.in * s.out), 0.5f);
  std::vector<T> y(static_cast<std::size_t>(s.rows * s.out), T(0.5f));
  std::vector<T> dx(x.size());
  std::vector<float> dw(w.size());
  return best_ms(clock, [&] {
    kernels::gemm(team, linear(s, x.data(), w.data(), y.data()));
    kernels::gemm(team, linear_input_gradient(s, y.data(), w.data(), dx.data()));
    linear_weight_gradient(team, s, x.data(), y.data(), dw.data());
  });
}

template <typename T>
double attention_ms(const Clock& clock, kernels::ThreadTeam& team, const ModelShape& s,
                    std::int64_t sequences, std::int64_t length) {
  const std::int64_t rows = sequences * length;
  const std::int64_t row = s.qkv_width();
  std::vector<T> qkv(static_cast<std::size_t>(rows * row));
  const Rng rng{1, Stream::kTestData};
  for (std::size_t i = 0; i < qkv.size(); ++i) qkv[i] = T(static_cast<float>(rng.uniform(i)));
  std::vector<T> d_qkv(qkv.size());
  std::vector<T> out(static_cast<std::size_t>(rows * s.query_width()));
  std::vector<float> lse(static_cast<std::size_t>(rows * s.heads));
  const kernels::AttentionShape shape{sequences,  length,
                                      s.heads,    s.kv_heads,
                                      s.head_dim, 1 / std::sqrt(static_cast<double>(s.head_dim))};
  const auto view = [&]<typename Value>(Value* data, std::int64_t width) {
    return kernels::heads_in_rows<Value>(data, length, width, s.head_dim);
  };
  const T* const q = qkv.data();
  const std::int64_t k = s.query_width();
  const std::int64_t v = k + s.key_width();
  const T* const read_out = out.data();
  return best_ms(clock, [&] {
    kernels::attention_forward<T>(team, shape, view(q, row), view(q + k, row), view(q + v, row),
                                  view(out.data(), k), lse.data());
    kernels::attention_backward<T>(team, shape,
                                   {.q = view(q, row),
                                    .k = view(q + k, row),
                                    .v = view(q + v, row),
                                    .out = view(read_out, k),
                                    .d_out = view(read_out, k),
                                    .lse = lse.data(),
                                    .d_q = view(d_qkv.data(), row),
                                    .d_k = view(d_qkv.data() + k, row),
                                    .d_v = view(d_qkv.data() + v, row)});
  });
}

/// A product small enough to stay in cache, one on each thread.
double cached_product_gflops(const Clock& clock, kernels::ThreadTeam& team, bool bf16) {
  const LinearShape shape{96, 128, 64, bf16};
  constexpr int kRounds = 2000;
  struct Operands {
    std::vector<float> x, w, y;
  };
  std::vector<Operands> operands(static_cast<std::size_t>(team.size()));
  for (Operands& o : operands) {
    o.x.assign(static_cast<std::size_t>(shape.rows * shape.in), 0.5f);
    o.w.assign(static_cast<std::size_t>(shape.in * shape.out), 0.5f);
    o.y.resize(static_cast<std::size_t>(shape.rows * shape.out));
  }
  std::vector<std::unique_ptr<kernels::ThreadTeam>> alone(operands.size());
  for (auto& one : alone) one = std::make_unique<kernels::ThreadTeam>(1);
  const double ms = best_ms(clock, [&] {
    team.for_each(team.size(), [&](std::int64_t index, int) {
      Operands& o = operands[static_cast<std::size_t>(index)];
      for (int round = 0; round < kRounds; ++round) {
        kernels::gemm(*alone[static_cast<std::size_t>(index)],
                      conv1d<float>(shape, o.x.data(), o.w.data(), nullptr, o.y.data()));
      }
    });
  });
  const double flop = 2.0 * static_cast<double>(shape.rows * shape.in * shape.out) * kRounds;
  return flop * team.size() / ms / 1e6;
}

double peak_rss_mib() {
  std::ifstream status("/proc/self/status");
  std::string line;
  while (std::getline(status, line)) {
    if (line.starts_with("VmHWM:")) return std::strtod(line.c_str() + 6, nullptr) / 1024;
  }
  return 0;
}

/// Times of the parts of every step.
struct PartTimes {
  std::vector<double> step, forward, head, backward, optimizer;
};

InnerStep timed_step(LanguageModelLoop& loop, StepIndex t, const Clock& clock, PartTimes& times) {
  std::array<double, 4> part{};  // cleared gradients and optimizer, forward, head, backward
  Stopwatch watch(clock);
  std::size_t running = 0;
  loop.watch_parts([&](PassPart begun) {
    part[running] += watch.lap();
    running = begun == PassPart::kEnd ? 0 : static_cast<std::size_t>(begun) + 1;
  });
  const InnerStep step = loop.train_step(t);
  part[0] += watch.lap();
  loop.watch_parts({});
  times.step.push_back(part[0] + part[1] + part[2] + part[3]);
  times.optimizer.push_back(part[0]);
  times.forward.push_back(part[1]);
  times.head.push_back(part[2]);
  times.backward.push_back(part[3]);
  return step;
}

/// The step's products and attention by themselves, activations stored as T.
template <typename T>
void time_operations(const Clock& clock, const ModelShape& s, std::int64_t sequences,
                     std::int64_t length, const ModelTimingOptions& options, ModelTiming& out) {
  kernels::ThreadTeam team(options.threads);
  out.product_gflops = cached_product_gflops(clock, team, options.bf16);
  out.of_bound = out.gflops / out.product_gflops;
  if (options.mesh.ranks() > 1) return;  // each rank has products of different shapes
  const std::int64_t rows = sequences / options.micro_batches * length;
  const std::int64_t up = s.up_width();
  const LinearShape in_layer[] = {{rows, s.d_model, s.qkv_width(), options.bf16},
                                  {rows, s.query_width(), s.d_model, options.bf16},
                                  {rows, s.d_model, up, options.bf16},
                                  {rows, s.d_ff, s.d_model, options.bf16}};
  double layer_ms = 0;
  for (const LinearShape& shape : in_layer) layer_ms += products_ms<T>(clock, team, shape);
  const double head_ms = products_ms<float>(clock, team, {rows, s.d_model, s.vocab, options.bf16});
  const double parts = static_cast<double>(options.micro_batches);
  const double layers = static_cast<double>(s.layers);
  out.products_ms = parts * (layers * layer_ms + head_ms);
  out.attention_ms =
      parts * layers * attention_ms<T>(clock, team, s, sequences / options.micro_batches, length);
  out.rest_ms = out.best_ms - out.products_ms - out.attention_ms;
}

}  // namespace

ModelTiming time_model(const Workload& workload, const ModelTimingOptions& options,
                       const Clock& clock) {
  const std::int64_t sequences = options.sequences == 0 ? workload.sequences : options.sequences;
  const RandomBatch data(workload, sequences);
  LanguageModelOptions loop_options;
  loop_options.model = workload.model;
  loop_options.context = workload.context;
  loop_options.sequences = sequences;
  loop_options.micro_batches = options.micro_batches;
  loop_options.total_steps = kMostSteps + kWarmUpSteps;
  loop_options.threads = options.threads;
  loop_options.bf16 = options.bf16;
  loop_options.recompute = options.recompute;
  loop_options.inner.optimizer = options.optimizer;
  loop_options.mesh = options.mesh;
  loop_options.schedule = options.schedule;
  loop_options.virtual_stages = options.virtual_stages;
  loop_options.zero = options.zero;

  ModelTiming out;
  out.base_rss_mib = peak_rss_mib();
  PartTimes times;
  ModelShape shape;
  double optimizer_flop = 0;
  {
    LanguageModelLoop loop(loop_options, [&](StepIndex) { return data.batch(); });
    shape = loop.layout().shape();
    PartTimes warm_up;
    std::int64_t t = 0;
    while (t < kWarmUpSteps) static_cast<void>(timed_step(loop, StepIndex(++t), clock, warm_up));
    const double wanted = options.seconds * 1e3 / warm_up.step.back();
    const auto steps = std::clamp(static_cast<std::int64_t>(wanted), kFewestSteps, kMostSteps);
    for (out.steps = 0; out.steps < steps; ++out.steps) {
      out.loss = timed_step(loop, StepIndex(++t), clock, times).loss;
    }
    out.parameters = loop.layout().elements();
    optimizer_flop = optimizer_flops(loop.layout(), loop_options.inner);
    const double flops = training_flops_per_token(loop.layout(), workload.context);
    const MemoryEstimate memory = loop_memory(loop.layout(), loop_options);
    const double tokens = static_cast<double>(sequences * workload.context);
    out.best_ms = *std::min_element(times.step.begin(), times.step.end());
    out.median_ms = median(times.step);
    out.tokens_per_s = tokens / out.best_ms * 1e3;
    out.median_tokens_per_s = tokens / out.median_ms * 1e3;
    out.gflops = flops * out.tokens_per_s / 1e9;
    out.arena_mib = static_cast<double>(memory.activations) / (1 << 20);
    out.peak_rss_mib = peak_rss_mib();
  }
  out.workload = workload.name;
  out.isa = kernels::name_of(kernels::active_isa());
  out.options = options;
  out.options.sequences = sequences;
  out.context = workload.context;
  out.forward_ms = median(times.forward);
  out.head_ms = median(times.head);
  out.backward_ms = median(times.backward);
  out.optimizer_ms = median(times.optimizer);
  out.optimizer_gflops = optimizer_flop / out.optimizer_ms / 1e6;
  const auto time = options.bf16 ? time_operations<kernels::Bf16> : time_operations<float>;
  time(clock, shape, sequences, workload.context, options, out);
  return out;
}

std::string to_json(const ModelTiming& t) {
  const ModelTimingOptions& o = t.options;
  std::string text = fmt::format(
      R"({{"bench":"compute","config":"{}","dtype":"{}","isa":"{}","optimizer":"{}","recompute":"{}","micro_batches":{},"threads":{},"N":{},"B":{},"T":{},"steps":{})",
      t.workload, o.bf16 ? "bf16" : "fp32", t.isa, o.optimizer, recompute_name(o.recompute),
      o.micro_batches, o.threads, t.parameters, o.sequences, t.context, t.steps);
  if (o.mesh.ranks() > 1) {
    text +=
        fmt::format(R"(,"tp":{},"pp":{},"dp":{},"schedule":"{}","sequence_parallel":{},"zero":{})",
                    o.mesh.tp, o.mesh.pp, o.mesh.dp, o.mesh.pp > 1 ? pipeline_name(o.schedule) : "",
                    o.mesh.sequence_parallel, o.zero);
  }
  text +=
      fmt::format(R"(,"ms_best":{:.3f},"ms_med":{:.3f},"forward_ms":{:.3f},"head_ms":{:.3f})"
                  R"(,"backward_ms":{:.3f},"optimizer_ms":{:.3f})",
                  t.best_ms, t.median_ms, t.forward_ms, t.head_ms, t.backward_ms, t.optimizer_ms);
  text += fmt::format(R"(,"products_ms":{:.3f},"attention_ms":{:.3f},"rest_ms":{:.3f})",
                      t.products_ms, t.attention_ms, t.rest_ms);
  text += fmt::format(
      R"(,"tok_s_best":{:.1f},"tok_s_med":{:.1f},"gflops_best":{:.1f},"product_gflops":{:.1f})"
      R"(,"of_product_peak":{:.3f},"optimizer_gflops":{:.1f},"rss_mib":{:.0f},"base_mib":{:.0f},"arena_mib":{:.1f},"loss":{:.6f}}})",
      t.tokens_per_s, t.median_tokens_per_s, t.gflops, t.product_gflops, t.of_bound,
      t.optimizer_gflops, t.peak_rss_mib, t.base_rss_mib, t.arena_mib, t.loss);
  return text;
}

}  // namespace isthmus
