// SPDX-License-Identifier: Apache-2.0
#include "core/base/git_pointer.h"

#include <array>

#include "isthmus/errors.h"

namespace isthmus {

bool is_git_pointer(std::string_view text) {
  // The second name is that of versions before 1.0, whose pointers Git LFS still takes.
  constexpr std::array<std::string_view, 2> kVersions = {
      "version https://git-lfs.github.com/spec/v1", "version https://hawser.github.com/spec/v1"};
  for (const std::string_view version : kVersions) {
    if (!text.starts_with(version)) continue;
    const std::string_view rest = text.substr(version.size());
    return rest.starts_with("\n") || rest.starts_with("\r\n");
  }
  return false;
}

void refuse_git_pointer(std::string_view text, const std::string& label) {
  if (!is_git_pointer(text)) return;
  throw SystemError(label + ": " + kGitPointer + "; " + kFetchGitFile);
}

}  // namespace isthmus
