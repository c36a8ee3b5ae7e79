// SPDX-License-Identifier: Apache-2.0
// A resumed run with a changed configuration (--change, or `changes` of the library).
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

/// The configurations of a resumed run, change by change. A checkpoint may be from before any of
/// the changes: the later changes are made by resuming.
struct RunChanges {
  std::vector<Config> before;          // the first change, the second, ...; empty: no changes
  std::vector<std::string> keys = {};  // named by the changes
  bool by_argument = false;            // by a library's caller, not by --change
  /// THROWS: ConfigError naming the key when a run that has taken `steps` steps under `from` would
  /// change its meaning under `to`.
  std::function<void(const Config& from, const Config& to, std::int64_t steps)> check;
};

/// The name of a change in error messages: "--change", for a library's caller "change".
[[nodiscard]] std::string change_flag(bool by_argument);
/// How to ask for a change: "--change KEY=VALUE", for a library's caller "change=[\"KEY=VALUE\"]".
[[nodiscard]] std::string way_to_change(bool by_argument, std::string_view key_value);

/// The key that stands for appended data in the changes of a run.
inline constexpr std::string_view kAppendedKey = "data.source";

[[nodiscard]] bool names_appended_data(const RunChanges& changes);

/// The configuration with that config_digest among those before the changes; null: none.
[[nodiscard]] const Config* before_changes(const RunChanges& changes, const std::string& digest);

/// "train.steps = 60 (40 before)" for each of `keys` whose value differs.
[[nodiscard]] std::vector<std::string> changes_text(const Config& from, const Config& to,
                                                    const std::vector<std::string>& keys);

/// The data before or after a change.
struct NamedData {
  std::string source;  // data.source
  std::span<const DataFile> files;
};
/// The line for data to which `tokens` tokens were appended: sources, sizes and digests.
[[nodiscard]] std::string growth_text(const NamedData& before, const NamedData& now,
                                      std::int64_t tokens);

}  // namespace isthmus::app
