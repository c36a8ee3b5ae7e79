// SPDX-License-Identifier: Apache-2.0
// The matrix products of a training step, each with every algorithm that cuBLASLt names for its
// shape, one JSON object a line: bench_cuda_products [--only PREFIX] [--device N] [--repetitions
// N]. `choice` 0 is the library's first guess, which training takes. Weight gradients with the
// gradient of a bias are timed as two passes ("sums":"apart") and as one ("sums":"fused"). Times
// are medians of single products between two events, after two that are not counted.
#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string>
#include <string_view>
#include <vector>

#include "cuda_bench.h"
#include "isthmus/errors.h"
#include "kernels/cuda/matmul.h"

namespace isthmus::cuda {
namespace {

constexpr int kChoices = 8;

struct Case {
  const char* op;
  std::int64_t m, n, k;
  bool a_transposed, b_transposed;
  Epilogue epilogue = Epilogue::kNone;
  bool accumulate = false;
};

/// The products of a layer whose matrices are (in, out) with a bias (GPT-2), forward and backward.
void add_conv1d(std::vector<Case>& cases, std::int64_t rows, std::int64_t in, std::int64_t out,
                Epilogue forward, Epilogue backward) {
  cases.push_back({"forward", rows, out, in, false, false, forward});
  cases.push_back({"input_gradient", rows, in, out, false, true, backward});
  cases.push_back({"weight_gradient", in, out, rows, true, false, Epilogue::kNone, true});
}

/// The same of (out, in) matrices without one (Llama, and the heads of both).
void add_linear(std::vector<Case>& cases, std::int64_t rows, std::int64_t in, std::int64_t out) {
  cases.push_back({"forward", rows, out, in, false, true});
  cases.push_back({"input_gradient", rows, in, out, false, false});
  cases.push_back({"weight_gradient", out, in, rows, true, false, Epilogue::kNone, true});
}

std::vector<Case> all_cases() {
  std::vector<Case> cases;
  constexpr std::int64_t kRows = 32768, kHeadRows = 8192;  // GPT-2 124M, 32 windows of 1024
  add_conv1d(cases, kRows, 768, 2304, Epilogue::kBias, Epilogue::kNone);
  add_conv1d(cases, kRows, 768, 768, Epilogue::kBias, Epilogue::kNone);
  add_conv1d(cases, kRows, 768, 3072, Epilogue::kGeluBias, Epilogue::kNone);
  add_conv1d(cases, kRows, 3072, 768, Epilogue::kBias, Epilogue::kGeluGradient);
  add_linear(cases, kHeadRows, 768, 50304);
  constexpr std::int64_t kWideRows = 8192;  // the preset llama-1.3b, 8 windows of 1024
  add_linear(cases, kWideRows, 2048, 2048);
  add_linear(cases, kWideRows, 2048, 6144);
  add_linear(cases, kWideRows, 2048, 11008);
  add_linear(cases, kWideRows, 5504, 2048);
  return cases;
}

/// RETURNS: whether the library names an algorithm for this choice.
bool time_choice(CudaBench& bench, const Case& c, const Matmul& product, int choice) {
  Blas blas({.choice = choice});
  try {
    if (c.epilogue != Epilogue::kNone && !blas.fuses(product)) return false;
    bench.product(
        c.op, fmt::format("{}x{}x{}", c.m, c.n, c.k),
        2.0 * static_cast<double>(c.m * c.n) * static_cast<double>(c.k),
        [&] { blas.matmul(bench.stream, product); }, fmt::format(",\"choice\":{}", choice));
  } catch (const SystemError&) {
    return false;
  }
  return true;
}

void bench_case(CudaBench& bench, const Case& c) {
  if (!bench.wanted(c.op)) return;
  Stream& stream = bench.stream;
  const auto a = uniform(stream, c.m * c.k), b = uniform(stream, c.k * c.n);
  const auto out = zeros<Bf16>(stream, c.accumulate ? 0 : c.m * c.n);
  const auto aux = uniform(stream, c.accumulate ? 1 : c.m * c.n);
  const auto sum = zeros<float>(stream, c.accumulate ? c.m * c.n : 0);
  const auto bias = zeros<Bf16>(stream, c.n);
  const Matmul product{.m = c.m,
                       .n = c.n,
                       .k = c.k,
                       .a = static_cast<const Bf16*>(a.data()),
                       .b = static_cast<const Bf16*>(b.data()),
                       .lda = c.a_transposed ? c.m : c.k,
                       .ldb = c.b_transposed ? c.k : c.n,
                       .ldc = c.n,
                       .a_transposed = c.a_transposed,
                       .b_transposed = c.b_transposed,
                       .c = c.accumulate ? MatrixData(sum.data()) : MatrixData(out.data()),
                       .accumulate = c.accumulate,
                       .epilogue = c.epilogue,
                       .bias = static_cast<const Bf16*>(bias.data()),
                       .aux = c.accumulate ? MatrixData() : MatrixData(aux.data())};
  for (int choice = 0; choice < kChoices && time_choice(bench, c, product, choice); ++choice) {
  }
}

int run(const CudaBenchOptions& options) {
  if (const std::string why = unavailable(); !why.empty()) {
    fmt::print(stderr, "bench_cuda_products: {}\n", why);
    return 4;
  }
  const std::vector<DeviceInfo> all = devices();
  if (options.device < 0 || options.device >= static_cast<int>(all.size())) {
    fmt::print(stderr, "bench_cuda_products: --device {}: this machine has devices 0 to {}\n",
               options.device, all.size() - 1);
    return 2;
  }
  use_device(options.device);
  CudaBench bench(options);
  for (const Case& each : all_cases()) bench_case(bench, each);
  return 0;
}

CudaBenchOptions parse(int argc, char** argv) {
  CudaBenchOptions options;
  for (int i = 1; i < argc; i += 2) {
    const std::string_view flag = argv[i];
    const char* const value = i + 1 < argc ? argv[i + 1] : nullptr;
    if (value != nullptr && flag == "--only") {
      options.only = value;
    } else if (value != nullptr && flag == "--device") {
      options.device = std::atoi(value);
    } else if (value != nullptr && flag == "--repetitions") {
      options.repetitions = std::max(1, std::atoi(value));
    } else {
      fmt::print(stderr,
                 "usage: bench_cuda_products [--only PREFIX] [--device N] [--repetitions N]\n");
      std::exit(2);
    }
  }
  return options;
}

}  // namespace
}  // namespace isthmus::cuda

int main(int argc, char** argv) {
  try {
    return isthmus::cuda::run(isthmus::cuda::parse(argc, argv));
  } catch (const std::exception& error) {
    fmt::print(stderr, "bench_cuda_products: {}\n", error.what());
    return 1;
  }
}
