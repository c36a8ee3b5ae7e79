// SPDX-License-Identifier: Apache-2.0
#include "report/data/metric_lines.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <string>

#include "isthmus/errors.h"

namespace isthmus::report {

bool each_line(const std::filesystem::path& file,
               const std::function<bool(std::string_view)>& use) {
  std::ifstream in(file, std::ios::binary);
  if (!in) {
    throw SystemError(fmt::format("{}: cannot be opened: {}", file.string(), std::strerror(errno)));
  }
  std::string line;
  for (std::int64_t number = 1; std::getline(in, line); ++number) {
    const bool torn = in.eof();  // no newline after it
    if (line.find_first_not_of(" \t\r") == std::string::npos || use(line)) {
      continue;
    }
    if (torn) {
      return true;
    }
    throw SystemError(
        fmt::format("{}:{}: damaged line: it is not what a run writes; remove it and export again",
                    file.string(), number));
  }
  return false;
}

}  // namespace isthmus::report
