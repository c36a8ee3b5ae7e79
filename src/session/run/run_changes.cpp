// SPDX-License-Identifier: Apache-2.0
#include "session/run/run_changes.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/base/hash.h"
#include "core/base/storage.h"
#include "core/base/units.h"
#include "session/run/config_difference.h"

namespace isthmus::app {
namespace {

/// Of one file its own digest; of several that of their sizes and digests.
std::string sizes_and_digest(std::span<const DataFile> files) {
  std::uint64_t bytes = 0;
  std::string all;
  for (const DataFile& each : files) {
    bytes += each.bytes;
    all += fmt::format("{} {}\n", each.bytes, each.sha256);
  }
  const std::string size = with_commas(static_cast<std::int64_t>(bytes));
  if (files.size() == 1) return fmt::format("{} bytes of SHA-256 {}", size, files[0].sha256);
  return fmt::format("{} files, {} bytes, their sizes and digests of SHA-256 {}", files.size(),
                     size, sha256_hex(as_bytes(all)));
}

}  // namespace

std::string change_flag(bool by_argument) { return by_argument ? "change" : "--change"; }

std::string way_to_change(bool by_argument, std::string_view key_value) {
  return by_argument ? fmt::format("change=[\"{}\"]", key_value)
                     : fmt::format("--change {}", key_value);
}

bool names_appended_data(const RunChanges& changes) {
  return std::ranges::find(changes.keys, kAppendedKey) != changes.keys.end();
}

std::string growth_text(const NamedData& before, const NamedData& now, std::int64_t tokens) {
  return fmt::format(
      "{} = \"{}\" (\"{}\" before): {} ({} before, {} tokens, with which these begin); the "
      "validation part stays as it was",
      kAppendedKey, now.source, before.source, sizes_and_digest(now.files),
      sizes_and_digest(before.files), with_commas(tokens));
}

const Config* before_changes(const RunChanges& changes, const std::string& digest) {
  const auto found = std::ranges::find_if(
      changes.before, [&](const Config& each) { return config_digest(each) == digest; });
  return found == changes.before.end() ? nullptr : &*found;
}

std::vector<std::string> changes_text(const Config& from, const Config& to,
                                      const std::vector<std::string>& keys) {
  std::vector<std::string> lines;
  for (const ConfigDifference& each : differing_keys(resolved_toml(from), resolved_toml(to))) {
    if (std::ranges::find(keys, each.key) == keys.end()) continue;
    lines.push_back(fmt::format("{} = {} ({} before)", each.key,
                                each.here.empty() ? "absent" : each.here,
                                each.there.empty() ? "absent" : each.there));
  }
  return lines;
}

}  // namespace isthmus::app
