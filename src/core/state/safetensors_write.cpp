// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "core/base/check.h"
#include "core/state/safetensors.h"
#include "core/state/state_memory.h"

namespace isthmus {
namespace {

std::string quoted(const std::string& text) { return nlohmann::json(text).dump(); }

// The header as the reference writer prints it: metadata first, then tensors in data order,
// compact.
std::string header_text(const std::vector<TensorToWrite>& tensors,
                        const SafetensorsMetadata& metadata) {
  std::string text = "{";
  if (!metadata.empty()) text += "\"__metadata__\":" + nlohmann::json(metadata).dump();
  std::uint64_t at = 0;
  for (const TensorToWrite& tensor : tensors) {
    if (text.size() > 1) text += ',';
    text += quoted(tensor.name) + ":{\"dtype\":\"" + std::string(dtype_name(tensor.dtype)) +
            "\",\"shape\":" + nlohmann::json(tensor.shape).dump() + ",\"data_offsets\":[" +
            std::to_string(at) + ',' + std::to_string(at + tensor.bytes.size()) + "]}";
    at += tensor.bytes.size();
  }
  text += '}';
  text.resize((text.size() + 7) / 8 * 8, ' ');
  return text;
}

void check_tensors(const std::vector<TensorToWrite>& sorted) {
  std::vector<std::string> names;
  for (const TensorToWrite& tensor : sorted) {
    std::uint64_t elements = 1;
    for (const std::int64_t extent : tensor.shape) elements *= static_cast<std::uint64_t>(extent);
    ISTHMUS_CHECK(
        elements * static_cast<std::uint64_t>(dtype_bits(tensor.dtype)) == 8 * tensor.bytes.size(),
        tensor.name, elements, tensor.bytes.size());
    ISTHMUS_CHECK(tensor.name != "__metadata__");
    names.push_back(tensor.name);
  }
  std::sort(names.begin(), names.end());
  const auto twice = std::adjacent_find(names.begin(), names.end());
  ISTHMUS_CHECK(twice == names.end(), *twice);
}

}  // namespace

TensorToWrite float_tensor(std::string name, std::vector<std::int64_t> shape,
                           std::span<const float> values) {
  return {std::move(name), DType::kF32, std::move(shape), std::as_bytes(values)};
}

void write_safetensors(WritableFile& file, std::vector<TensorToWrite> tensors,
                       const SafetensorsMetadata& metadata) {
  std::sort(tensors.begin(), tensors.end(), [](const TensorToWrite& a, const TensorToWrite& b) {
    // The reference orders dtypes of one size by its enumeration, which ours repeats.
    return a.dtype != b.dtype ? a.dtype > b.dtype : a.name < b.name;
  });
  check_tensors(tensors);
  const std::string header = header_text(tensors, metadata);
  const std::uint64_t length = header.size();
  file.append(std::as_bytes(std::span(&length, 1)));
  file.append(as_bytes(header));
  for (const TensorToWrite& tensor : tensors) {
    if (tensor.bytes.empty()) continue;
    if (tensor.dtype != DType::kF32) {
      file.append(tensor.bytes);
      continue;
    }
    const std::span<const float> values(reinterpret_cast<const float*>(tensor.bytes.data()),
                                        tensor.bytes.size() / sizeof(float));
    StateWalk walk(values.size(), ranges_of(values, StateUse::kRead));
    walk.run([&](std::size_t begin, std::size_t end) {
      file.append(std::as_bytes(values.subspan(begin, end - begin)));
    });
  }
}

void write_safetensors(Storage& storage, const std::filesystem::path& path,
                       std::vector<TensorToWrite> tensors, const SafetensorsMetadata& metadata) {
  write_atomically(storage, path, [&](WritableFile& file) {
    write_safetensors(file, std::move(tensors), metadata);
  });
}

}  // namespace isthmus
