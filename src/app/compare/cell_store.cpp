// SPDX-License-Identifier: Apache-2.0
#include "app/compare/cell_store.h"

namespace isthmus::app {

CellStore::CellStore(Storage& storage, const std::filesystem::path& file) {
  if (storage.kind(file) == FileKind::kFile) {
    const report::CellFile there = report::read_cells(read_text(storage, file));
    damaged_ = there.damaged;
    if (damaged_ > 0) {
      std::string whole;
      for (const report::CellResult& cell : there.cells) {
        whole += report::cell_line(cell) + "\n";
      }
      write_atomically(storage, file, whole);
    }
    for (const report::CellResult& cell : there.cells) {
      before_.insert_or_assign(cell.key, cell);
    }
  }
  file_ = storage.append(file);
  storage.sync_directory(std::filesystem::absolute(file).parent_path());
}

const report::CellResult* CellStore::find(const std::string& key) const {
  const auto found = before_.find(key);
  return found == before_.end() ? nullptr : &found->second;
}

void CellStore::add(const report::CellResult& cell) {
  const std::string line = report::cell_line(cell) + "\n";
  const std::lock_guard lock(mutex_);
  file_->append(as_bytes(line));
  file_->sync();
}

}  // namespace isthmus::app
