// SPDX-License-Identifier: Apache-2.0
// The choice among cuBLASLt's algorithms for each matrix product, as a table on disk, made once by
// timing on a device (bench_cuda_matmul_table). A run only reads it: a run that timed would have
// different bits each time. Without a table, and for products not in it, a run takes the library's
// first choice.
//
//   isthmus matmul table 1
//   device NVIDIA H100 80GB HBM3, compute capability 9.0
//   cublaslt 13.1.0
//   # m n k lda ldb ldc a_transposed b_transposed operands result accumulate epilogue alignment
//   choice 32768 2304 768 768 2304 2304 0 0 bf16 bf16 0 bias 16 2
//
// A run looks for the file matmul-table.txt beside its program (app/train/matmul_choices.h). An
// index identifies an algorithm only for one version of the library on one device model, so a table
// for another one is not used. Empty lines and lines that begin with "#" are ignored.
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "kernels/cuda/matmul.h"

namespace isthmus::cuda {

/// Number of algorithms requested from the library; indices of a table are below it.
inline constexpr int kMatmulChoices = 8;

/// The properties of a product that determine its available algorithms. Sizes and leading
/// dimensions count values; the alignment, a power of two up to 16, counts bytes.
struct MatmulShape {
  std::int64_t m = 0, n = 0, k = 0;
  std::int64_t lda = 0, ldb = 0, ldc = 0;
  bool a_transposed = false, b_transposed = false;
  bool bf16_operands = false, bf16_result = false;
  bool accumulate = false;
  Epilogue epilogue = Epilogue::kNone;
  std::size_t alignment = 16;
  auto operator<=>(const MatmulShape&) const = default;
};
[[nodiscard]] MatmulShape shape_of(const Matmul& product);

class MatmulTable {
 public:
  /// device: as device_of. library: as products_version.
  MatmulTable(std::string device, std::string library);
  /// name: of the file, for errors. THROWS: ConfigError naming file, line and defect.
  [[nodiscard]] static MatmulTable parse(std::string_view text, const std::string& name);

  /// "NVIDIA H100 80GB HBM3, compute capability 9.0".
  [[nodiscard]] static std::string device_of(const DeviceInfo& device);

  /// REQUIRES: 0 <= choice < kMatmulChoices.
  void set(const MatmulShape& shape, int choice);
  [[nodiscard]] std::optional<int> choice(const MatmulShape& shape) const;
  [[nodiscard]] std::size_t size() const { return choices_.size(); }

  /// Why the table is not for this device and this version of the library; empty if it is.
  [[nodiscard]] std::string obstacle(const std::string& device, const std::string& library) const;
  /// The table as a file's text: equal tables have equal texts.
  [[nodiscard]] std::string text() const;

  /// The table's origin, for people: "matmul-table.txt (58 products, xxh3 ...)".
  void set_source(std::string source) { source_ = std::move(source); }
  [[nodiscard]] const std::string& source() const { return source_; }

 private:
  std::string device_, library_, source_;
  std::map<MatmulShape, int> choices_;
};

/// Sets the table of all Blas objects made from now on; null: none. As kernels::use_isa: once,
/// before loops are made. REQUIRES: the table fits all devices of loops (MatmulTable::obstacle).
/// Any thread.
void use_matmul_table(std::shared_ptr<const MatmulTable> table);
[[nodiscard]] std::shared_ptr<const MatmulTable> matmul_table_in_use();

}  // namespace isthmus::cuda
