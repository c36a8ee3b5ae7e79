// SPDX-License-Identifier: Apache-2.0
// The matrix products of a training step, each with every algorithm that cuBLASLt names for its
// shape, one JSON object a line: bench_cuda_products [--only PREFIX] [--device N] [--repetitions
// N]. `choice` 0 is the library's first guess, which training takes. Weight gradients with the
// gradient of a bias are timed as two passes ("sums":"apart") and as one ("sums":"fused"). Times
// are medians of single products between two events, after two that are not counted.
#include <fmt/format.h>

#include <cstdio>
#include <exception>
#include <string>
#include <string_view>
#include <vector>

#include "cuda_bench_products.h"
#include "isthmus/errors.h"

namespace isthmus::cuda {
namespace {

constexpr int kChoices = 8;

/// The products of a layer whose matrices are (in, out) with a bias (GPT-2), forward and backward.
void add_conv1d(std::vector<ProductCase>& cases, std::int64_t rows, std::int64_t in,
                std::int64_t out, Epilogue forward, Epilogue backward) {
  cases.push_back({"forward", rows, out, in, false, false, false, forward});
  cases.push_back({"input_gradient", rows, in, out, false, true, false, backward});
  cases.push_back({"weight_gradient", in, out, rows, true, false, true});
}

/// The same of (out, in) matrices without one (Llama, and the heads of both).
void add_linear(std::vector<ProductCase>& cases, std::int64_t rows, std::int64_t in,
                std::int64_t out) {
  cases.push_back({"forward", rows, out, in, false, true});
  cases.push_back({"input_gradient", rows, in, out, false, false});
  cases.push_back({"weight_gradient", out, in, rows, true, false, true});
}

std::vector<ProductCase> all_cases() {
  std::vector<ProductCase> cases;
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
bool time_choice(CudaBench& bench, const ProductCase& c, const Matmul& product, int choice) {
  Blas blas({.choice = choice});
  try {
    if (c.epilogue != Epilogue::kNone && !blas.fuses(product)) return false;
    bench.product(
        c.op, c.shape(), c.flop(), [&] { blas.matmul(bench.stream, product); },
        fmt::format(",\"choice\":{}", choice));
  } catch (const SystemError&) {
    return false;
  }
  return true;
}

void bench_case(CudaBench& bench, const ProductCase& c) {
  if (!bench.wanted(c.op)) return;
  const ProductOperands operands(bench.stream, c);
  const Matmul product = operands.product();
  int choice = 0;
  while (choice < kChoices && time_choice(bench, c, product, choice)) ++choice;
}

int run(const CudaBenchOptions& options) {
  if (const int code = open_device("bench_cuda_products", options); code != 0) return code;
  CudaBench bench(options);
  for (const ProductCase& each : all_cases()) bench_case(bench, each);
  return 0;
}

}  // namespace
}  // namespace isthmus::cuda

int main(int argc, char** argv) {
  try {
    return isthmus::cuda::run(isthmus::cuda::parse_bench("bench_cuda_products", argc, argv));
  } catch (const std::exception& error) {
    fmt::print(stderr, "bench_cuda_products: {}\n", error.what());
    return 1;
  }
}
