// SPDX-License-Identifier: Apache-2.0
// Separate folders for MPI jobs that run at the same time on one machine.
#pragma once

#include <filesystem>
#include <string>

namespace isthmus::app {

/// Open MPI 4 keeps files of all jobs of a user in one folder under TMPDIR. If jobs begin or end at
/// the same moment, one creates the folder while another looks for it or removes it, and fails to
/// start.
class JobFolders {
 public:
  /// THROWS: SystemError when the machine refuses.
  JobFolders();
  ~JobFolders();  // removes them; their users have ended. A killed process leaves its folders.
  JobFolders(const JobFolders&) = delete;
  JobFolders& operator=(const JobFolders&) = delete;

  /// The TMPDIR of job `name`. THROWS: SystemError.
  [[nodiscard]] std::string of(const std::string& name) const;

 private:
  std::filesystem::path root_;
};

}  // namespace isthmus::app
