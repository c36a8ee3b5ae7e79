// SPDX-License-Identifier: Apache-2.0
// The JSON lines of a run for exports: strict, unlike the report's reader, since another tool
// cannot tell what was left out.
#pragma once

#include <filesystem>
#include <functional>
#include <string_view>

namespace isthmus::report {

/// Calls `use` for each line of `file` in order, except blank ones; `use` returns false for an
/// unusable line. A torn last line (the run was killed, or is still writing) is left out: RETURNS
/// true then. THROWS: SystemError naming file and line when the file cannot be read or a line
/// cannot be used.
bool each_line(const std::filesystem::path& file, const std::function<bool(std::string_view)>& use);

}  // namespace isthmus::report
