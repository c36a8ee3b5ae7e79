// SPDX-License-Identifier: Apache-2.0
#include "record/run_lock.h"

#include <fmt/format.h>

#include <optional>
#include <system_error>

#include "core/base/log.h"
#include "core/state/checkpoint_names.h"
#include "isthmus/errors.h"
#include "record/wall_clock.h"

namespace isthmus::app {
namespace {

[[noreturn]] void refuse(const std::filesystem::path& folder, const std::string& why) {
  throw SystemError(fmt::format(
      "'{}' {}, which what is written would replace: name a folder outside of the run's",
      folder.string(), why));
}

/// THROWS: SystemError when `folder` is a run's ckpt/, or below it.
void check_not_among_checkpoints(const std::filesystem::path& folder) {
  std::error_code error;
  for (std::filesystem::path above = std::filesystem::weakly_canonical(folder, error);
       above.has_relative_path(); above = above.parent_path()) {
    const std::filesystem::path run = above.parent_path();
    if (above.filename() == "ckpt" && std::filesystem::exists(run / "manifest.json", error)) {
      refuse(folder, fmt::format("lies among the checkpoints of '{}'", run.string()));
    }
  }
}

/// THROWS: SystemError when `folder` is a checkpoint or lies among a run's.
void check_outside_checkpoints(const std::filesystem::path& folder) {
  std::error_code error;  // other programs have a state.json too
  if (std::filesystem::exists(folder / kStateFile, error) &&
      std::filesystem::exists(folder / kModelFile, error)) {
    refuse(folder, "is a checkpoint");
  }
  check_not_among_checkpoints(folder);
}

/// RETURNS: `folder`, where it can be a run's.
const std::filesystem::path& run_folder_at(const std::filesystem::path& folder) {
  std::error_code error;
  const auto status = std::filesystem::status(folder, error);
  if (std::filesystem::exists(status) && !std::filesystem::is_directory(status)) {
    throw ConfigError(
        fmt::format("output folder '{}' is a file; choose another with --out", folder.string()));
  }
  check_outside_checkpoints(folder);
  return folder;
}

}  // namespace

void check_nobody_writes(const std::filesystem::path& folder, std::string_view remedy) {
  if (const std::optional<FolderOwner> owner = living_owner(folder, kRunLockFile)) {
    throw SystemError(fmt::format("'{}' is in use: {}; {}", folder.string(), owner_text(*owner),
                                  remedy.empty() ? RunLock::Options().remedy : remedy));
  }
}

void check_outside_runs(const std::filesystem::path& folder) {
  constexpr const char* kRemedy = "name another folder";
  check_nobody_writes(folder, kRemedy);
  check_outside_checkpoints(folder);
  std::error_code error;
  std::filesystem::path above = std::filesystem::weakly_canonical(folder, error);
  while (above.has_relative_path()) {
    above = above.parent_path();
    check_nobody_writes(above, kRemedy);
  }
}

void check_outside_run(const std::filesystem::path& file) {
  const std::filesystem::path folder = file.has_parent_path() ? file.parent_path() : ".";
  check_nobody_writes(folder, "name another place");
  check_not_among_checkpoints(folder);
}

RunLock::RunLock(const std::filesystem::path& folder, const Options& options)
    : lock_(runtime_, {.folder = run_folder_at(folder),
                       .file = options.file,
                       .since = utc_words(),
                       .remedy = options.remedy,
                       .wait = options.wait,
                       .cells = options.cells,
                       .tell = [](const std::string& what) { log_warning("{}", what); },
                       .stop = options.stop}) {}

}  // namespace isthmus::app
