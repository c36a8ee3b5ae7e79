// SPDX-License-Identifier: Apache-2.0
// Pointers of Git LFS: files that a clone has in place of large files until they are fetched.
// Readers of models and data check for them, because such a file is a valid short text. Pure
// functions; any thread.
#pragma once

#include <string>
#include <string_view>

namespace isthmus {

inline constexpr const char* kGitPointer =
    "a Git LFS pointer, which stands for a file that is not here";
inline constexpr const char* kFetchGitFile = "fetch the file: git lfs pull";

/// Recognised by its first line, with either line ending.
[[nodiscard]] bool is_git_pointer(std::string_view text);

/// THROWS: SystemError naming `label` when `text` is such a pointer.
void refuse_git_pointer(std::string_view text, const std::string& label);

}  // namespace isthmus
