// SPDX-License-Identifier: Apache-2.0
// Folders of their own for MPI jobs that run side by side on one machine.
#pragma once

#include <filesystem>
#include <string>

namespace isthmus::app {

/// Open MPI 4 keeps files of all jobs of a user in one folder under TMPDIR; of jobs that begin or
/// end at the same moment one makes it while another looks for it or removes it, and does not
/// start.
class JobFolders {
 public:
  /// THROWS: SystemError when the machine refuses.
  JobFolders();
  ~JobFolders();  // removes them; who uses them has ended. What is killed leaves its folders.
  JobFolders(const JobFolders&) = delete;
  JobFolders& operator=(const JobFolders&) = delete;

  /// The TMPDIR of job `name`. THROWS: SystemError.
  [[nodiscard]] std::string of(const std::string& name) const;

 private:
  std::filesystem::path root_;
};

}  // namespace isthmus::app
