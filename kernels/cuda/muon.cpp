// SPDX-License-Identifier: Apache-2.0
// A step of Newton-Schulz is x := a x + p x with p = b g + c g^2 and g = x x^T, or x := a x + x p
// and g = x^T x where that is smaller. `x` holds a x while its rounded copy is multiplied, so that
// the last product adds to it.
#include "kernels/cuda/muon.h"

#include <algorithm>

#include "core/base/check.h"
#include "kernels/cuda/activation.h"
#include "kernels/cuda/matmul.h"
#include "kernels/cuda/muon_elements.h"
#include "kernels/muon_math.h"

namespace isthmus::cuda {
namespace {

/// A matrix's scratch; made without memory it counts.
struct Scratch {
  Scratch(std::int64_t rows, std::int64_t cols, std::byte* memory) {
    const std::int64_t small = std::min(rows, cols);
    const std::int64_t n = rows * cols;
    take(memory, n, x);
    take(memory, n, rounded);
    take(memory, small * small, gram);
    take(memory, small * small, fourth);
    take(memory, small * small, factor);
    take(memory, 1, squares);
    take(memory, static_cast<std::int64_t>(squared_norm_scratch(n)), partial_squares);
  }
  template <typename T>
  void take(std::byte* memory, std::int64_t n, T*& part) {
    constexpr std::int64_t kAlignment = 256;
    if (memory != nullptr) part = reinterpret_cast<T*>(memory + bytes);
    const auto end = bytes + n * static_cast<std::int64_t>(sizeof(T));
    bytes = (end + kAlignment - 1) / kAlignment * kAlignment;
  }

  std::int64_t bytes = 0;
  float* x = nullptr;         // (rows, cols)
  Bf16* rounded = nullptr;    // the same
  float* gram = nullptr;      // (small, small), as the next two
  float* fourth = nullptr;    // its square
  Bf16* factor = nullptr;     // the Gram matrix rounded, then the polynomial
  double* squares = nullptr;  // of x
  double* partial_squares = nullptr;
};

/// The five steps, of an x that has been normed, rounded and multiplied by a.
void orthogonalize(Stream& stream, Blas& blas, std::int64_t rows, std::int64_t cols,
                   const Scratch& s) {
  const bool tall = rows > cols;
  const std::int64_t small = std::min(rows, cols);
  const std::int64_t n = rows * cols;
  const Bf16* const rounded = s.rounded;
  const Bf16* const factor = s.factor;
  const Matmul gram{.m = small,
                    .n = small,
                    .k = std::max(rows, cols),
                    .a = rounded,
                    .b = rounded,
                    .lda = cols,
                    .ldb = cols,
                    .ldc = small,
                    .a_transposed = tall,
                    .b_transposed = !tall,
                    .c = s.gram,
                    .bias = {},
                    .aux = {}};
  const Matmul fourth{.m = small,
                      .n = small,
                      .k = small,
                      .a = factor,
                      .b = factor,
                      .lda = small,
                      .ldb = small,
                      .ldc = small,
                      .c = s.fourth,
                      .bias = {},
                      .aux = {}};
  const Matmul apply{.m = rows,
                     .n = cols,
                     .k = small,
                     .a = tall ? rounded : factor,
                     .b = tall ? factor : rounded,
                     .lda = small,
                     .ldb = cols,
                     .ldc = cols,
                     .c = s.x,
                     .accumulate = true,
                     .bias = {},
                     .aux = {}};
  for (int step = 0; step < kernels::kNewtonSchulzSteps; ++step) {
    if (step > 0) newton_schulz_round(stream, n, nullptr, s.x, s.rounded);
    blas.matmul(stream, gram);
    convert<float, Bf16>(stream, small * small, s.gram, s.factor);
    blas.matmul(stream, fourth);
    newton_schulz_polynomial(stream, small * small, s.gram, s.fourth, s.factor);
    blas.matmul(stream, apply);
  }
}

}  // namespace

std::int64_t muon_scratch_bytes(std::int64_t rows, std::int64_t cols) {
  return Scratch(rows, cols, nullptr).bytes;
}

void muon_step(Stream& stream, Blas& blas, const MuonRule& rule, const MuonMatrix& matrix,
               const OptimizerArrays& arrays, const StepNumbers* numbers, const double* squares,
               std::byte* scratch) {
  ISTHMUS_CHECK(matrix.rows >= 1 && matrix.cols >= 1, matrix.rows, matrix.cols);
  const Scratch s(matrix.rows, matrix.cols, scratch);
  const std::int64_t n = matrix.rows * matrix.cols;
  muon_direction(stream, rule, matrix, arrays, numbers, squares, s.x);
  squared_norm(stream, n, s.x, s.squares, s.partial_squares);
  newton_schulz_round(stream, n, s.squares, s.x, s.rounded);
  orthogonalize(stream, blas, matrix.rows, matrix.cols, s);
  muon_update(stream, matrix, arrays, numbers, squares, s.x);
}

}  // namespace isthmus::cuda
