// SPDX-License-Identifier: Apache-2.0
// Matrix products on the device, row-major, by cuBLASLt (matmul.cpp); emulated/matmul.cpp computes
// them on the CPU for tests. Sums are float whatever the operands are, and never TF32.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "kernels/bf16.h"
#include "kernels/cuda/device.h"

namespace isthmus::cuda {

using kernels::Bf16;

/// A matrix of T or of float, told apart at run time (kernels/bf16.h).
using MatrixData = kernels::Stored<float>;
using ConstMatrixData = kernels::Stored<const float>;

/// What happens to the product before it is stored.
enum class Epilogue {
  kNone,
  kBias,          // + bias
  kGeluBias,      // aux := product + bias, c := gelu(aux)
  kGeluGradient,  // c := product gelu'(aux)
};

/// c (m, n) = epilogue(op(a) op(b)) or, with `accumulate`, c + op(a) op(b).
/// a (m, k) and b (k, n), both float or both Bf16, or transposed in memory; ld: from row to row in
/// memory. c float or Bf16; float where a is float. 16-byte aligned pointers and rows (a multiple
/// of 8 Bf16, 4 floats) are fast; others work. REQUIRES: k >= 1.
struct Matmul {
  std::int64_t m = 0, n = 0, k = 0;
  ConstMatrixData a, b;
  std::int64_t lda = 0, ldb = 0, ldc = 0;
  bool a_transposed = false, b_transposed = false;
  MatrixData c;
  bool accumulate = false;  // REQUIRES: kNone, c float: into Bf16 the library rounds twice
  Epilogue epilogue = Epilogue::kNone;
  ConstMatrixData bias;  // (n,), of c's type: kBias, kGeluBias
  MatrixData aux;        // (m, n), rows ldc apart, of c's type
};

class MatmulTable;
struct MatmulShape;

/// Which of the algorithms that the library names for a product, best guess first, a Blas takes.
struct BlasOptions {
  int choice = 0;
  /// Choices of some products in the place of `choice`; null: those of matmul_table_in_use(), where
  /// `choice` is 0. Shared by the loops of a process, which only read it. REQUIRES: it is of this
  /// device and library (MatmulTable::obstacle).
  std::shared_ptr<const MatmulTable> table = nullptr;
};

/// Why there are no products here: cuBLASLt cannot be loaded; empty where it can. Touches no
/// device.
[[nodiscard]] std::string products_missing();

/// The version of cuBLASLt that computes them here, for example "13.1.0": another one may choose
/// algorithms that round otherwise. THROWS: SystemError as Blas.
[[nodiscard]] std::string products_version();

/// cuBLASLt with its workspace and the algorithms chosen so far, one per shape. Driven by one
/// thread, on one stream at a time, since its products share the workspace. A product's algorithm
/// is looked up when its shape is first seen, so a product must have run once before it is recorded
/// in a graph.
class Blas {
 public:
  /// THROWS: SystemError naming the package where cuBLASLt cannot be loaded.
  explicit Blas(const BlasOptions& options = {});
  ~Blas();
  Blas(const Blas&) = delete;
  Blas& operator=(const Blas&) = delete;

  /// A choice of the table that the library has not, or refuses, counts as 0, and one line of the
  /// log says so, of the first such product. THROWS: SystemError naming the shape where cuBLASLt
  /// has no algorithm for it; DeviceLost, OutOfDeviceMemory.
  void matmul(Stream& stream, const Matmul& product);

  /// Whether the library does the epilogue of this product itself, so that it is no pass of its
  /// own. THROWS: as matmul.
  [[nodiscard]] bool fuses(const Matmul& product);

  /// Of the products so far, each once.
  [[nodiscard]] std::vector<MatmulShape> shapes() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace isthmus::cuda
