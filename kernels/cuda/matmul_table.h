// SPDX-License-Identifier: Apache-2.0
// Which of the algorithms that cuBLASLt names for a product a run takes, as a table on disk, made
// once by timing on a device (bench_cuda_matmul_table). A run only reads it: a run that timed would
// have other bits each time. Without a table, and for products that it does not have, a run takes
// the library's first answer.
//
//   isthmus matmul table 1
//   device NVIDIA H100 80GB HBM3, compute capability 9.0
//   cublaslt 13.1.0
//   # m n k lda ldb ldc a_transposed b_transposed operands result accumulate epilogue alignment
//   choice 32768 2304 768 768 2304 2304 0 0 bf16 bf16 0 bias 16 2
//
// A run looks for the file matmul-table.txt beside its program (app/train/matmul_choices.h). An
// index means an algorithm of one version of the library on one kind of device alone, so a table of
// another one is not used. Empty lines, and lines that begin with "#", say nothing.
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

/// How many algorithms the library is asked for, and an index of a table is below.
inline constexpr int kMatmulChoices = 8;

/// All of a product that decides which algorithms there are for it. Sizes and leading dimensions
/// count values, the alignment, a power of two up to 16, bytes.
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
  /// name: of the file, for errors. THROWS: ConfigError naming file, line and what is wrong there.
  [[nodiscard]] static MatmulTable parse(std::string_view text, const std::string& name);

  /// "NVIDIA H100 80GB HBM3, compute capability 9.0".
  [[nodiscard]] static std::string device_of(const DeviceInfo& device);

  /// REQUIRES: 0 <= choice < kMatmulChoices.
  void set(const MatmulShape& shape, int choice);
  [[nodiscard]] std::optional<int> choice(const MatmulShape& shape) const;
  [[nodiscard]] std::size_t size() const { return choices_.size(); }

  /// Why it is no table for this device and this version of the library; empty where it is one.
  [[nodiscard]] std::string obstacle(const std::string& device, const std::string& library) const;
  /// As a file has it: the same table, the same text.
  [[nodiscard]] std::string text() const;

  /// Where it comes from, for people: "matmul-table.txt (58 products, xxh3 ...)".
  void set_source(std::string source) { source_ = std::move(source); }
  [[nodiscard]] const std::string& source() const { return source_; }

 private:
  std::string device_, library_, source_;
  std::map<MatmulShape, int> choices_;
};

/// From now on a Blas that is made takes its choices; null: none does. As kernels::use_isa: once,
/// before loops are made. REQUIRES: it is of all devices of loops (MatmulTable::obstacle). Any
/// thread.
void use_matmul_table(std::shared_ptr<const MatmulTable> table);
[[nodiscard]] std::shared_ptr<const MatmulTable> matmul_table_in_use();

}  // namespace isthmus::cuda
