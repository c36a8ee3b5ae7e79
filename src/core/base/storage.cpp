// SPDX-License-Identifier: Apache-2.0
#include "core/base/storage.h"

#include <fnmatch.h>

#include <algorithm>

#include "isthmus/errors.h"

namespace isthmus {
namespace {

using Path = std::filesystem::path;

bool has_wildcard(const std::string& text) {
  return text.find_first_of("*?[") != std::string::npos;
}

// One more component of a pattern, matched in every directory found so far.
std::vector<Path> match_component(const Storage& storage, const std::vector<Path>& directories,
                                  const std::string& component) {
  std::vector<Path> found;
  for (const Path& directory : directories) {
    if (!has_wildcard(component)) {
      found.push_back(directory / component);
      continue;
    }
    const Path listed = directory.empty() ? Path(".") : directory;
    // With "/." behind it a link to a directory counts as one, and a file as absent.
    if (storage.kind(listed / ".") != FileKind::kDirectory) continue;
    for (const std::string& name : storage.list(listed)) {
      if (::fnmatch(component.c_str(), name.c_str(), FNM_PERIOD) == 0) {
        found.push_back(directory / name);
      }
    }
  }
  return found;
}

}  // namespace

std::string as_text(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

std::string read_text(const Storage& storage, const Path& path) {
  return as_text(storage.read(path));
}

Path temporary_beside(const Path& path) {
  std::string name = ".";
  name += path.filename().string();
  name += ".tmp";
  return path.parent_path() / name;
}

void write_atomically(Storage& storage, const Path& path,
                      const std::function<void(WritableFile&)>& write) {
  const Path temporary = temporary_beside(path);
  try {
    {
      const auto file = storage.create(temporary);
      write(*file);
      file->sync();
    }
    storage.rename(temporary, path);
  } catch (...) {
    try {
      if (storage.kind(temporary) != FileKind::kAbsent) storage.remove(temporary);
    } catch (const SystemError&) {
      // The first failure is the one to report.
    }
    throw;
  }
  storage.sync_directory(path.parent_path());
}

void write_atomically(Storage& storage, const Path& path, std::span<const std::byte> bytes) {
  write_atomically(storage, path, [&](WritableFile& file) { file.append(bytes); });
}

void write_atomically(Storage& storage, const Path& path, std::string_view text) {
  write_atomically(storage, path, as_bytes(text));
}

void replace_link(Storage& storage, const Path& target, const Path& link) {
  const Path temporary = temporary_beside(link);
  if (storage.kind(temporary) != FileKind::kAbsent) storage.remove(temporary);
  storage.create_link(target, temporary);
  storage.rename(temporary, link);
  storage.sync_directory(link.parent_path());
}

std::vector<Path> expand_pattern(const Storage& storage, const Path& pattern, const Path& base) {
  if (!has_wildcard(pattern.string())) return {base / pattern};
  std::vector<Path> found = {pattern.is_absolute() ? pattern.root_path() : base};
  for (const Path& component : pattern.relative_path()) {
    found = match_component(storage, found, component.string());
  }
  std::vector<Path> there;
  for (Path& path : found) {
    if (storage.kind(path) != FileKind::kAbsent) there.push_back(std::move(path));
  }
  std::sort(there.begin(), there.end());
  return there;
}

}  // namespace isthmus
