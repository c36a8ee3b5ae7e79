// SPDX-License-Identifier: Apache-2.0
#include "record/run_lock.h"

#include <fmt/format.h>

#include <optional>
#include <system_error>

#include "core/base/log.h"
#include "isthmus/errors.h"
#include "record/wall_clock.h"

namespace isthmus::app {
namespace {

const std::filesystem::path& no_file(const std::filesystem::path& folder) {
  std::error_code error;
  const auto status = std::filesystem::status(folder, error);
  if (std::filesystem::exists(status) && !std::filesystem::is_directory(status)) {
    throw ConfigError(
        fmt::format("output folder '{}' is a file; choose another with --out", folder.string()));
  }
  return folder;
}

}  // namespace

void check_nobody_writes(const std::filesystem::path& folder, std::string_view remedy) {
  if (const std::optional<FolderOwner> owner = living_owner(folder, kRunLockFile)) {
    throw SystemError(fmt::format("'{}' is in use: {}; {}", folder.string(), owner_text(*owner),
                                  remedy.empty() ? RunLock::Options().remedy : remedy));
  }
}

RunLock::RunLock(const std::filesystem::path& folder, const Options& options)
    : lock_(runtime_, {.folder = no_file(folder),
                       .file = options.file,
                       .since = utc_words(),
                       .remedy = options.remedy,
                       .wait = options.wait,
                       .cells = options.cells,
                       .tell = [](const std::string& what) { log_warning("{}", what); },
                       .stop = options.stop}) {}

}  // namespace isthmus::app
