// SPDX-License-Identifier: Apache-2.0
#include "app/commands/demo_corpus.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <iterator>
#include <string_view>
#include <system_error>

#include "isthmus/errors.h"

namespace isthmus::app {
namespace {

namespace fs = std::filesystem;

struct Folder {
  const char* path;
  const char* extension;  // only files with it; empty: any
};
// Licences first: prose; then declarations with comments.
constexpr std::array<Folder, 4> kFolders = {{{"/usr/share/common-licenses", ""},
                                             {"/usr/include", ".h"},
                                             {"/usr/include/linux", ".h"},
                                             {"/usr/share/doc", ""}}};
constexpr std::uintmax_t kLargestFile = 200'000;
constexpr std::size_t kSmallestFile = 500;

bool is_text(std::string_view bytes) {
  return std::none_of(bytes.begin(), bytes.end(), [](char c) {
    const auto byte = static_cast<unsigned char>(c);
    return byte >= 0x80 || (byte < 0x20 && c != '\n' && c != '\t' && c != '\f');
  });
}

std::vector<fs::path> files_in(const Folder& folder) {
  std::vector<fs::path> files;
  std::error_code ignored;
  // Copyright files stand one level below /usr/share/doc; everything else directly in its folder.
  for (const fs::directory_entry& entry : fs::directory_iterator(folder.path, ignored)) {
    const fs::path path = entry.is_directory(ignored) ? entry.path() / "copyright" : entry.path();
    const bool wanted = *folder.extension == '\0' || path.extension() == folder.extension;
    if (wanted && fs::is_regular_file(path, ignored) && !fs::is_symlink(path, ignored) &&
        fs::file_size(path, ignored) <= kLargestFile) {
      files.push_back(path);
    }
  }
  std::sort(files.begin(), files.end());
  return files;
}

}  // namespace

DemoCorpus gather_demo_corpus(std::uint64_t max_bytes, std::uint64_t min_bytes) {
  DemoCorpus corpus;
  for (const Folder& folder : kFolders) {
    for (const fs::path& path : files_in(folder)) {
      std::ifstream file(path, std::ios::binary);
      const std::string text{std::istreambuf_iterator<char>(file),
                             std::istreambuf_iterator<char>()};
      if (text.size() < kSmallestFile || !is_text(text)) {
        continue;
      }
      if (corpus.text.size() + text.size() > max_bytes) {
        return corpus;
      }
      corpus.text += text;
      corpus.text += '\n';
      corpus.files.push_back(path);
    }
  }
  if (corpus.text.size() < min_bytes) {
    throw SystemError(fmt::format(
        "demo text: found {} bytes in /usr/share/common-licenses, /usr/include and /usr/share/doc, "
        "need {}: install a C library's headers (apt install libc6-dev) or train on your own text "
        "with `isthmus init`",
        corpus.text.size(), min_bytes));
  }
  return corpus;
}

}  // namespace isthmus::app
