// SPDX-License-Identifier: Apache-2.0
// The names of recompute levels in files, on command lines and in results. Pure.
#pragma once

#include <array>
#include <optional>
#include <string_view>

#include "isthmus/config.h"

namespace isthmus {

/// In the order of the enumerators.
inline constexpr std::array<std::string_view, 3> kRecomputeNames = {"none", "selective", "full"};

[[nodiscard]] constexpr std::string_view recompute_name(Recompute recompute) {
  return kRecomputeNames[static_cast<std::size_t>(recompute)];
}

/// A name, or the earlier boolean form: "false" is none, "true" is full. Nothing for any other
/// text.
[[nodiscard]] constexpr std::optional<Recompute> parse_recompute(std::string_view text) {
  if (text == "false") return Recompute::kNone;
  if (text == "true") return Recompute::kFull;
  for (const Recompute each : {Recompute::kNone, Recompute::kSelective, Recompute::kFull}) {
    if (text == recompute_name(each)) return each;
  }
  return std::nullopt;
}

}  // namespace isthmus
