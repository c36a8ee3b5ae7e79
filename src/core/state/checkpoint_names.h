// SPDX-License-Identifier: Apache-2.0
// Names inside a checkpoint folder, shared by its writer and its reader.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace isthmus {

inline constexpr int kCheckpointSchema = 1;
inline constexpr const char* kModelFile = "model.safetensors";
inline constexpr const char* kStateFile = "state.json";
inline constexpr const char* kSharedPart = "shared";
inline constexpr const char* kDigestKey = "sha256";
inline constexpr const char* kLastLink = "last";
inline constexpr const char* kOfAllLink = "of-all-sites";
inline constexpr const char* kOfAllBeforeLink = "of-all-sites-before";
inline constexpr std::string_view kTemporarySuffix = ".tmp";      // being written
inline constexpr std::string_view kReplacedSuffix = ".replaced";  // about to be replaced
inline constexpr std::string_view kRemovedSuffix = ".removed";    // being removed

[[nodiscard]] std::string worker_part(int worker);
/// "step-0001200"
[[nodiscard]] std::string step_name(std::int64_t step);
[[nodiscard]] std::optional<std::int64_t> parse_step_name(std::string_view name);
/// ".step-0001200.tmp"
[[nodiscard]] std::string hidden_name(std::int64_t step, std::string_view suffix);

struct HiddenName {
  std::int64_t step = 0;
  std::string_view suffix;
};
/// Absent for a name that is not of this form.
[[nodiscard]] std::optional<HiddenName> parse_hidden_name(std::string_view name);

}  // namespace isthmus
