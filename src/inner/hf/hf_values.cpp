// SPDX-License-Identifier: Apache-2.0
#include "inner/hf/hf_values.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <numeric>
#include <string_view>

#include "core/base/mapped_files.h"
#include "inner/hf/hf_config.h"
#include "inner/model/rope.h"
#include "isthmus/errors.h"

namespace isthmus {
namespace {

/// Counts the values of which all bits of `exponent` are set, and finds the first.
template <typename Bits>
std::pair<std::int64_t, std::int64_t> count_not_finite(std::span<const std::byte> bytes,
                                                       Bits exponent) {
  std::int64_t count = 0;
  std::int64_t first = -1;
  const auto n = static_cast<std::int64_t>(bytes.size() / sizeof(Bits));
  for (std::int64_t i = 0; i < n; ++i) {
    Bits bits;
    std::memcpy(&bits, bytes.data() + static_cast<std::size_t>(i) * sizeof(Bits), sizeof(Bits));
    if ((bits & exponent) != exponent) continue;
    if (count++ == 0) first = i;
  }
  return {count, first};
}

std::pair<std::int64_t, std::int64_t> count_not_finite(const SafetensorsModel::Place& place) {
  const std::span<const std::byte> bytes = place.file->bytes(*place.entry);
  switch (place.entry->dtype) {
    case DType::kF32:
      return count_not_finite<std::uint32_t>(bytes, 0x7F800000U);
    case DType::kF16:
      return count_not_finite<std::uint16_t>(bytes, 0x7C00);
    case DType::kBF16:
      return count_not_finite<std::uint16_t>(bytes, 0x7F80);
    default:
      return {0, -1};
  }
}

/// Indices of value `at`, the last of them fastest.
std::vector<std::int64_t> indices(const std::vector<std::int64_t>& shape, std::int64_t at) {
  std::vector<std::int64_t> result(shape.size());
  for (std::size_t i = shape.size(); i-- > 0;) {
    result[i] = at % shape[i];
    at /= shape[i];
  }
  return result;
}

std::vector<float> floats_of(const SafetensorsModel::Place& place) {
  std::vector<float> values(static_cast<std::size_t>(place.entry->elements()));
  if (dtype_bits(place.entry->dtype) == 8) {  // masks are also stored as bytes and truth values
    const std::span<const std::byte> bytes = place.file->bytes(*place.entry);
    std::ranges::transform(bytes, values.begin(),
                           [](std::byte b) { return static_cast<float>(b); });
  } else {
    place.file->read_floats(*place.entry, values);
  }
  return values;
}

[[noreturn]] void refuse(const PlacedTensor& tensor, const std::string& cause,
                         const std::string& remedy) {
  throw SystemError(fmt::format("{}: tensor {} {}; {}", tensor.second.file->label(),
                                tensor.second.entry->name, cause, remedy));
}

constexpr const char* kRemoveBuffer =
    "our models compute such a tensor themselves and do not read it: remove it from the file if "
    "config.json is right";

void check_mask(const PlacedTensor& mask) {
  const std::vector<std::int64_t>& shape = mask.second.entry->shape;
  const std::int64_t n = shape.empty() ? 0 : shape.back();
  constexpr std::int64_t kMostPositions = std::int64_t{1}
                                          << 31;  // the square of the bound still fits
  if (n < 1 || n >= kMostPositions || mask.second.entry->elements() != n * n) {
    refuse(mask, fmt::format("of shape [{}] is no causal mask", fmt::join(shape, ", ")),
           kRemoveBuffer);
  }
  const std::vector<float> values = floats_of(mask.second);
  for (std::int64_t i = 0; i < n * n; ++i) {
    const bool seen = i % n <= i / n;
    const float value = values[static_cast<std::size_t>(i)];
    if (value == (seen ? 1.0F : 0.0F)) continue;
    refuse(mask,
           fmt::format("is no causal mask: row {}, column {} is {} instead of {}", i / n, i % n,
                       value, seen ? 1 : 0),
           kRemoveBuffer);
  }
}

void check_masked_value(const PlacedTensor& tensor) {
  constexpr float kMasks = -9000;  // stored as -1e4 or -1e9, some as half precision
  for (const float value : floats_of(tensor.second)) {
    if (!(value <= kMasks)) {  // NaN masks nothing either
      refuse(tensor, fmt::format("is {}, and masks nothing (-10000 would)", value), kRemoveBuffer);
    }
  }
}

void check_frequencies(const Storage& storage, const std::filesystem::path& folder,
                       const PlacedTensor& tensor) {
  const std::vector<float> values = floats_of(tensor.second);
  const ModelConfig model = read_hf_config(storage, folder).model;
  const std::vector<double> frequencies = rope_frequencies(model_shape(model, model.context));
  const auto head_dim = 2 * static_cast<std::int64_t>(frequencies.size());
  if (values.size() != frequencies.size()) {
    refuse(tensor,
           fmt::format("has {} frequencies, and heads of {} values, as config.json says, have {}",
                       values.size(), head_dim, head_dim / 2),
           kRemoveBuffer);
  }
  // Some were computed in half precision and are kept in single.
  constexpr double kRounding = 1e-2;
  constexpr double kLeastHalf = 0x1p-24;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const double ours = frequencies[i];
    if (std::abs(static_cast<double>(values[i]) - ours) <= kRounding * ours + kLeastHalf) {
      continue;
    }
    refuse(tensor,
           fmt::format("has frequency {} at {}, and rope_theta = {} of config.json gives {:.6g}",
                       values[i], i, model.rope_theta, ours),
           kRemoveBuffer);
  }
}

bool ends_with(std::string_view text, std::string_view end) { return text.ends_with(end); }

/// GPT-2's mask, and GPT-NeoX's.
bool is_mask(std::string_view name) {
  return ends_with(name, ".attn.bias") || ends_with(name, ".attention.bias");
}

}  // namespace

void check_finite(std::span<const PlacedTensor> tensors) {
  const PlacedTensor* first = nullptr;
  std::pair<std::int64_t, std::int64_t> found;
  std::int64_t others = 0;
  for (const PlacedTensor& tensor : tensors) {
    const auto here = count_not_finite(tensor.second);
    leave_mapped_pages(tensor.second.file->bytes(*tensor.second.entry));
    if (here.first == 0) continue;
    if (first != nullptr) {
      ++others;
      continue;
    }
    first = &tensor;
    found = here;
  }
  if (first == nullptr) return;
  const SafetensorsEntry& entry = *first->second.entry;
  const float value = floats_of(first->second)[static_cast<std::size_t>(found.second)];
  refuse(*first,
         fmt::format("holds {} at [{}] ({} of its {} values are not finite{})",
                     std::isnan(value) ? "NaN" : "infinity",
                     fmt::join(indices(entry.shape, found.second), ", "), found.first,
                     entry.elements(),
                     others == 0 ? "" : fmt::format(", and some of {} other tensors", others)),
         "no model can begin from such weights: take a copy from before they broke");
}

bool is_hf_buffer(std::string_view name) {
  return is_mask(name) || ends_with(name, ".attn.masked_bias") ||
         ends_with(name, ".attention.masked_bias") || ends_with(name, "rotary_emb.inv_freq");
}

void check_hf_buffer(const Storage& storage, const std::filesystem::path& folder,
                     const PlacedTensor& buffer) {
  const DType dtype = buffer.second.entry->dtype;
  const bool readable = dtype == DType::kF32 || dtype == DType::kF16 || dtype == DType::kBF16 ||
                        dtype == DType::kBool || dtype == DType::kU8;
  if (!readable) {
    refuse(buffer, fmt::format("is of type {}", dtype_name(dtype)), kRemoveBuffer);
  }
  if (is_mask(buffer.first)) {
    check_mask(buffer);
  } else if (ends_with(buffer.first, ".masked_bias")) {
    check_masked_value(buffer);
  } else {
    check_frequencies(storage, folder, buffer);
  }
}

void check_tied_head(const PlacedTensor& head, const PlacedTensor& embedding) {
  constexpr const char* kWays =
      "set \"tie_word_embeddings\": false in config.json to keep this head, or remove the tensor "
      "from the file to use the embedding for it";
  const DType dtype = head.second.entry->dtype;
  if (head.second.entry->shape != embedding.second.entry->shape ||
      (dtype != DType::kF32 && dtype != DType::kF16 && dtype != DType::kBF16)) {
    refuse(head,
           fmt::format("is [{}] {}, and config.json ties it to {}, which is [{}] {}",
                       fmt::join(head.second.entry->shape, ", "), dtype_name(dtype),
                       embedding.second.entry->name, fmt::join(embedding.second.entry->shape, ", "),
                       dtype_name(embedding.second.entry->dtype)),
           kWays);
  }
  const std::vector<float> ours = floats_of(embedding.second);
  const std::vector<float> theirs = floats_of(head.second);
  const auto differing = std::inner_product(ours.begin(), ours.end(), theirs.begin(),
                                            std::int64_t{0}, std::plus<>(), std::not_equal_to<>());
  if (differing == 0) return;
  refuse(head,
         fmt::format("has {} of {} values other than those of {}, to which config.json ties it "
                     "(\"tie_word_embeddings\": true)",
                     differing, ours.size(), embedding.second.entry->name),
         kWays);
}

}  // namespace isthmus
