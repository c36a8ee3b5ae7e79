// SPDX-License-Identifier: Apache-2.0
#include "cuda_bench_optimizers.h"

#include <vector>

#include "kernels/cuda/activation.h"
#include "kernels/cuda/matmul.h"
#include "kernels/cuda/muon.h"
#include "kernels/cuda/optimizer.h"
#include "kernels/muon.h"

namespace isthmus::cuda {

void bench_optimizer(CudaBench& bench) {
  Stream& stream = bench.stream;
  constexpr std::int64_t kParameters = 124'439'808;  // GPT-2's
  const auto values = zeros<float>(stream, kParameters),
             gradients = zeros<float>(stream, kParameters);
  const auto first = zeros<float>(stream, kParameters), second = zeros<float>(stream, kParameters);
  const auto working = zeros<Bf16>(stream, kParameters);
  const auto squares = zeros<double>(stream, 1);
  const auto scratch =
      zeros<double>(stream, static_cast<std::int64_t>(squared_norm_scratch(kParameters)));
  const DeviceArray<StepNumbers> numbers(1);
  const StepNumbers step = adamw_numbers({.lr = 1e-4}, 1);
  const ParameterRun all{0, kParameters, 0.1};
  const std::vector<ParameterRun> parts = parts_of({&all, 1});
  const DeviceArray<ParameterRun> parts_device(parts.size());
  copy(stream, numbers.data(), &step, 1);
  copy(stream, parts_device.data(), parts.data(), parts.size());
  stream.synchronize();
  const OptimizerArrays arrays{values.data(), gradients.data(), first.data(), second.data(),
                               working.data()};
  const std::string shape = fmt::format("{}", kParameters);
  constexpr std::size_t kBytesAnUpdate = 30;
  bench.memory("squared_norm", shape, gradients.bytes(), [&] {
    squared_norm(stream, kParameters, gradients.data(), squares.data(), scratch.data());
  });
  bench.memory("adamw", shape, kBytesAnUpdate * values.size(), [&] {
    adamw_step(stream, {parts_device.data(), static_cast<std::int64_t>(parts.size())}, arrays,
               numbers.data(), squares.data());
  });
}

// Products with what lies between them: what Muon adds to AdamW's time.
void bench_muon(CudaBench& bench) {
  if (!bench.wanted("muon")) return;
  Stream& stream = bench.stream;
  Blas blas;
  struct Shape {
    std::int64_t rows, cols;
  };
  for (const Shape& s : {Shape{768, 768}, {768, 3072}, {2048, 2048}, {5632, 2048}}) {
    const std::int64_t n = s.rows * s.cols;
    const auto values = zeros<float>(stream, n), buffer = zeros<float>(stream, n);
    const auto working = zeros<Bf16>(stream, n), noise = uniform(stream, n);
    const DeviceArray<float> gradients(values.size());
    convert<Bf16, float>(stream, n, noise.data(), gradients.data());
    const auto squares = zeros<double>(stream, 1);
    const auto scratch = zeros<std::byte>(stream, muon_scratch_bytes(s.rows, s.cols));
    const DeviceArray<StepNumbers> numbers(1);
    const StepNumbers step = adamw_numbers({.lr = 1e-4}, 1);
    copy(stream, numbers.data(), &step, 1);
    stream.synchronize();
    const OptimizerArrays arrays{.values = values.data(),
                                 .gradients = gradients.data(),
                                 .first = buffer.data(),
                                 .working = working.data()};
    const MuonMatrix matrix{.rows = s.rows, .cols = s.cols, .weight_decay = 0.1};
    bench.product("muon", text(s.rows, s.cols), kernels::muon_flops(s.rows, s.cols), [&] {
      muon_step(stream, blas, {}, matrix, arrays, numbers.data(), squares.data(), scratch.data());
    });
  }
}

}  // namespace isthmus::cuda
