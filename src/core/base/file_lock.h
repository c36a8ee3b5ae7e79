// SPDX-License-Identifier: Apache-2.0
// A lock on a file, held by one process at a time. It ends with the process in every case.
#pragma once

#include <filesystem>
#include <string>

namespace isthmus {

class FileLock {
 public:
  /// Creates the file if absent. Does not wait. THROWS: SystemError with the text `held` when
  /// another process holds the lock, or when the file cannot be created.
  FileLock(const std::filesystem::path& path, const std::string& held);
  ~FileLock();
  FileLock(const FileLock&) = delete;
  FileLock& operator=(const FileLock&) = delete;

 private:
  int fd_;
};

}  // namespace isthmus
