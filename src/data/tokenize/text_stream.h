// SPDX-License-Identifier: Apache-2.0
// The bytes of a text file from its beginning to its end, plain or compressed with gzip or zstd, in
// memory that does not grow with the file. Belongs to one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/base/hash.h"
#include "data/inflater.h"

namespace isthmus {

class TextStream {
 public:
  /// THROWS: SystemError when the file cannot be read, or has a format that holds no text.
  explicit TextStream(const std::filesystem::path& path);

  /// Appends the next bytes of the text to `text`; false at the end. Blocks. THROWS: SystemError
  /// when the file cannot be read, or its compressed data are damaged.
  [[nodiscard]] bool read(std::string& text);
  /// Bytes of the (compressed) file read so far.
  [[nodiscard]] std::int64_t bytes_read() const { return bytes_read_; }
  /// SHA-256 of the (compressed) file. REQUIRES: `read` has returned false. Call once.
  [[nodiscard]] std::string sha256() { return digest_.hex(); }

 private:
  void fill();
  /// THROWS: SystemError when these first bytes are not text.
  void check_text(std::span<const std::byte> begin) const;

  std::filesystem::path path_;
  std::ifstream file_;
  std::vector<std::byte> buffer_;
  std::span<const std::byte> raw_;  // part of `buffer_` not yet used
  std::unique_ptr<Inflater> inflater_;
  bool unpacked_ = false;  // the first unpacked bytes have been checked
  Sha256 digest_;
  std::int64_t bytes_read_ = 0;
};

}  // namespace isthmus
