// SPDX-License-Identifier: Apache-2.0
// The reader; the writer is in safetensors_write.cpp.
#include "core/state/safetensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <tuple>
#include <utility>

#include "core/base/check.h"
#include "core/base/git_pointer.h"
#include "core/base/json_input.h"
#include "isthmus/errors.h"

namespace isthmus {
namespace {

static_assert(std::endian::native == std::endian::little, "files are little-endian");

constexpr std::uint64_t kMaxHeaderBytes = 100'000'000;  // the reference reader's limit

struct DTypeRow {
  DType dtype;
  std::string_view name;
  int bits;
};
constexpr std::array<DTypeRow, 18> kDTypes = {{
    {DType::kBool, "BOOL", 8},
    {DType::kU8, "U8", 8},
    {DType::kI8, "I8", 8},
    {DType::kF8E5M2, "F8_E5M2", 8},
    {DType::kF8E4M3, "F8_E4M3", 8},
    {DType::kF8E8M0, "F8_E8M0", 8},
    {DType::kF4, "F4", 4},
    {DType::kI16, "I16", 16},
    {DType::kU16, "U16", 16},
    {DType::kF16, "F16", 16},
    {DType::kBF16, "BF16", 16},
    {DType::kI32, "I32", 32},
    {DType::kU32, "U32", 32},
    {DType::kF32, "F32", 32},
    {DType::kC64, "C64", 64},
    {DType::kF64, "F64", 64},
    {DType::kI64, "I64", 64},
    {DType::kU64, "U64", 64},
}};

const DTypeRow& row(DType dtype) {
  const auto* found = std::find_if(kDTypes.begin(), kDTypes.end(),
                                   [&](const DTypeRow& r) { return r.dtype == dtype; });
  ISTHMUS_CHECK(found != kDTypes.end());
  return *found;
}

[[noreturn]] void bad_file(const std::string& label, const std::string& defect) {
  throw SystemError(label + ": not a usable safetensors file: " + defect);
}

std::uint64_t unsigned_at(const nlohmann::json& value, const std::string& label,
                          const std::string& what) {
  if (!value.is_number_unsigned()) bad_file(label, what + " is not an unsigned integer");
  return value.get<std::uint64_t>();
}

// Bytes of a tensor; nothing when the product leaves 63 bits.
std::optional<std::uint64_t> byte_size(const SafetensorsEntry& entry) {
  std::uint64_t elements = 1;
  for (const std::int64_t extent : entry.shape) {
    if (__builtin_mul_overflow(elements, static_cast<std::uint64_t>(extent), &elements)) return {};
  }
  std::uint64_t bits = 0;
  if (__builtin_mul_overflow(elements, static_cast<std::uint64_t>(dtype_bits(entry.dtype)),
                             &bits) ||
      bits % 8 != 0) {
    return {};
  }
  return bits / 8;
}

SafetensorsEntry parse_entry(const std::string& name, const nlohmann::json& value,
                             const std::string& label) {
  const std::string what = "tensor \"" + name + "\"";
  if (!value.is_object()) bad_file(label, what + " is not described by an object");
  for (const auto& item : value.items()) {
    if (item.key() != "dtype" && item.key() != "shape" && item.key() != "data_offsets") {
      bad_file(label, what + " has an unknown key \"" + item.key() + "\"");
    }
  }
  if (value.size() != 3) bad_file(label, what + " lacks one of dtype, shape, data_offsets");
  SafetensorsEntry entry;
  entry.name = name;
  const auto& dtype = value.at("dtype");
  const auto* known = std::find_if(kDTypes.begin(), kDTypes.end(), [&](const DTypeRow& r) {
    return dtype.is_string() && r.name == dtype.get_ref<const std::string&>();
  });
  if (known == kDTypes.end()) bad_file(label, what + " has the unknown dtype " + dtype.dump());
  entry.dtype = known->dtype;
  const auto& shape = value.at("shape");
  if (!shape.is_array()) bad_file(label, what + ": shape is not a list");
  for (const auto& extent : shape) {
    const std::uint64_t size = unsigned_at(extent, label, what + ": an extent of its shape");
    if (size > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) {
      bad_file(label, what + ": an extent of its shape is too large");
    }
    entry.shape.push_back(static_cast<std::int64_t>(size));
  }
  const auto& offsets = value.at("data_offsets");
  if (!offsets.is_array() || offsets.size() != 2) {
    bad_file(label, what + ": data_offsets is not a pair [begin, end]");
  }
  entry.begin = unsigned_at(offsets[0], label, what + ": data_offsets[0]");
  entry.end = unsigned_at(offsets[1], label, what + ": data_offsets[1]");
  return entry;
}

// Tensors, in the order of their bytes, must cover the data exactly.
void check_layout(const std::vector<SafetensorsEntry>& entries, std::uint64_t data_size,
                  const std::string& label) {
  std::uint64_t at = 0;
  for (const SafetensorsEntry& entry : entries) {
    if (entry.end < entry.begin || entry.end > data_size) {
      bad_file(label, fmt::format("tensor \"{}\" lies at bytes {} to {} of {} (truncated file?)",
                                  entry.name, entry.begin, entry.end, data_size));
    }
    const auto size = byte_size(entry);
    if (!size || *size != entry.end - entry.begin) {
      bad_file(label, fmt::format("tensor \"{}\" has {} bytes, its shape and dtype need {}",
                                  entry.name, entry.end - entry.begin,
                                  size ? fmt::format("{}", *size) : std::string("more than fits")));
    }
    if (entry.begin != at) {
      bad_file(label,
               fmt::format("tensor \"{}\" begins at byte {}, the one before ends at {} ({})",
                           entry.name, entry.begin, at, entry.begin < at ? "overlap" : "hole"));
    }
    at = entry.end;
  }
  if (at != data_size) {
    bad_file(label,
             fmt::format("its tensors end at byte {} of {} (trailing bytes)", at, data_size));
  }
}

float half_to_float(std::uint16_t half) {
  const std::uint32_t sign = static_cast<std::uint32_t>(half & 0x8000) << 16;
  const std::uint32_t exponent = half >> 10 & 0x1f;
  const std::uint32_t fraction = half & 0x3ff;
  if (exponent == 0) {
    const float magnitude = std::ldexp(static_cast<float>(fraction), -24);
    return std::bit_cast<float>(std::bit_cast<std::uint32_t>(magnitude) | sign);
  }
  const std::uint32_t wide = exponent == 31 ? 255 : exponent + 112;
  return std::bit_cast<float>(sign | wide << 23 | fraction << 13);
}

}  // namespace

std::string_view dtype_name(DType dtype) { return row(dtype).name; }
int dtype_bits(DType dtype) { return row(dtype).bits; }

std::int64_t SafetensorsEntry::elements() const {
  std::int64_t product = 1;
  for (const std::int64_t extent : shape) product *= extent;
  return product;
}

Safetensors Safetensors::open(const Storage& storage, const std::filesystem::path& path) {
  MappedFile file = storage.map(path);
  constexpr std::size_t kPointerBytes = 1024;  // of the largest; a copy of all would be a model's
  const std::span<const std::byte> bytes = file.bytes();
  refuse_git_pointer(as_text(bytes.first(std::min(bytes.size(), kPointerBytes))), path.string());
  Safetensors tensors = parse(file.bytes(), path.string());
  tensors.file_ = std::move(file);
  return tensors;
}

Safetensors Safetensors::keep(std::vector<std::byte> bytes, std::size_t begin, std::string label) {
  Safetensors tensors = parse(std::span(bytes).subspan(begin), std::move(label));
  tensors.kept_ = std::move(bytes);
  return tensors;
}

Safetensors Safetensors::parse(std::span<const std::byte> bytes, std::string label) {
  Safetensors result;
  result.label_ = std::move(label);
  const std::string& where = result.label_;
  std::uint64_t header_bytes = 0;
  if (bytes.size() < sizeof header_bytes) {
    bad_file(where,
             fmt::format("it has {} bytes, fewer than the 8 of its length field", bytes.size()));
  }
  std::memcpy(&header_bytes, bytes.data(), sizeof header_bytes);
  if (header_bytes > kMaxHeaderBytes) {
    bad_file(where,
             fmt::format("header of {} bytes is over the limit of {} (another kind of file?)",
                         header_bytes, kMaxHeaderBytes));
  }
  if (header_bytes > bytes.size() - sizeof header_bytes) {
    bad_file(where, fmt::format("header of {} bytes does not fit in the file's {} (truncated?)",
                                header_bytes, bytes.size()));
  }
  const std::string text = as_text(bytes.subspan(sizeof header_bytes, header_bytes));
  if (text.empty() || text.front() != '{') bad_file(where, "its header does not begin with {");
  const nlohmann::json header = parse_json(text, where);
  result.data_ = bytes.subspan(sizeof header_bytes + header_bytes);
  for (const auto& item : header.items()) {
    if (item.key() != "__metadata__") {
      result.entries_.push_back(parse_entry(item.key(), item.value(), where));
      continue;
    }
    if (!item.value().is_object()) bad_file(where, "__metadata__ is not an object");
    for (const auto& note : item.value().items()) {
      if (!note.value().is_string()) {
        bad_file(where, "__metadata__ key \"" + note.key() + "\" is not a string");
      }
      result.metadata_.emplace(note.key(), note.value().get<std::string>());
    }
  }
  std::sort(result.entries_.begin(), result.entries_.end(), [](const auto& a, const auto& b) {
    return std::tie(a.begin, a.end, a.name) < std::tie(b.begin, b.end, b.name);
  });
  check_layout(result.entries_, result.data_.size(), where);
  for (std::size_t i = 0; i < result.entries_.size(); ++i) {
    result.by_name_.emplace(result.entries_[i].name, i);
  }
  return result;
}

const SafetensorsEntry* Safetensors::find(std::string_view name) const {
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? nullptr : &entries_[found->second];
}

std::span<const std::byte> Safetensors::bytes(const SafetensorsEntry& entry) const {
  return data_.subspan(entry.begin, entry.end - entry.begin);
}

void Safetensors::read_floats(const SafetensorsEntry& entry, std::span<float> out) const {
  ISTHMUS_CHECK(static_cast<std::int64_t>(out.size()) == entry.elements(), entry.name, out.size());
  read_part(entry, 0, out);
}

void Safetensors::read_part(const SafetensorsEntry& entry, std::int64_t first,
                            std::span<float> out) const {
  const auto count = static_cast<std::int64_t>(out.size());
  ISTHMUS_CHECK(first >= 0 && first <= entry.elements() - count, entry.name, first, count);
  const std::byte* const from =
      bytes(entry).data() + static_cast<std::size_t>(first) * dtype_bits(entry.dtype) / 8;
  if (entry.dtype == DType::kF32) {
    if (!out.empty()) std::memcpy(out.data(), from, out.size_bytes());
    return;
  }
  if (entry.dtype != DType::kF16 && entry.dtype != DType::kBF16) {
    bad_file(label_, fmt::format("tensor \"{}\" has dtype {}; F32, F16 or BF16 is needed",
                                 entry.name, dtype_name(entry.dtype)));
  }
  for (std::size_t i = 0; i < out.size(); ++i) {
    std::uint16_t value = 0;
    std::memcpy(&value, from + 2 * i, sizeof value);
    out[i] = entry.dtype == DType::kF16
                 ? half_to_float(value)
                 : std::bit_cast<float>(static_cast<std::uint32_t>(value) << 16);
  }
}

}  // namespace isthmus
