// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <map>

#include "core/base/mapped_files.h"
#include "core/state/own_pages.h"
#include "core/state/safetensors.h"
#include "inner/hf/hf_values.h"
#include "inner/hf/hf_weights.h"
#include "isthmus/codec.h"
#include "isthmus/errors.h"

namespace isthmus {
namespace {

/// The output head of either spelling.
bool is_head(std::string_view name) {
  return name == "lm_head.weight" || name == "embed_out.weight";
}
constexpr std::size_t kShownNames = 8;

// Prefixes that torch.compile, DistributedDataParallel, fully sharded and checkpointed modules add
// to the names of the wrapped tensors.
constexpr std::array<std::string_view, 4> kWrappers = {
    "_orig_mod.", "module.", "_fsdp_wrapped_module.", "_checkpoint_wrapped_module."};

/// The name without the components that wrappers add.
std::string unwrapped(std::string name) {
  for (const std::string_view wrapper : kWrappers) {
    for (std::size_t at = 0; (at = name.find(wrapper, at)) != std::string::npos;) {
      if (at == 0 || name[at - 1] == '.') {
        name.erase(at, wrapper.size());
      } else {
        ++at;
      }
    }
  }
  return name;
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

using HfTensors = std::map<std::string, SafetensorsModel::Place>;

/// Names of tensors, those that differ in a number alone as one.
std::vector<std::string> counted_names(const HfTensors& tensors) {
  std::map<std::string, std::pair<int, std::string>> kinds;  // how many, one of their names
  for (const auto& [name, place] : tensors) {
    std::string kind;
    for (std::size_t at = 0; at < name.size();) {
      const std::size_t dot = std::min(name.find('.', at), name.size());
      const std::string part = name.substr(at, dot - at);
      const bool number =
          !part.empty() && part.find_first_not_of("0123456789") == std::string::npos;
      kind += (kind.empty() ? "" : ".") + (number ? std::string("*") : part);
      at = dot + 1;
    }
    auto& [count, first] = kinds[kind];
    if (count++ == 0) first = place.entry->name;
  }
  std::vector<std::string> names;
  for (const auto& [kind, of_kind] : kinds) {
    names.push_back(of_kind.first == 1 ? "tensor " + of_kind.second
                                       : fmt::format("{} tensors {}", of_kind.first, kind));
  }
  return names;
}

/// By the names that the model gives them. THROWS: SystemError for two of one name.
HfTensors tensors_of(const SafetensorsModel& model, const std::filesystem::path& folder) {
  HfTensors tensors;
  for (const auto& [name, place] : model.tensors()) {
    const auto [at, added] = tensors.emplace(unwrapped(name), place);
    if (added) continue;
    throw SystemError(fmt::format(
        "{}: holds {} and {}, which are one tensor, saved from a wrapped model and without the "
        "wrapper; remove one",
        folder.string(), at->second.entry->name, name));
  }
  return tensors;
}

/// The differences between a model and a folder.
struct Misfits {
  std::vector<std::string> missing;
  std::vector<std::string> misshaped;
  std::vector<std::string> unknown;

  void check(const std::filesystem::path& folder) const {
    if (missing.empty() && misshaped.empty() && unknown.empty()) return;
    std::string text = fmt::format("{}: its weights are not those of the model", folder.string());
    describe(text, "missing", missing);
    describe(text, "of another shape or type", misshaped);
    describe(text, "unknown", unknown);
    text += "; take config.json and the weights of one download";
    if (!misshaped.empty()) text += ", of a type that is read (save_pretrained in torch.float32)";
    if (!unknown.empty()) text += ", and remove tensors that are no part of the model";
    throw SystemError(text);
  }
};

/// Where each parameter's values are, in their order. Takes them out of `left`.
std::vector<PlacedTensor> take_parameters(HfTensors& left, std::span<const Parameter> parameters,
                                          Misfits& misfits) {
  std::vector<PlacedTensor> places;
  for (const Parameter& parameter : parameters) {
    auto found = left.find(parameter.name);
    if (found == left.end()) {
      const std::size_t dot = parameter.name.find('.');
      found = left.find(parameter.name.substr(dot == std::string::npos ? 0 : dot + 1));
    }
    if (found == left.end()) {
      misfits.missing.push_back(parameter.name);
      continue;
    }
    const SafetensorsEntry& entry = *found->second.entry;
    const bool is_float =
        entry.dtype == DType::kF32 || entry.dtype == DType::kF16 || entry.dtype == DType::kBF16;
    if (entry.shape != parameter.shape || !is_float) {
      misfits.misshaped.push_back(fmt::format("{} {} {} (need {} F32, F16 or BF16)", entry.name,
                                              shape_text(entry.shape), dtype_name(entry.dtype),
                                              shape_text(parameter.shape)));
    }
    places.emplace_back(parameter.name, found->second);
    left.erase(found);
  }
  return places;
}

struct Match {
  std::vector<PlacedTensor> places;   // of each parameter
  std::vector<std::string> not_read;  // tensors, by counted_names
};

/// Where each parameter's values are, checked with all tensors that are not read; throws one error
/// that lists all that does not fit.
Match match(const Storage& storage, const SafetensorsModel& model,
            const std::filesystem::path& folder, std::span<const Parameter> parameters,
            HfCheck check = HfCheck::kValues) {
  HfTensors left = tensors_of(model, folder);
  Misfits misfits;
  std::vector<PlacedTensor> places = take_parameters(left, parameters, misfits);
  const bool has_head = std::ranges::any_of(
      parameters, [](const Parameter& parameter) { return is_head(parameter.name); });
  for (const auto& [name, place] : left) {
    if (!is_hf_buffer(name) && (!is_head(name) || has_head)) {
      misfits.unknown.push_back(place.entry->name);
    }
  }
  misfits.check(folder);
  if (check == HfCheck::kValues) check_finite(places);
  for (const auto& [name, place] : left) {
    const PlacedTensor tensor{name, place};
    if (is_hf_buffer(name)) {
      check_hf_buffer(storage, folder, tensor);
    } else {
      const auto embedding = std::ranges::find_if(places, [](const PlacedTensor& other) {
        return other.first.ends_with(".wte.weight") ||
               other.first.ends_with(".embed_tokens.weight") ||
               other.first.ends_with(".embed_in.weight");
      });
      if (embedding != places.end()) check_tied_head(tensor, *embedding);
    }
  }
  return {std::move(places), counted_names(left)};
}

}  // namespace

std::vector<std::string> load_hf_weights(const Storage& storage,
                                         const std::filesystem::path& folder,
                                         std::span<const Parameter> parameters) {
  const SafetensorsModel model = SafetensorsModel::open(storage, folder);
  const auto [places, not_read] = match(storage, model, folder, parameters);
  for (std::size_t i = 0; i < places.size(); ++i) {
    const SafetensorsModel::Place& place = places[i].second;
    place.file->read_floats(*place.entry, parameters[i].values);
  }
  return not_read;
}

std::vector<std::string> read_hf_weights(const Storage& storage,
                                         const std::filesystem::path& folder,
                                         std::span<const Parameter> parameters,
                                         const TakeValues& take, HfCheck check) {
  const SafetensorsModel model = SafetensorsModel::open(storage, folder);
  auto [places, not_read] = match(storage, model, folder, parameters, check);
  constexpr std::size_t kPart = 256 * kTileValues;
  const OwnPages pages(kPart);
  for (std::size_t i = 0; i < places.size(); ++i) {
    const auto& [file, entry] = places[i].second;
    const auto count = static_cast<std::size_t>(parameters[i].elements.size());
    for (std::size_t first = 0; first < count; first += kPart) {
      const std::span<float> values = pages.span().first(std::min(kPart, count - first));
      file->read_part(*entry, static_cast<std::int64_t>(first), values);
      take(i, static_cast<std::int64_t>(first), values);
      leave_mapped_pages(file->bytes(*entry));
    }
  }
  return std::move(not_read);
}

std::vector<std::string> check_hf_weights(const Storage& storage,
                                          const std::filesystem::path& folder,
                                          std::span<const Parameter> parameters) {
  return match(storage, SafetensorsModel::open(storage, folder), folder, parameters).not_read;
}

}  // namespace isthmus
