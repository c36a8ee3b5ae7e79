// SPDX-License-Identifier: Apache-2.0
// The kinds of things that `inspect` shows. Each function prints to session.out and returns the
// exit code.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string>

#include "app/common/commands.h"
#include "core/base/storage.h"

namespace isthmus::app {

/// A run, a checkpoint or a model folder, according to its files. THROWS: SystemError when it is
/// none of them.
int inspect_folder(const Storage& storage, const std::filesystem::path& folder, bool all_tensors,
                   Session& session);
/// A .safetensors file, an index or a folder with one.
int inspect_tensors(const Storage& storage, const std::filesystem::path& path, bool all_tensors,
                    Session& session);
/// An spsa log (docs/internals/spsa.md). THROWS: RunError naming the offset of the first invalid
/// byte.
int inspect_spsa_log(const std::filesystem::path& path, std::span<const std::byte> bytes,
                     Session& session);
/// A token file or any source that `[data]` takes.
int inspect_tokens(const Storage& storage, const std::string& source, Session& session);

}  // namespace isthmus::app
