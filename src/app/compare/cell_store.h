// SPDX-License-Identifier: Apache-2.0
// cells.jsonl of a comparison: one line a finished cell, each written in one piece and synced
// before the next cell of that task begins. So whatever ends the program, every line but the last
// is whole, and a torn last one is known by its missing newline: that cell is run again.
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
  /// Opens `file` for appending; lines that are there count, those torn or damaged are cut out
  /// first. `storage` is borrowed. THROWS: SystemError.
  CellStore(Storage& storage, const std::filesystem::path& file);

  /// The cell with this key, or null. The last one, where there are several.
  [[nodiscard]] const report::CellResult* find(const std::string& key) const;
  /// Blocks until the line is on the disk. Any thread. THROWS: SystemError.
  void add(const report::CellResult& cell);

  /// Lines that were cut out.
  [[nodiscard]] std::size_t damaged() const { return damaged_; }

 private:
  std::map<std::string, report::CellResult> before_;  // by key: what was there on opening
  std::size_t damaged_ = 0;
  std::mutex mutex_;
  std::unique_ptr<WritableFile> file_;  // guarded by mutex_
};

}  // namespace isthmus::app
