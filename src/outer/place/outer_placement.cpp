// SPDX-License-Identifier: Apache-2.0
#include "outer/place/outer_placement.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/base/units.h"
#include "outer/parts/contribution_sample.h"
#include "outer/parts/lanes.h"
#include "outer/parts/settings.h"

namespace isthmus::outer {
namespace {

/// The method's own, or fp32 for an unknown method.
std::unique_ptr<const Codec> codec_named(std::string_view name, const OuterOptions& options) {
  for (const MethodInfo& method : methods()) {
    if (method.name == name) return make_codec(codec_of(method, options));
  }
  return make_codec("fp32");
}

}  // namespace

std::int64_t outer_device_bytes(std::string_view name, const OuterOptions& options,
                                std::span<const Parameter> parameters) {
  constexpr auto kValue = static_cast<std::int64_t>(sizeof(float));
  const std::unique_ptr<const Codec> codec = codec_named(name, options);
  const int kept_residual = codec->error_feedback() ? 1 : 0;
  std::int64_t all = 0, largest = 0;
  for (const Fragment& fragment :
       make_fragments(parameters, options.fragments, options.pattern, options.embeddings_own)) {
    all += fragment.elements;
    largest = std::max(largest, fragment.elements);
  }
  const auto n = static_cast<std::size_t>(largest);
  const std::size_t shared = encoded_bytes(*codec, n) + tiles_of(n) * sizeof(double) +
                             most_sampled_tiles(n) * kTileValues * sizeof(float);
  const std::int64_t vectors = 2 * largest * kValue;  // an outer gradient, a mean
  return all * kValue * (outer_state_values(name, options) + kept_residual) + vectors +
         static_cast<std::int64_t>(shared);
}

SystemError outer_memory_error(std::string_view name, const OuterOptions& options,
                               std::span<const Parameter> parameters, std::string_view cause) {
  const std::int64_t bytes = outer_device_bytes(name, options, parameters);
  return SystemError(fmt::format(
      "outer.placement = \"device\": the outer state takes {} of device memory beside the inner "
      "loop's: {}; set it to \"host\", or lower what the inner loop takes",
      human_bytes(static_cast<double>(bytes)), cause));
}

}  // namespace isthmus::outer
