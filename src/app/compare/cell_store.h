// SPDX-License-Identifier: Apache-2.0
// cells.jsonl of a comparison: a line for each finished cell, written at once and synced before the
// next cell of that task begins. So after any end of the program every line but the last is
// complete, and an incomplete last one has no newline: that cell is run again.
#pragma once

#include <cstddef>
#include <filesystem>
#include <map>
#include <mutex>
#include <string>

#include "core/base/storage.h"
#include "record/run_directory.h"
#include "report/data/cells.h"

namespace isthmus::app {

class CellStore {
 public:
  /// Opens `file` for appending; existing lines count, after torn or damaged ones are removed.
  /// `storage` is borrowed. THROWS: SystemError.
  CellStore(Storage& storage, const std::filesystem::path& file);

  /// The cell with this key, or null; the last one if there are several.
  [[nodiscard]] const report::CellResult* find(const std::string& key) const;
  /// Blocks until the line is on the disk. Any thread. THROWS: SystemError.
  void add(const report::CellResult& cell);

  /// Number of removed lines.
  [[nodiscard]] std::size_t damaged() const { return damaged_; }

 private:
  std::map<std::string, report::CellResult> before_;  // by key: existing lines
  std::size_t damaged_ = 0;
  std::mutex mutex_;
  std::unique_ptr<WritableFile> file_;  // guarded by mutex_
};

}  // namespace isthmus::app
