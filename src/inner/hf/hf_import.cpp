// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "core/state/safetensors.h"
#include "inner/hf/hf_weights.h"
#include "isthmus/errors.h"

namespace isthmus {
namespace {

constexpr std::string_view kHead = "lm_head.weight";
constexpr std::size_t kShownNames = 8;

bool ends_with(std::string_view text, std::string_view end) {
  return text.size() >= end.size() && text.substr(text.size() - end.size()) == end;
}

// Causal masks and rotary tables that old versions stored beside the weights.
bool is_buffer(std::string_view name) {
  return ends_with(name, ".attn.bias") || ends_with(name, ".attn.masked_bias") ||
         ends_with(name, "rotary_emb.inv_freq");
}

std::string shape_text(const std::vector<std::int64_t>& shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

void describe(std::string& text, const char* what, const std::vector<std::string>& names) {
  if (names.empty()) return;
  text += fmt::format(
      "; {} {}: {}", names.size(), what,
      fmt::join(names.begin(),
                names.begin() + static_cast<std::ptrdiff_t>(std::min(names.size(), kShownNames)),
                ", "));
  if (names.size() > kShownNames) text += ", ...";
}

/// Where each parameter's values are; throws one error that lists all that does not fit.
std::vector<SafetensorsModel::Place> match(const SafetensorsModel& model,
                                           const std::filesystem::path& folder,
                                           std::span<const Parameter> parameters) {
  std::map<std::string, SafetensorsModel::Place> left = model.tensors();
  std::vector<SafetensorsModel::Place> places;
  std::vector<std::string> missing;
  std::vector<std::string> misshaped;
  bool has_head = false;
  for (const Parameter& parameter : parameters) {
    has_head = has_head || parameter.name == kHead;
    auto found = left.find(parameter.name);
    if (found == left.end()) {
      const std::size_t dot = parameter.name.find('.');
      found = left.find(parameter.name.substr(dot == std::string::npos ? 0 : dot + 1));
    }
    if (found == left.end()) {
      missing.push_back(parameter.name);
      continue;
    }
    const SafetensorsEntry& entry = *found->second.entry;
    const bool is_float =
        entry.dtype == DType::kF32 || entry.dtype == DType::kF16 || entry.dtype == DType::kBF16;
    if (entry.shape != parameter.shape || !is_float) {
      misshaped.push_back(fmt::format("{} {} {} (need {} F32, F16 or BF16)", entry.name,
                                      shape_text(entry.shape), dtype_name(entry.dtype),
                                      shape_text(parameter.shape)));
    }
    places.push_back(found->second);
    left.erase(found);
  }
  std::vector<std::string> unknown;
  for (const auto& [name, place] : left) {
    if (!is_buffer(name) && (name != kHead || has_head)) unknown.push_back(name);
  }
  if (!missing.empty() || !misshaped.empty() || !unknown.empty()) {
    std::string text = fmt::format("{}: its weights are not those of the model", folder.string());
    describe(text, "missing", missing);
    describe(text, "of another shape or type", misshaped);
    describe(text, "unknown", unknown);
    throw SystemError(text);
  }
  return places;
}

}  // namespace

void load_hf_weights(const Storage& storage, const std::filesystem::path& folder,
                     std::span<const Parameter> parameters) {
  const SafetensorsModel model = SafetensorsModel::open(storage, folder);
  const std::vector<SafetensorsModel::Place> places = match(model, folder, parameters);
  for (std::size_t i = 0; i < places.size(); ++i) {
    places[i].file->read_floats(*places[i].entry, parameters[i].values);
  }
}

void check_hf_weights(const Storage& storage, const std::filesystem::path& folder,
                      std::span<const Parameter> parameters) {
  match(SafetensorsModel::open(storage, folder), folder, parameters);
}

}  // namespace isthmus
