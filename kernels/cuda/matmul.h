// SPDX-License-Identifier: Apache-2.0
// Matrix products on the device, row-major, by cuBLASLt (matmul.cpp); emulated/matmul.cpp computes
// them on the CPU for tests. Accumulation is in float for all operand types, never TF32.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "kernels/bf16.h"
#include "kernels/cuda/device.h"

namespace isthmus::cuda {

using kernels::Bf16;

/// A matrix of T or of float; the type is known at run time (kernels/bf16.h).
using MatrixData = kernels::Stored<float>;
using ConstMatrixData = kernels::Stored<const float>;

/// Operation on the product before it is stored.
enum class Epilogue {
  kNone,
  kBias,          // + bias
  kGeluBias,      // aux := product + bias, c := gelu(aux)
  kGeluGradient,  // c := product * gelu'(aux)
};

/// c (m, n) = epilogue(op(a) op(b)) or, with `accumulate`, c + op(a) op(b). a (m, k) and b (k, n),
/// both float or both Bf16, or transposed in memory; ld: distance of rows in memory, in elements. c
/// is float or Bf16; float if a is float. 16-byte aligned pointers and rows (a multiple of 8 Bf16
/// or 4 floats) are fast; others work. REQUIRES: k >= 1.
struct Matmul {
  std::int64_t m = 0, n = 0, k = 0;
  ConstMatrixData a, b;
  std::int64_t lda = 0, ldb = 0, ldc = 0;
  bool a_transposed = false, b_transposed = false;
  MatrixData c;
  bool accumulate = false;  // REQUIRES: kNone, c float, since cuBLASLt would round twice into Bf16
  Epilogue epilogue = Epilogue::kNone;
  ConstMatrixData bias;  // (n,), of c's type: kBias, kGeluBias
  MatrixData aux;        // (m, n), rows ldc apart, of c's type
};

class MatmulTable;
struct MatmulShape;

/// Choice among the algorithms that the library offers for a product, best guess first.
struct BlasOptions {
  int choice = 0;
  /// Choices for single products in place of `choice`; null: those of matmul_table_in_use(), if
  /// `choice` is 0. Shared by the loops of a process, which only read it. REQUIRES: made for this
  /// device and library (MatmulTable::obstacle).
  std::shared_ptr<const MatmulTable> table = nullptr;
};

/// Why matrix products are unavailable, cuBLASLt not being loadable; empty if they are available.
/// Needs no device.
[[nodiscard]] std::string products_missing();

/// The version of cuBLASLt in use, for example "13.1.0": another version may choose algorithms that
/// round differently. THROWS: SystemError as Blas.
[[nodiscard]] std::string products_version();

/// cuBLASLt with its workspace and one chosen algorithm per shape. One thread drives it, on one
/// stream at a time, since its products share the workspace. The algorithm is looked up at the
/// first use of a shape, so a product must have run once before it is captured in a graph.
class Blas {
 public:
  /// THROWS: SystemError naming the package when cuBLASLt cannot be loaded.
  explicit Blas(const BlasOptions& options = {});
  ~Blas();
  Blas(const Blas&) = delete;
  Blas& operator=(const Blas&) = delete;

  /// A choice of the table that the library does not have, or refuses, counts as 0; one log line
  /// reports the first such product. THROWS: SystemError naming the shape when cuBLASLt has no
  /// algorithm for it; DeviceLost, OutOfDeviceMemory.
  void matmul(Stream& stream, const Matmul& product);

  /// True if the library fuses this product's epilogue; else it is a separate pass. THROWS: as
  /// matmul.
  [[nodiscard]] bool fuses(const Matmul& product);

  /// Shapes of the products so far, each once.
  [[nodiscard]] std::vector<MatmulShape> shapes() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace isthmus::cuda
