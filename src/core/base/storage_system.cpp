// SPDX-License-Identifier: Apache-2.0
#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <limits>
#include <system_error>
#include <utility>

#include "core/base/file_lock.h"
#include "core/base/mapped_files.h"
#include "core/base/retried.h"
#include "core/base/storage.h"
#include "isthmus/errors.h"

namespace isthmus {
namespace {

using Path = Storage::Path;

// Opening a pipe without a writer must be an error, not a wait.
constexpr int kReadFlags = O_RDONLY | O_NONBLOCK;

const char* remedy(int error) {
  switch (error) {
    case ENOENT:
      return "check the spelling and the folder it is relative to";
    case EACCES:
    case EPERM:
      return "check the owner and the permissions (ls -l)";
    case EEXIST:
      return "choose another name, or remove it first";
    case ENOSPC:
      return "free space on that disk (df -h) or use another one";
    case EDQUOT:
      return "free space within your quota or use another disk";
    case EFBIG:
      return "raise the file size limit (ulimit -f)";
    case EROFS:
      return "the file system is mounted read-only; use another path";
    case EISDIR:
      return "name a file, not a directory";
    case ENOTDIR:
      return "a part of the path is a file, not a directory";
    case EMFILE:
    case ENFILE:
      return "raise the limit of open files (ulimit -n)";
    case ENAMETOOLONG:
      return "use a shorter path";
    case EIO:
      return "the disk reports a failure; check it (dmesg)";
    default:
      return "check the path and the disk";
  }
}

[[noreturn]] void fail(const Path& path, const char* action, int error, std::size_t written = 0) {
  const std::string text = path.string() + ": cannot " + action + ": " +
                           std::generic_category().message(error) + "; " + remedy(error);
  if (error == ENOSPC || error == EDQUOT) throw DiskFullError(text, written);
  throw SystemError(text);
}

class FileDescriptor {
 public:
  FileDescriptor(const Path& path, int flags, const char* action, mode_t mode = 0666)
      : fd_(retried([&] { return ::open(path.c_str(), flags | O_CLOEXEC, mode); })) {
    if (fd_ < 0) fail(path, action, errno);
  }
  ~FileDescriptor() { ::close(fd_); }
  FileDescriptor(const FileDescriptor&) = delete;
  FileDescriptor& operator=(const FileDescriptor&) = delete;
  [[nodiscard]] int get() const { return fd_; }

 private:
  int fd_;
};

std::size_t regular_size(const Path& path, const FileDescriptor& file) {
  struct stat status {};
  if (::fstat(file.get(), &status) != 0) fail(path, "read", errno);
  if (S_ISDIR(status.st_mode)) fail(path, "read", EISDIR);
  if (!S_ISREG(status.st_mode)) {
    throw SystemError(path.string() + ": cannot read: not a regular file (a device, pipe or " +
                      "socket); copy its contents into a file first");
  }
  return static_cast<std::size_t>(status.st_size);
}

std::vector<std::byte> read_all(const Path& path, const FileDescriptor& file) {
  std::vector<std::byte> bytes(regular_size(path, file));
  std::size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t got =
        retried([&] { return ::read(file.get(), bytes.data() + done, bytes.size() - done); });
    if (got < 0) fail(path, "read", errno);
    if (got == 0) break;  // the file was shortened meanwhile: the bytes so far are all of it
    done += static_cast<std::size_t>(got);
  }
  bytes.resize(done);
  return bytes;
}

class SystemFile final : public WritableFile {
 public:
  SystemFile(const Path& path, int flags, mode_t mode = 0666)
      : path_(path), file_(path, O_WRONLY | O_CREAT | flags, "write", mode) {}

  void append(std::span<const std::byte> bytes) override {
    std::size_t done = 0;
    while (done < bytes.size()) {
      const ssize_t written =
          retried([&] { return ::write(file_.get(), bytes.data() + done, bytes.size() - done); });
      if (written < 0) fail(path_, "write", errno, done);
      if (written == 0) fail(path_, "write", ENOSPC, done);
      done += static_cast<std::size_t>(written);
    }
  }

  void sync() override {
    if (retried([&] { return ::fsync(file_.get()); }) != 0 && errno != EINVAL) {
      fail(path_, "flush to disk", errno);
    }
  }

 private:
  Path path_;
  FileDescriptor file_;
};

}  // namespace

void leave_mapped_pages(std::span<const std::byte> bytes) {
  const auto page = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
  const auto from = reinterpret_cast<std::uintptr_t>(bytes.data());
  const std::uintptr_t begin = (from + page - 1) / page * page;
  const std::uintptr_t end = (from + bytes.size()) / page * page;
  if (begin >= end) return;
  // A hint: where it is refused the pages stay.
  static_cast<void>(::madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DONTNEED));
}

MappedFile::~MappedFile() {
  if (data_ == nullptr) return;
  forget_mapping(data_);
  ::munmap(const_cast<std::byte*>(data_), size_);
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

FileKind SystemStorage::kind(const Path& path) const {
  struct stat status {};
  if (::lstat(path.c_str(), &status) != 0) {
    if (errno == ENOENT || errno == ENOTDIR) return FileKind::kAbsent;
    fail(path, "look at", errno);
  }
  if (S_ISREG(status.st_mode)) return FileKind::kFile;
  if (S_ISDIR(status.st_mode)) return FileKind::kDirectory;
  if (S_ISLNK(status.st_mode)) return FileKind::kLink;
  return FileKind::kOther;
}

MappedFile SystemStorage::map(const Path& path) const {
  const FileDescriptor file(path, kReadFlags, "read");
  const std::size_t size = regular_size(path, file);
  if (size == 0) return {};
  void* data = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file.get(), 0);
  if (data == MAP_FAILED) fail(path, "map into memory", errno);
  note_mapping(static_cast<const std::byte*>(data), size, path.string());
  return {static_cast<const std::byte*>(data), size};
}

std::vector<std::byte> SystemStorage::read(const Path& path) const {
  const FileDescriptor file(path, kReadFlags, "read");
  return read_all(path, file);
}

std::vector<std::string> SystemStorage::list(const Path& directory) const {
  std::vector<std::string> names;
  std::error_code error;
  std::filesystem::directory_iterator entry(directory, error);
  if (error) fail(directory, "list", error.value());
  for (; entry != std::filesystem::directory_iterator(); entry.increment(error)) {
    names.push_back(entry->path().filename().string());
  }
  if (error) fail(directory, "list", error.value());
  std::sort(names.begin(), names.end());
  return names;
}

Path SystemStorage::read_link(const Path& link) const {
  std::error_code error;
  Path target = std::filesystem::read_symlink(link, error);
  if (error) fail(link, "read the link", error.value());
  return target;
}

std::uint64_t SystemStorage::free_bytes(const Path& path) const {
  std::error_code error;
  Path there = std::filesystem::absolute(path);
  while (!std::filesystem::exists(there, error) && there.has_relative_path()) {
    there = there.parent_path();
  }
  const std::filesystem::space_info space = std::filesystem::space(there, error);
  if (error) fail(there, "ask for the free space", error.value());
  if (space.capacity == 0) return std::numeric_limits<std::int64_t>::max();  // it does not tell
  return space.available;
}

std::unique_ptr<WritableFile> SystemStorage::create(const Path& path) {
  return std::make_unique<SystemFile>(path, O_TRUNC);
}

std::unique_ptr<WritableFile> SystemStorage::append(const Path& path) {
  return std::make_unique<SystemFile>(path, O_APPEND);
}

void SystemStorage::rename(const Path& from, const Path& to) {
  if (::rename(from.c_str(), to.c_str()) != 0) {
    fail(from, ("rename to " + to.string()).c_str(), errno);
  }
}

void SystemStorage::remove(const Path& path) {
  if (::remove(path.c_str()) != 0) fail(path, "remove", errno);
}

void SystemStorage::remove_all(const Path& path) {
  std::error_code error;
  std::filesystem::remove_all(path, error);
  if (error) fail(path, "remove", error.value());
}

void SystemStorage::create_directories(const Path& directory) {
  std::error_code error;
  std::filesystem::create_directories(directory, error);
  if (error) fail(directory, "create the directory", error.value());
}

void SystemStorage::create_link(const Path& target, const Path& link) {
  if (::symlink(target.c_str(), link.c_str()) != 0) fail(link, "create the link", errno);
}

void SystemStorage::sync_directory(const Path& directory) {
  const FileDescriptor file(directory.empty() ? Path(".") : directory, O_RDONLY | O_DIRECTORY,
                            "open the directory");
  // Some network file systems refuse to sync a directory; their renames are synchronous anyway.
  if (retried([&] { return ::fsync(file.get()); }) != 0 && errno != EINVAL) {
    fail(directory, "flush to disk", errno);
  }
}

// A link, unlike a rename, never replaces an existing file.
void write_private_file(const Path& path, std::string_view text) {
  SystemStorage storage;
  if (storage.kind(path) != FileKind::kAbsent) fail(path, "write", EEXIST);
  const Path temporary = temporary_beside(path);
  ::unlink(temporary.c_str());  // of a write that was interrupted
  try {
    SystemFile file(temporary, O_EXCL | O_NOFOLLOW, 0600);
    file.append(as_bytes(text));
    file.sync();
    if (::link(temporary.c_str(), path.c_str()) != 0) fail(path, "write", errno);
  } catch (...) {
    ::unlink(temporary.c_str());
    throw;
  }
  storage.remove(temporary);
  storage.sync_directory(path.has_parent_path() ? path.parent_path() : Path("."));
}

std::vector<std::byte> read_private_file(const Path& path) {
  const FileDescriptor file(path, kReadFlags, "read");
  struct stat status {};
  if (::fstat(file.get(), &status) != 0) fail(path, "read", errno);
  if (S_ISREG(status.st_mode) && (status.st_mode & (S_IRWXG | S_IRWXO)) != 0) {
    throw SystemError(path.string() + ": others than its owner may read or change it; chmod 600 " +
                      path.string());
  }
  return read_all(path, file);
}

void create_private_directory(const Path& directory) {
  const Path folder = directory.has_filename() ? directory : directory.parent_path();
  if (folder.empty()) return;
  SystemStorage storage;
  if (folder.has_parent_path()) storage.create_directories(folder.parent_path());
  if (::mkdir(folder.c_str(), 0700) == 0) return;
  if (errno != EEXIST) fail(folder, "create the directory", errno);
  std::error_code error;
  if (!std::filesystem::is_directory(folder, error)) fail(folder, "create the directory", ENOTDIR);
}

FileLock::FileLock(const std::filesystem::path& path, const std::string& held)
    : fd_(retried([&] { return ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666); })) {
  if (fd_ < 0) fail(path, "lock", errno);
  if (::flock(fd_, LOCK_EX | LOCK_NB) != 0) {
    const int error = errno;
    ::close(fd_);
    if (error == EWOULDBLOCK) throw SystemError(path.string() + ": " + held);
    fail(path, "lock", error);
  }
}

FileLock::~FileLock() { ::close(fd_); }

}  // namespace isthmus
