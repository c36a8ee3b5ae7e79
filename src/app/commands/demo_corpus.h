// SPDX-License-Identifier: Apache-2.0
// Real text that every Debian machine has: licences, C and C++ headers, copyright files.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace isthmus::app {

struct DemoCorpus {
  std::string text;
  std::vector<std::filesystem::path> files;  // what it was made of, in order
};

/// Gathers at most `max_bytes` of text, files in sorted order, so the same machine gives the same
/// text. THROWS: SystemError when less than `min_bytes` is found, naming the folders looked at.
[[nodiscard]] DemoCorpus gather_demo_corpus(std::uint64_t max_bytes, std::uint64_t min_bytes);

}  // namespace isthmus::app
