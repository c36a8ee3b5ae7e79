// SPDX-License-Identifier: Apache-2.0
#include "app/commands/job_folders.h"

#include <fmt/format.h>

#include <system_error>

#include "isthmus/errors.h"
#include "record/wall_clock.h"

namespace isthmus::app {
namespace {

[[noreturn]] void refuse(const std::filesystem::path& folder, const std::error_code& why) {
  throw SystemError(
      fmt::format("{}: no folder for the files of an MPI job: {}; set TMPDIR to one that can be "
                  "written",
                  folder.string(), why.message()));
}

}  // namespace

JobFolders::JobFolders() {
  std::error_code error;
  root_ = std::filesystem::temp_directory_path(error) / ("isthmus-" + random_id().substr(0, 8));
  if (!error && !std::filesystem::create_directory(root_, error) && !error) {
    error = std::make_error_code(std::errc::file_exists);
  }
  if (error) refuse(root_, error);
}

JobFolders::~JobFolders() {
  std::error_code ignored;
  std::filesystem::remove_all(root_, ignored);
}

std::string JobFolders::of(const std::string& name) const {
  const std::filesystem::path folder = root_ / name;
  std::error_code error;
  std::filesystem::create_directory(folder, error);
  if (error) refuse(folder, error);
  return folder.string();
}

}  // namespace isthmus::app
