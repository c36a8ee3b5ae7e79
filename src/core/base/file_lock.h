// SPDX-License-Identifier: Apache-2.0
// A file that one process holds at a time. The lock ends with the process, however it ends.
#pragma once

#include <filesystem>
#include <string>

namespace isthmus {

class FileLock {
 public:
  /// Makes the file where it is absent. Does not wait. THROWS: SystemError when another process
  /// holds it, saying `held`, or when the file cannot be made.
  FileLock(const std::filesystem::path& path, const std::string& held);
  ~FileLock();
  FileLock(const FileLock&) = delete;
  FileLock& operator=(const FileLock&) = delete;

 private:
  int fd_;
};

}  // namespace isthmus
