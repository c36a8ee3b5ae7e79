// SPDX-License-Identifier: Apache-2.0
// Speed of a training step's operations on a CUDA device that are bound by its memory, and of outer
// steps and spsa, one JSON object a line: bench_cuda_ops [--only PREFIX] [--device N]
// [--repetitions N]. Before each operation a copy between two arrays of the device is timed, so
// that a line says what fraction of a copy's bandwidth the operation reaches; `bytes` are those
// that must move, whatever the caches do. Products say their TFLOP/s instead. Times are medians of
// single launches between two events, after two that are not counted.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <exception>
#include <string>
#include <string_view>
#include <vector>

#include "cuda_bench.h"
#include "cuda_bench_optimizers.h"
#include "cuda_bench_products.h"
#include "kernels/cuda/activation.h"
#include "kernels/cuda/cross_entropy.h"
#include "kernels/cuda/embedding.h"
#include "kernels/cuda/norm.h"
#include "kernels/cuda/outer_arithmetic.h"
#include "kernels/cuda/outer_step.h"
#include "kernels/cuda/rotary.h"
#include "kernels/cuda/spsa.h"

namespace isthmus::cuda {
namespace {

struct ModelShape {
  std::int64_t rows, seq, channels, vocab;
};
constexpr ModelShape kGpt2{16384, 1024, 768, 50257};
constexpr ModelShape kLlama{8192, 2048, 2048, 32000};

void bench_norm(CudaBench& bench, const ModelShape& s, bool centred) {
  Stream& stream = bench.stream;
  const std::int64_t n = s.rows * s.channels;
  const auto x = zeros<float>(stream, n), d_stream = zeros<float>(stream, n);
  const auto branch = zeros<Bf16>(stream, n), y = zeros<Bf16>(stream, n);
  const auto weight = zeros<float>(stream, s.channels), bias = zeros<float>(stream, s.channels);
  const auto d_weight = zeros<float>(stream, s.channels), d_bias = zeros<float>(stream, s.channels);
  const auto mean = zeros<float>(stream, s.rows), rstd = zeros<float>(stream, s.rows);
  const auto scratch =
      zeros<float>(stream, static_cast<std::int64_t>(norm_backward_scratch(s.channels)));
  const std::string kind = centred ? "layer_norm" : "rms_norm";
  const auto elements = static_cast<std::size_t>(n);
  bench.memory(kind + "_forward", text(s.rows, s.channels), elements * 12, [&] {
    norm_forward<Bf16>(stream, {.rows = s.rows,
                                .channels = s.channels,
                                .eps = 1e-5,
                                .centred = centred,
                                .x = x.data(),
                                .branch = branch.data(),
                                .s = x.data(),
                                .weight = weight.data(),
                                .bias = centred ? bias.data() : nullptr,
                                .y = y.data(),
                                .mean = mean.data(),
                                .rstd = rstd.data()});
  });
  bench.memory(kind + "_backward", text(s.rows, s.channels), elements * 16, [&] {
    norm_backward<Bf16>(stream, {.rows = s.rows,
                                 .channels = s.channels,
                                 .centred = centred,
                                 .dy = y.data(),
                                 .s = x.data(),
                                 .weight = weight.data(),
                                 .mean = mean.data(),
                                 .rstd = rstd.data(),
                                 .d_stream = d_stream.data(),
                                 .d_branch = branch.data(),
                                 .d_weight = d_weight.data(),
                                 .d_bias = centred ? d_bias.data() : nullptr,
                                 .scratch = scratch.data()});
  });
}

void bench_head_norm(CudaBench& bench) {
  Stream& stream = bench.stream;
  constexpr std::int64_t kRows = 8192, kHeads = 16, kDim = 128, kRow = 3 * kHeads * kDim;
  const auto x = zeros<Bf16>(stream, kRows * kRow), y = zeros<Bf16>(stream, kRows * kHeads * kDim);
  const auto weight = zeros<float>(stream, kDim), d_weight = zeros<float>(stream, kDim);
  const auto rstd = zeros<float>(stream, kRows * kHeads);
  const auto scratch = zeros<float>(stream, static_cast<std::int64_t>(head_norm_scratch(kDim)));
  const HeadNorm<Bf16> norm{kRows, kHeads, kDim, kRow, 1e-6, weight.data()};
  const std::string shape = fmt::format("{}x{}x{}", kRows, kHeads, kDim);
  bench.memory("head_norm_forward", shape, 2 * y.bytes(),
               [&] { head_norm_forward<Bf16>(stream, norm, x.data(), y.data(), rstd.data()); });
  bench.memory("head_norm_backward", shape, 3 * y.bytes(), [&] {
    head_norm_backward<Bf16>(stream, norm, y.data(), x.data(), rstd.data(), x.data(),
                             d_weight.data(), scratch.data());
  });
}

void bench_activations(CudaBench& bench) {
  Stream& stream = bench.stream;
  constexpr std::int64_t kRows = 8192, kColumns = 5632;
  const auto wide = zeros<Bf16>(stream, kRows * 2 * kColumns);
  const auto out = zeros<Bf16>(stream, kRows * kColumns);
  const auto floats = zeros<float>(stream, kRows * kColumns);
  const auto sum = zeros<float>(stream, kColumns);
  const auto scratch =
      zeros<float>(stream, static_cast<std::int64_t>(column_sum_scratch(kColumns)));
  const std::string shape = text(kRows, kColumns);
  bench.memory("swiglu_forward", shape, 3 * out.bytes(),
               [&] { swiglu_forward<Bf16>(stream, kRows, kColumns, wide.data(), out.data()); });
  bench.memory("swiglu_backward", shape, 5 * out.bytes(),
               [&] { swiglu_backward<Bf16>(stream, kRows, kColumns, out.data(), wide.data()); });
  bench.memory("gelu_forward", shape, 2 * out.bytes(),
               [&] { gelu_forward<Bf16>(stream, kRows * kColumns, wide.data(), out.data()); });
  bench.memory("gelu_backward", shape, 3 * out.bytes(),
               [&] { gelu_backward<Bf16>(stream, kRows * kColumns, wide.data(), out.data()); });
  bench.memory("convert_to_bf16", shape, 3 * out.bytes(),
               [&] { convert<float, Bf16>(stream, kRows * kColumns, floats.data(), out.data()); });
  bench.memory("column_sums", shape, out.bytes(), [&] {
    add_column_sums<Bf16>(stream, kRows, kColumns, out.data(), sum.data(), scratch.data());
  });
}

void bench_rotary(CudaBench& bench) {
  Stream& stream = bench.stream;
  constexpr std::int64_t kRows = 8192, kSeq = 2048, kHeads = 32, kDim = 64,
                         kRow = 3 * kHeads * kDim;
  const auto x = zeros<Bf16>(stream, kRows * kRow);
  const auto cosine = zeros<float>(stream, kSeq * kDim / 2),
             sine = zeros<float>(stream, kSeq * kDim / 2);
  bench.memory("rotate", fmt::format("{}x{}x{}", kRows, kHeads, kDim),
               static_cast<std::size_t>(kRows * kHeads * kDim) * 4, [&] {
                 rotate<Bf16>(stream, false, kRows, kSeq, kHeads, kDim, kRow, x.data(),
                              cosine.data(), sine.data());
               });
}

/// Ids as frequent as words are: the id of rank i about 1 / i of the time.
std::vector<std::int32_t> zipf_ids(const ModelShape& s) {
  std::vector<std::int32_t> ids(static_cast<std::size_t>(s.rows));
  std::uint64_t state = 1;
  for (std::int32_t& id : ids) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    const double uniform = static_cast<double>(state >> 11) / 9007199254740992.0;
    id = static_cast<std::int32_t>(std::pow(static_cast<double>(s.vocab), uniform)) - 1;
  }
  return ids;
}

void bench_embedding(CudaBench& bench, const ModelShape& s) {
  Stream& stream = bench.stream;
  const auto table = zeros<float>(stream, s.vocab * s.channels);
  const auto positions = zeros<float>(stream, s.seq * s.channels);
  const auto y = zeros<float>(stream, s.rows * s.channels);
  const std::vector<std::int32_t> ids = zipf_ids(s);
  std::vector<std::int32_t> order(ids.size());
  embedding_order(s.rows, s.vocab, ids.data(), order.data());
  const DeviceArray<std::int32_t> ids_device(ids.size()), order_device(ids.size());
  copy(stream, ids_device.data(), ids.data(), ids.size());
  copy(stream, order_device.data(), order.data(), ids.size());
  stream.synchronize();
  const Embedding e{s.rows, s.seq, s.channels, s.vocab, ids_device.data()};
  bench.memory("embedding_forward", text(s.rows, s.channels), 2 * y.bytes(),
               [&] { embedding_forward(stream, e, table.data(), positions.data(), y.data()); });
  bench.memory("embedding_backward", text(s.rows, s.channels), 2 * y.bytes(), [&] {
    embedding_backward(stream, e, order_device.data(), y.data(), table.data(), positions.data());
  });
}

void bench_cross_entropy(CudaBench& bench, const ModelShape& s) {
  Stream& stream = bench.stream;
  constexpr std::int64_t kRows = 4096;
  const std::int64_t ld = (s.vocab + 63) / 64 * 64;
  const auto logits = zeros<Bf16>(stream, kRows * ld);
  const auto targets = zeros<std::int32_t>(stream, kRows);
  const auto row_losses = zeros<double>(stream, 2 * kRows);
  const auto totals = zeros<LossTotals>(stream, 1);
  const auto scale = zeros<double>(stream, 1);
  for (const bool gradient : {false, true}) {
    bench.memory(gradient ? "cross_entropy_gradient" : "cross_entropy", text(kRows, s.vocab),
                 (gradient ? 2 : 1) * logits.bytes(), [&] {
                   cross_entropy<Bf16>(stream, {.rows = kRows,
                                                .vocab = s.vocab,
                                                .ld = ld,
                                                .logits = logits.data(),
                                                .targets = targets.data(),
                                                .gradient = gradient,
                                                .gradient_scale = scale.data(),
                                                .row_losses = row_losses.data(),
                                                .totals = totals.data()});
                 });
  }
}

// What an outer step does to a fragment of some methods, and the inner loop of spsa.
void bench_outer(CudaBench& bench) {
  Stream& stream = bench.stream;
  constexpr std::size_t kElements = std::size_t{1} << 27;
  const auto n = static_cast<std::int64_t>(kElements);
  const auto anchor = zeros<float>(stream, n), local = zeros<float>(stream, n);
  const auto delta = zeros<float>(stream, n), momentum = zeros<float>(stream, n);
  const auto sums = zeros<double>(stream, (n + 4095) / 4096);
  const std::string shape = fmt::format("{}", kElements);
  const auto time = [&](std::string_view op, std::size_t bytes_an_element, const auto& queue) {
    bench.memory(op, shape, bytes_an_element * kElements, queue);
  };
  time("outer_gradient", 12, [&] {
    outer_gradient(stream, kElements, anchor.data(), local.data(), nullptr, delta.data());
  });
  time("tile_squares", 4, [&] { tile_squares(stream, kElements, delta.data(), sums.data()); });
  time("outer_step_nesterov", 20, [&] {
    outer_step(stream, {.rule = kernels::OuterStepRule::kNesterov, .eta = 0.7f, .mu = 0.9f},
               kElements, anchor.data(), delta.data(), momentum.data());
  });
  time("mix", 12, [&] { mix(stream, kElements, 0.5f, anchor.data(), local.data()); });

  constexpr std::uint64_t kRunKey = 1;
  time("spsa_perturb", 8, [&] {
    spsa_perturb(stream, kRunKey, {.step = 1, .machine = 1, .sample = 1}, 1e-3f, 0, kElements,
                 anchor.data(), local.data());
  });
  for (const std::size_t steps : {1, 64}) {
    const std::vector<kernels::SpsaEntry> entries(2, {.machine = 1, .sample = 1, .d = 1});
    std::vector<kernels::SpsaStep> log(steps);
    for (std::size_t i = 0; i < steps; ++i) {
      log[i] = {.step = static_cast<std::uint32_t>(i + 1), .entries = entries, .c = 1e-6f};
    }
    const SpsaSteps in_memory(stream, log);
    time(fmt::format("spsa_apply_{}_steps", steps), 8,
         [&] { spsa_apply(stream, kRunKey, in_memory, 0, kElements, anchor.data()); });
  }
}

void bench_products(CudaBench& bench) {
  Stream& stream = bench.stream;
  Blas blas;
  const ProductCase cases[] = {
      {"matmul_bias", 16384, 2304, 768, false, true, false, Epilogue::kBias},
      {"matmul_gelu_bias", 16384, 3072, 768, false, true, false, Epilogue::kGeluBias},
      {"matmul_gelu_gradient", 16384, 3072, 768, false, false, false, Epilogue::kGeluGradient},
      {"matmul_weight_gradient", 3072, 768, 16384, true, false, true, Epilogue::kNone},
      {"matmul", 8192, 11264, 2048, false, true, false, Epilogue::kNone},
      // 18 tiles of 256 x 128 for more than 100 multiprocessors: split along k, or slow.
      {"matmul_weight_gradient", 768, 768, 16384, true, false, true, Epilogue::kNone},
      // GPT-2's head, a chunk of rows: logits, their gradient to the stream and to the weights.
      {"matmul_head", 8192, 50304, 768, false, true, false, Epilogue::kNone},
      {"matmul_head_input_gradient", 8192, 768, 50304, false, false, false, Epilogue::kNone},
      {"matmul_head_weight_gradient", 50304, 768, 8192, true, false, true, Epilogue::kNone},
  };
  for (const ProductCase& c : cases) {
    const ProductOperands operands(stream, c);
    bench.product(c.op, c.shape(), c.flop(), [&] { blas.matmul(stream, operands.product()); });
  }
}

int run(const CudaBenchOptions& options) {
  if (const int code = open_device("bench_cuda_ops", options); code != 0) return code;
  CudaBench bench(options);
  bench_norm(bench, kGpt2, true);
  bench_norm(bench, kLlama, false);
  bench_head_norm(bench);
  bench_activations(bench);
  bench_rotary(bench);
  bench_embedding(bench, kGpt2);
  bench_cross_entropy(bench, kGpt2);
  bench_cross_entropy(bench, kLlama);
  bench_optimizer(bench);
  bench_muon(bench);
  bench_outer(bench);
  if (options.only.empty() || options.only.substr(0, 6) == "matmul") bench_products(bench);
  return 0;
}

}  // namespace
}  // namespace isthmus::cuda

int main(int argc, char** argv) {
  try {
    return isthmus::cuda::run(isthmus::cuda::parse_bench("bench_cuda_ops", argc, argv));
  } catch (const std::exception& error) {
    fmt::print(stderr, "bench_cuda_ops: {}\n", error.what());
    return 1;
  }
}
