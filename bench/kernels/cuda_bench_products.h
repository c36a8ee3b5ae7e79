// SPDX-License-Identifier: Apache-2.0
// Matrix products to be timed, with their operands on the device.
#pragma once

#include "cuda_bench.h"
#include "kernels/cuda/matmul.h"

namespace isthmus::cuda {

struct ProductCase {
  const char* op;
  std::int64_t m, n, k;
  bool a_transposed, b_transposed;
  bool accumulate = false;  // into floats; else the result is Bf16
  Epilogue epilogue = Epilogue::kNone;

  [[nodiscard]] std::string shape() const { return fmt::format("{}x{}x{}", m, n, k); }
  [[nodiscard]] double flop() const {
    return 2.0 * static_cast<double>(m * n) * static_cast<double>(k);
  }
};

/// Bf16 operands of a product, filled with values; the result lies here, too.
class ProductOperands {
 public:
  ProductOperands(Stream& stream, const ProductCase& c)
      : case_(c),
        a_(uniform(stream, c.m * c.k)),
        b_(uniform(stream, c.k * c.n)),
        out_(zeros<Bf16>(stream, c.accumulate ? 0 : c.m * c.n)),
        aux_(uniform(stream, c.accumulate ? 1 : c.m * c.n)),
        bias_(zeros<Bf16>(stream, c.n)),
        sum_(zeros<float>(stream, c.accumulate ? c.m * c.n : 0)) {}

  /// Borrows the operands.
  [[nodiscard]] Matmul product() const {
    return {.m = case_.m,
            .n = case_.n,
            .k = case_.k,
            .a = static_cast<const Bf16*>(a_.data()),
            .b = static_cast<const Bf16*>(b_.data()),
            .lda = case_.a_transposed ? case_.m : case_.k,
            .ldb = case_.b_transposed ? case_.k : case_.n,
            .ldc = case_.n,
            .a_transposed = case_.a_transposed,
            .b_transposed = case_.b_transposed,
            .c = case_.accumulate ? MatrixData(sum_.data()) : MatrixData(out_.data()),
            .accumulate = case_.accumulate,
            .epilogue = case_.epilogue,
            .bias = static_cast<const Bf16*>(bias_.data()),
            .aux = case_.accumulate ? MatrixData() : MatrixData(aux_.data())};
  }

 private:
  ProductCase case_;
  DeviceArray<Bf16> a_, b_, out_, aux_, bias_;
  DeviceArray<float> sum_;
};

}  // namespace isthmus::cuda
