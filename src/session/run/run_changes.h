// SPDX-License-Identifier: Apache-2.0
// A run that goes on with another configuration (--change, or `changes` of the library).
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/data_file.h"
#include "isthmus/config.h"

namespace isthmus::app {

/// How the configuration of a run that goes on came about, change by change. A checkpoint may be
/// from before any of the changes: those after it are made by going on.
struct RunChanges {
  std::vector<Config> before;  // of the first change, of the second, ...; empty: there are none
  std::vector<std::string> keys = {};  // that the changes name
  bool by_argument = false;            // of a caller of the library, and not by --change
  /// THROWS: ConfigError naming the key where a run that has taken `steps` steps under `from` would
  /// mean something else under `to`.
  std::function<void(const Config& from, const Config& to, std::int64_t steps)> check;
};

/// What a change is called where it is refused: "--change", of a caller of the library "change".
[[nodiscard]] std::string change_flag(bool by_argument);
/// How to ask for a change: "--change KEY=VALUE", of a caller of the library
/// "change=[\"KEY=VALUE\"]".
[[nodiscard]] std::string way_to_change(bool by_argument, std::string_view key_value);

/// Names data that were appended to, in the changes of a run.
inline constexpr std::string_view kAppendedKey = "data.source";

[[nodiscard]] bool names_appended_data(const RunChanges& changes);

/// The configuration of `digest` (config_digest) among those before the changes; null: none is.
[[nodiscard]] const Config* before_changes(const RunChanges& changes, const std::string& digest);

/// "train.steps = 60 (40 before)" for each of `keys` whose value differs.
[[nodiscard]] std::vector<std::string> changes_text(const Config& from, const Config& to,
                                                    const std::vector<std::string>& keys);

/// Data of one side of a change.
struct NamedData {
  std::string source;  // data.source
  std::span<const DataFile> files;
};
/// The line for data of `tokens` tokens that were appended to: sources, sizes and digests.
[[nodiscard]] std::string growth_text(const NamedData& before, const NamedData& now,
                                      std::int64_t tokens);

}  // namespace isthmus::app
