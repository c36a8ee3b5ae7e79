// SPDX-License-Identifier: Apache-2.0
// The safetensors container: u64 little-endian header length, JSON header padded to a multiple of
// eight, then the tensors' bytes without holes (https://github.com/huggingface/safetensors).
// The reader trusts nothing; the writer gives the reference writer's bytes. Readers are immutable
// and may be used from any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/storage.h"

namespace isthmus {

/// In the reference writer's order, which decides the order of tensors in a file.
enum class DType {
  kBool,
  kF4,
  kU8,
  kI8,
  kF8E5M2,
  kF8E4M3,
  kF8E8M0,
  kI16,
  kU16,
  kF16,
  kBF16,
  kI32,
  kU32,
  kF32,
  kC64,
  kF64,
  kI64,
  kU64,
};
/// Spelling of a dtype: "F32", "BF16", ...
[[nodiscard]] std::string_view dtype_name(DType dtype);
[[nodiscard]] int dtype_bits(DType dtype);

struct SafetensorsEntry {
  std::string name;
  DType dtype = DType::kF32;
  std::vector<std::int64_t> shape;
  std::uint64_t begin = 0;  // offset of its bytes from the start of the data
  std::uint64_t end = 0;
  [[nodiscard]] std::int64_t elements() const;
};

/// One file, read.
class Safetensors {
 public:
  /// Maps and checks the file. THROWS: SystemError naming the file and the defect.
  [[nodiscard]] static Safetensors open(const Storage& storage, const std::filesystem::path& path);
  /// Checks `bytes`, which are borrowed; `label` names them in errors. THROWS: SystemError.
  [[nodiscard]] static Safetensors parse(std::span<const std::byte> bytes, std::string label);
  /// As above for the bytes after the first `begin` of `bytes`; keeps `bytes`.
  /// REQUIRES: begin <= bytes.size().
  [[nodiscard]] static Safetensors keep(std::vector<std::byte> bytes, std::size_t begin,
                                        std::string label);

  /// In the order of their bytes.
  [[nodiscard]] const std::vector<SafetensorsEntry>& entries() const { return entries_; }
  /// Null if there is no tensor of that name.
  [[nodiscard]] const SafetensorsEntry* find(std::string_view name) const;
  [[nodiscard]] std::span<const std::byte> bytes(const SafetensorsEntry& entry) const;
  /// F32, F16 and BF16 as float32, exactly. REQUIRES: out.size() == entry.elements().
  /// THROWS: SystemError for another dtype.
  void read_floats(const SafetensorsEntry& entry, std::span<float> out) const;
  /// The values from `first` on. REQUIRES: they are the entry's.
  void read_part(const SafetensorsEntry& entry, std::int64_t first, std::span<float> out) const;
  [[nodiscard]] const std::map<std::string, std::string>& metadata() const { return metadata_; }
  [[nodiscard]] const std::string& label() const { return label_; }

 private:
  std::string label_;
  MappedFile file_;              // empty when the bytes are borrowed or kept
  std::vector<std::byte> kept_;  // in place of file_; a move does not change their address
  std::span<const std::byte> data_;
  std::vector<SafetensorsEntry> entries_;
  std::map<std::string, std::size_t, std::less<>> by_name_;
  std::map<std::string, std::string> metadata_;
};

/// A model in one file or several: `model.safetensors`, or `model.safetensors.index.json` with its
/// shards.
class SafetensorsModel {
 public:
  /// `path`: a folder, a .safetensors file or an index file. THROWS: SystemError naming the missing
  /// or inconsistent thing.
  [[nodiscard]] static SafetensorsModel open(const Storage& storage,
                                             const std::filesystem::path& path);
  struct Place {
    const Safetensors* file = nullptr;
    const SafetensorsEntry* entry = nullptr;
  };
  /// All tensors by name; pointers stay valid for the model's life, moves included.
  [[nodiscard]] const std::map<std::string, Place>& tensors() const { return tensors_; }

 private:
  std::vector<std::unique_ptr<Safetensors>> files_;
  std::map<std::string, Place> tensors_;
};

/// A tensor to write; its bytes are borrowed until the write returns.
struct TensorToWrite {
  std::string name;
  DType dtype = DType::kF32;
  std::vector<std::int64_t> shape;
  std::span<const std::byte> bytes;
};
[[nodiscard]] TensorToWrite float_tensor(std::string name, std::vector<std::int64_t> shape,
                                         std::span<const float> values);

using SafetensorsMetadata = std::map<std::string, std::string>;

/// Writes by descending element size, then by name, as the reference writer does. Tensors go to the
/// file straight from their spans. REQUIRES: distinct names; bytes that match dtype and shape.
void write_safetensors(WritableFile& file, std::vector<TensorToWrite> tensors,
                       const SafetensorsMetadata& metadata = {{"format", "pt"}});
/// The same into `path`, atomically.
void write_safetensors(Storage& storage, const std::filesystem::path& path,
                       std::vector<TensorToWrite> tensors,
                       const SafetensorsMetadata& metadata = {{"format", "pt"}});

}  // namespace isthmus
