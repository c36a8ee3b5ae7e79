// SPDX-License-Identifier: Apache-2.0
// What a path leads to, links followed: files of a Hugging Face cache are links, and so is a run's
// ckpt/last. Any thread.
#pragma once

#include <filesystem>

#include "core/base/storage.h"

namespace isthmus {

/// Kind of what `path` leads to; kAbsent for a link to nothing, or one that leads in a circle.
[[nodiscard]] inline FileKind followed_kind(const Storage& storage, std::filesystem::path path) {
  constexpr int kMostLinks = 40;
  for (int links = 0; links < kMostLinks; ++links) {
    const FileKind kind = storage.kind(path);
    if (kind != FileKind::kLink) return kind;
    path = path.parent_path() / storage.read_link(path);
  }
  return FileKind::kAbsent;
}

}  // namespace isthmus
