// SPDX-License-Identifier: Apache-2.0
#include "data/tokenize/document_blocks.h"

#include <fmt/format.h>

#include <algorithm>

#include "isthmus/errors.h"

namespace isthmus {
namespace {

constexpr std::size_t kBlockBytes = std::size_t{1} << 20;
constexpr std::size_t kMostDocument = std::size_t{1} << 30;

}  // namespace

bool names_json_lines(const std::filesystem::path& path) {
  std::filesystem::path name = path.filename();
  if (name.extension() == ".gz" || name.extension() == ".zst") name = name.stem();
  return name.extension() == ".jsonl" || name.extension() == ".ndjson";
}

DocumentBlocks::DocumentBlocks(const std::filesystem::path& path, const Tokenizer& tokenizer)
    : path_(path), tokenizer_(tokenizer), lines_(names_json_lines(path)), stream_(path) {
  place_ = lines_ ? 1 : 0;
}

/// How much of `rest_` makes a block; 0 where more must be read first.
std::size_t DocumentBlocks::cut() const {
  if (over_) return rest_.size();
  if (rest_.size() < kBlockBytes) return 0;
  if (lines_) {
    const std::size_t newline = rest_.rfind('\n');
    return newline == std::string::npos ? 0 : newline + 1;
  }
  return tokenizer_.last_cut(rest_).value_or(0);
}

bool DocumentBlocks::next(DocumentBlock& block) {
  if (over_ && (rest_.empty() && began_)) return false;
  std::size_t length = cut();
  while (length == 0 && !over_) {
    if (rest_.size() > kMostDocument) {
      throw SystemError(
          fmt::format("{}: the {} that begins at {} {} has more than {} bytes and cannot be cut; "
                      "split the file",
                      path_.string(), lines_ ? "line" : "document", lines_ ? "line" : "byte",
                      place_, kMostDocument));
    }
    // A block that has to grow is looked at again when it has doubled.
    const std::size_t enough = rest_.size() < kBlockBytes ? kBlockBytes : rest_.size() * 2;
    while (!over_ && rest_.size() < enough) over_ = !stream_.read(rest_);
    length = cut();
  }
  block.text.assign(rest_, 0, length);
  rest_.erase(0, length);
  block.first = place_;
  block.continues = !lines_ && began_;
  block.last = over_;
  began_ = true;
  place_ += lines_ ? std::count(block.text.begin(), block.text.end(), '\n')
                   : static_cast<std::int64_t>(length);
  return true;
}

std::vector<std::filesystem::path> document_files(const Storage& storage,
                                                  const std::string& pattern) {
  std::vector<std::filesystem::path> files = expand_pattern(storage, pattern);
  for (const std::filesystem::path& file : files) {
    if (storage.kind(file) == FileKind::kDirectory) {
      throw SystemError(fmt::format("{0}: is a folder; name its files, for example '{0}/*.jsonl'",
                                    file.string()));
    }
  }
  if (files.empty() || storage.kind(files.front()) == FileKind::kAbsent) {
    throw SystemError(fmt::format("{}: no such file; check the spelling", pattern));
  }
  return files;
}

}  // namespace isthmus
