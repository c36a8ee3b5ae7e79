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
  /// THROWS: SystemError where the file cannot be read, or is of a format that holds no text.
  explicit TextStream(const std::filesystem::path& path);

  /// The next bytes of the text, at the end of `text`; false once there are no more. Blocking.
  /// THROWS: SystemError where the file cannot be read, or its compressed data are damaged.
  [[nodiscard]] bool read(std::string& text);
  /// Of the file as it lies, up to where it was read.
  [[nodiscard]] std::int64_t bytes_read() const { return bytes_read_; }
  /// SHA-256 of the file as it lies. REQUIRES: `read` has returned false. Call once.
  [[nodiscard]] std::string sha256() { return digest_.hex(); }

 private:
  void fill();
  /// THROWS: SystemError where a beginning is that of no text.
  void check_text(std::span<const std::byte> begin) const;

  std::filesystem::path path_;
  std::ifstream file_;
  std::vector<std::byte> buffer_;
  std::span<const std::byte> raw_;  // of `buffer_`, not yet taken
  std::unique_ptr<Inflater> inflater_;
  bool unpacked_ = false;  // the beginning of what it unpacks to
  Sha256 digest_;
  std::int64_t bytes_read_ = 0;
};

}  // namespace isthmus
