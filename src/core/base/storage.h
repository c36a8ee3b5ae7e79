// SPDX-License-Identifier: Apache-2.0
// The interface to the disk: whole files, mapped files, atomic replacement, directories.
// SystemStorage is the real disk; tests/storage_faults.h counts, fails and "crashes" for tests.
//
// Every failure THROWS: SystemError naming the path, the cause and the remedy. Implementations take
// calls from any thread; a WritableFile belongs to one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "isthmus/errors.h"

namespace isthmus {

/// The disk or the owner's quota is full: a user may free space while the program waits.
class DiskFullError : public SystemError {
 public:
  explicit DiskFullError(const std::string& text, std::size_t written = 0)
      : SystemError(text), written_(written) {}
  /// Number of bytes of a refused append that are in the file.
  [[nodiscard]] std::size_t written() const { return written_; }

 private:
  std::size_t written_;
};

/// Read-only view of a file's bytes, which stay valid for the object's lifetime. The file must not
/// be shortened during that time (the kernel would end the process): writers here replace by
/// rename.
class MappedFile {
 public:
  MappedFile() = default;
  /// Takes ownership of a mapping made by mmap; `data` may be null for no bytes.
  MappedFile(const std::byte* data, std::size_t size) : data_(data), size_(size) {}
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  [[nodiscard]] std::span<const std::byte> bytes() const { return {data_, size_}; }

 private:
  const std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

/// A file being written. The destructor closes it without a sync.
class WritableFile {
 public:
  virtual ~WritableFile() = default;
  virtual void append(std::span<const std::byte> bytes) = 0;
  /// Blocks until the bytes are on the disk.
  virtual void sync() = 0;
};

enum class FileKind { kAbsent, kFile, kDirectory, kLink, kOther };

class Storage {
 public:
  using Path = std::filesystem::path;
  virtual ~Storage() = default;

  /// Kind of the entry at `path`; links are not followed.
  [[nodiscard]] virtual FileKind kind(const Path& path) const = 0;
  [[nodiscard]] virtual MappedFile map(const Path& path) const = 0;
  [[nodiscard]] virtual std::vector<std::byte> read(const Path& path) const = 0;
  /// Names in a directory, sorted, without "." and "..".
  [[nodiscard]] virtual std::vector<std::string> list(const Path& directory) const = 0;
  /// The target of a symbolic link.
  [[nodiscard]] virtual Path read_link(const Path& link) const = 0;
  /// Bytes that this process may still write to the disk of `path`, or of its nearest existing
  /// parent folder; 2^63 - 1 if the disk does not tell. Quotas do not count.
  [[nodiscard]] virtual std::uint64_t free_bytes(const Path& path) const = 0;

  /// Opens for writing; truncates an existing file.
  [[nodiscard]] virtual std::unique_ptr<WritableFile> create(const Path& path) = 0;
  /// Opens for writing at the end.
  [[nodiscard]] virtual std::unique_ptr<WritableFile> append(const Path& path) = 0;
  /// Replaces `to` atomically when it is a file or link.
  virtual void rename(const Path& from, const Path& to) = 0;
  /// Removes a file, a link (not its target) or an empty directory.
  virtual void remove(const Path& path) = 0;
  /// Removes `path` and all under it; a missing path is no error. Not atomic.
  virtual void remove_all(const Path& path) = 0;
  virtual void create_directories(const Path& directory) = 0;
  virtual void create_link(const Path& target, const Path& link) = 0;
  /// Blocks until the directory's entries (creations, renames) are on the disk.
  virtual void sync_directory(const Path& directory) = 0;
};

/// The machine's file system (POSIX).
class SystemStorage final : public Storage {
 public:
  [[nodiscard]] FileKind kind(const Path& path) const override;
  [[nodiscard]] MappedFile map(const Path& path) const override;
  [[nodiscard]] std::vector<std::byte> read(const Path& path) const override;
  [[nodiscard]] std::vector<std::string> list(const Path& directory) const override;
  [[nodiscard]] Path read_link(const Path& link) const override;
  [[nodiscard]] std::uint64_t free_bytes(const Path& path) const override;
  [[nodiscard]] std::unique_ptr<WritableFile> create(const Path& path) override;
  [[nodiscard]] std::unique_ptr<WritableFile> append(const Path& path) override;
  void rename(const Path& from, const Path& to) override;
  void remove(const Path& path) override;
  void remove_all(const Path& path) override;
  void create_directories(const Path& directory) override;
  void create_link(const Path& target, const Path& link) override;
  void sync_directory(const Path& directory) override;
};

/// The bytes of a text, and back.
[[nodiscard]] inline std::span<const std::byte> as_bytes(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}
[[nodiscard]] std::string as_text(std::span<const std::byte> bytes);

/// The whole file as text.
[[nodiscard]] std::string read_text(const Storage& storage, const std::filesystem::path& path);

/// Path of the temporary file that `write_atomically` uses: ".NAME.tmp" in the same folder.
[[nodiscard]] std::filesystem::path temporary_beside(const std::filesystem::path& path);

/// Writes a temporary file in the same directory, syncs it, renames it to `path`, syncs the
/// directory: after any interruption `path` holds the old bytes or the new ones. On an exception up
/// to the rename the temporary file is removed and `path` is unchanged; if only the sync of the
/// directory fails, `path` has the new bytes.
void write_atomically(Storage& storage, const std::filesystem::path& path,
                      const std::function<void(WritableFile&)>& write);
void write_atomically(Storage& storage, const std::filesystem::path& path,
                      std::span<const std::byte> bytes);
void write_atomically(Storage& storage, const std::filesystem::path& path, std::string_view text);

/// Functions for secrets, on the machine's file system: files that only their owner can access.
/// Writes a file with mode 0600, never over an existing file; after any interruption it is whole or
/// absent. THROWS: SystemError, also when `path` exists.
void write_private_file(const std::filesystem::path& path, std::string_view text);
/// THROWS: SystemError when other users may read or change the file, naming the remedy.
[[nodiscard]] std::vector<std::byte> read_private_file(const std::filesystem::path& path);
/// Creates the folder with mode 0700; an existing folder does not change.
void create_private_directory(const std::filesystem::path& directory);

/// Points `link` at `target` (relative to the link's directory), atomically.
void replace_link(Storage& storage, const std::filesystem::path& target,
                  const std::filesystem::path& link);

/// Paths that match `pattern`, sorted; `*`, `?` and `[...]` match within one path component, and
/// match names with a leading dot only if the pattern's component has one. A pattern without
/// wildcards gives itself, even if the file does not exist. A relative pattern starts at `base`, in
/// which wildcard characters are literal.
[[nodiscard]] std::vector<std::filesystem::path> expand_pattern(
    const Storage& storage, const std::filesystem::path& pattern,
    const std::filesystem::path& base = {});

}  // namespace isthmus
