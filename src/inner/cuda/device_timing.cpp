// SPDX-License-Identifier: Apache-2.0
#include "inner/cuda/device_timing.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <vector>

#include "config/schema/recompute.h"
#include "core/base/rng.h"
#include "inner/cuda/cuda_loop.h"
#include "inner/cuda/device_product.h"
#include "kernels/cuda/matmul_table.h"

namespace isthmus {
namespace {

constexpr std::int64_t kFewestDeviceSteps = 3;
constexpr std::int64_t kMostDeviceSteps = 400;
constexpr int kDeviceWarmUpSteps = 3;  // the first chooses algorithms, the next may record a graph

/// Dense products with sums in float, from NVIDIA's data sheets of the boards (without sparsity).
struct Peak {
  const char* name;  // part of the device's
  double bf16_tflops, fp32_tflops;
};
constexpr Peak kPeaks[] = {
    {"H200", 989.4, 66.9},           {"H100 PCIe", 756, 51.2}, {"H100 NVL", 835, 60},
    {"H100 80GB HBM3", 989.4, 66.9}, {"A100", 312, 19.5},
};

double peak_gflops(const std::string& device, bool bf16) {
  const auto* const known = std::ranges::find_if(
      kPeaks, [&](const Peak& peak) { return device.find(peak.name) != std::string::npos; });
  if (known == std::end(kPeaks)) return 0;
  return 1e3 * (bf16 ? known->bf16_tflops : known->fp32_tflops);
}

std::vector<std::int32_t> random_tokens(const Workload& workload, std::int64_t count,
                                        std::uint32_t stream) {
  const Rng rng{0, Stream::kTestData};
  std::vector<std::int32_t> tokens;
  for (std::int64_t i = 0; i < count; ++i) {
    tokens.push_back(static_cast<std::int32_t>(rng.below(
        static_cast<std::uint64_t>(workload.model.vocab), static_cast<std::uint64_t>(i), stream)));
  }
  return tokens;
}

}  // namespace

LanguageModelOptions timed_loop_options(const Workload& workload,
                                        const ModelTimingOptions& options) {
  LanguageModelOptions loop_options;
  loop_options.model = workload.model;
  loop_options.context = workload.context;
  loop_options.sequences = options.sequences == 0 ? workload.sequences : options.sequences;
  loop_options.micro_batches = options.micro_batches;
  loop_options.total_steps = kMostDeviceSteps + kDeviceWarmUpSteps;
  loop_options.threads = options.threads;
  loop_options.bf16 = options.bf16;
  loop_options.attention = options.attention;
  loop_options.recompute = options.recompute;
  loop_options.inner.optimizer = options.optimizer;
  return loop_options;
}

DeviceTiming time_model_on_device(const Workload& workload, const ModelTimingOptions& options,
                                  const cuda::DeviceInfo& device, const Clock& clock) {
  DeviceTiming out{.workload = workload.name,
                   .device = device,
                   .bf16 = options.bf16,
                   .matmul_table = cuda::matmul_table_in_use() != nullptr,
                   .recompute = options.recompute,
                   .optimizer = options.optimizer,
                   .sequences = options.sequences == 0 ? workload.sequences : options.sequences,
                   .context = workload.context,
                   .micro_batches = options.micro_batches};
  const LanguageModelOptions loop_options = timed_loop_options(workload, options);
  const std::int64_t tokens = out.sequences * workload.context;
  const std::vector<std::int32_t> inputs = random_tokens(workload, tokens, 0);
  const std::vector<std::int32_t> targets = random_tokens(workload, tokens, 1);
  const TokenBatch batch{inputs, targets, out.sequences, workload.context};
  {
    const std::size_t free_before = cuda::device_memory().free_bytes;
    const auto loop = make_cuda_loop(loop_options, [&](StepIndex) { return batch; });
    std::int64_t t = 0;
    const auto step_ms = [&] {
      const TimePoint begin = clock.now();
      out.loss = loop->train_step(StepIndex(++t)).loss;
      return std::chrono::duration<double, std::milli>(clock.now() - begin).count();
    };
    double last_ms = 0;
    while (t < kDeviceWarmUpSteps) last_ms = step_ms();
    const auto steps = std::clamp(static_cast<std::int64_t>(options.seconds * 1e3 / last_ms),
                                  kFewestDeviceSteps, kMostDeviceSteps);
    std::vector<double> times;
    for (out.steps = 0; out.steps < steps; ++out.steps) times.push_back(step_ms());
    out.device_mib =
        static_cast<double>(free_before - cuda::device_memory().free_bytes) / (1 << 20);
    std::ranges::sort(times);
    out.best_ms = times.front();
    out.median_ms = times[times.size() / 2];
  }
  const ModelLayout layout(model_shape(workload.model, workload.context));
  out.parameters = layout.elements();
  out.cudnn_attention = attention_is_cudnn(layout, loop_options);
  const double flops = training_flops_per_token(layout, workload.context);
  out.tokens_per_s = static_cast<double>(tokens) / out.best_ms * 1e3;
  out.median_tokens_per_s = static_cast<double>(tokens) / out.median_ms * 1e3;
  out.gflops = flops * out.tokens_per_s / 1e9;
  out.median_gflops = flops * out.median_tokens_per_s / 1e9;
  out.product_gflops = device_product_flops(options.bf16, clock) / 1e9;
  out.of_bound = out.gflops / out.product_gflops;
  out.peak_gflops = peak_gflops(device.name, options.bf16);
  out.mfu = out.peak_gflops > 0 ? out.median_gflops / out.peak_gflops : 0;
  return out;
}

std::string to_json(const DeviceTiming& t) {
  std::string text = fmt::format(
      R"({{"bench":"compute","config":"{}","dtype":"{}","device":"cuda:{}","device_name":"{}","compute_capability":"{}.{}","versions":"{}")",
      t.workload, t.bf16 ? "bf16" : "fp32", t.device.ordinal, t.device.name, t.device.compute_major,
      t.device.compute_minor, cuda::versions());
  text += fmt::format(
      R"(,"attention":"{}","matmul_table":{},"optimizer":"{}","recompute":"{}","micro_batches":{},"N":{},"B":{},"T":{},"steps":{},"ms_best":{:.3f},"ms_med":{:.3f})",
      t.cudnn_attention ? "cudnn" : "own", t.matmul_table, t.optimizer, recompute_name(t.recompute),
      t.micro_batches, t.parameters, t.sequences, t.context, t.steps, t.best_ms, t.median_ms);
  text += fmt::format(
      R"(,"tok_s_best":{:.1f},"tok_s_med":{:.1f},"gflops_best":{:.1f},"gflops_med":{:.1f},"product_gflops":{:.1f},"of_product_peak":{:.3f})",
      t.tokens_per_s, t.median_tokens_per_s, t.gflops, t.median_gflops, t.product_gflops,
      t.of_bound);
  text += t.peak_gflops > 0
              ? fmt::format(R"(,"peak_gflops":{:.0f},"mfu":{:.4f})", t.peak_gflops, t.mfu)
              : R"(,"peak_gflops":null,"mfu":null)";
  text += fmt::format(R"(,"device_mib":{:.1f},"loss":{:.6f}}})", t.device_mib, t.loss);
  return text;
}

}  // namespace isthmus
