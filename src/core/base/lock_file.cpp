// SPDX-License-Identifier: Apache-2.0
#include "core/base/lock_file.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <sstream>
#include <system_error>

#include "core/base/read_only_error.h"
#include "core/base/retried.h"
#include "core/base/storage.h"
#include "isthmus/errors.h"

namespace isthmus {
namespace {

using Path = std::filesystem::path;

/// Numbers of <linux/magic.h> and of the file systems' own sources, of file systems that one
/// machine mounts.
constexpr std::array<std::uint32_t, 12> kLocal = {
    0xEF53,      // ext2, ext3, ext4
    0x58465342,  // XFS
    0x9123683E,  // Btrfs
    0x01021994,  // tmpfs
    0x858458F6,  // ramfs
    0x2FC12FC1,  // ZFS
    0xF2F52010,  // F2FS
    0x794C7630,  // overlayfs
    0xCA451A4E,  // bcachefs
    0x3153464A,  // JFS
    0x52654973,  // ReiserFS
    0x4D44,      // FAT
};

[[noreturn]] void fail_lock(const Path& path, const char* action, int error) {
  const std::string text =
      path.string() + ": cannot " + action + ": " + std::generic_category().message(error) + "; ";
  if (error == ENOSPC || error == EDQUOT) {
    throw DiskFullError(text + "free space on that disk (df -h) or use another one");
  }
  const std::string remedy = "check the folder's owner and permissions (ls -ld)";
  if (error == EROFS) {
    throw ReadOnlyError(text + "mount that disk for writing, or give another folder");
  }
  if (error == EACCES || error == EPERM) throw ReadOnlyError(text + remedy);
  throw SystemError(text + remedy);
}

class ScopedDescriptor {
 public:
  ScopedDescriptor(const Path& path, int flags)
      : fd_(retried([&] { return ::open(path.c_str(), flags | O_CLOEXEC); })) {}
  ~ScopedDescriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  ScopedDescriptor(const ScopedDescriptor&) = delete;
  ScopedDescriptor& operator=(const ScopedDescriptor&) = delete;
  [[nodiscard]] int get() const { return fd_; }

 private:
  int fd_;
};

/// Files of /proc say no size: read to the end.
std::string read_to_end(int fd) {
  std::string text;
  std::array<char, 1024> part{};
  while (true) {
    const auto at = static_cast<off_t>(text.size());
    const ssize_t got = retried([&] { return ::pread(fd, part.data(), part.size(), at); });
    if (got <= 0) return text;
    text.append(part.data(), static_cast<std::size_t>(got));
  }
}

std::string first_line(const char* path) {
  const ScopedDescriptor file(path, O_RDONLY);
  const std::string text = file.get() < 0 ? "" : read_to_end(file.get());
  return text.substr(0, text.find('\n'));
}

/// A field of /proc/PID/stat, from the third on; the second, a name in brackets, may hold blanks.
std::string stat_field(const std::string& pid, int number) {
  const std::string line = first_line(("/proc/" + pid + "/stat").c_str());
  const std::size_t name_end = line.rfind(')');
  if (name_end == std::string::npos) return "";
  std::istringstream fields(line.substr(name_end + 1));
  std::string field;
  for (int i = 3; i <= number; ++i) fields >> field;
  return field;
}

std::string begun(const std::string& pid) { return stat_field(pid, 22); }
std::string parent_of(const std::string& pid) { return stat_field(pid, 4); }

}  // namespace

ProcessIdentity this_process() {
  std::array<char, 256> host{};
  if (::gethostname(host.data(), host.size() - 1) != 0) host[0] = '\0';
  std::error_code unknown;
  return {.pid = ::getpid(),
          .host = host.data(),
          .boot = first_line("/proc/sys/kernel/random/boot_id"),
          .pid_space = std::filesystem::read_symlink("/proc/self/ns/pid", unknown).string(),
          .begun = begun("self")};
}

bool process_lives(const ProcessIdentity& process) {
  if (::kill(static_cast<pid_t>(process.pid), 0) != 0 && errno == ESRCH) return false;
  const std::string now = begun(std::to_string(process.pid));
  return now.empty() || process.begun.empty() || now == process.begun;
}

bool has_started_this_process(const ProcessIdentity& process) {
  const ProcessIdentity self = this_process();
  if (process.boot != self.boot || process.pid_space != self.pid_space) return false;
  constexpr int kMostAncestors = 100;
  std::string pid = parent_of("self");
  for (int i = 0; i < kMostAncestors && !pid.empty() && pid != "0"; ++i, pid = parent_of(pid)) {
    if (pid == std::to_string(process.pid)) return process_lives(process);
  }
  return false;
}

bool is_on_local_disk(const Path& folder) {
  struct statfs status {};
  if (retried([&] { return ::statfs(folder.c_str(), &status); }) != 0) return false;
  return std::ranges::find(kLocal, static_cast<std::uint32_t>(status.f_type)) != kLocal.end();
}

std::optional<bool> is_locked(const Path& path) {
  const ScopedDescriptor file(path, O_RDONLY);
  if (file.get() < 0) return false;
  if (retried([&] { return ::flock(file.get(), LOCK_SH | LOCK_NB); }) == 0) return false;
  return errno == EWOULDBLOCK ? std::optional(true) : std::nullopt;
}

std::optional<std::string> text_of_lock_file(const Path& path) {
  const ScopedDescriptor file(path, O_RDONLY);
  if (file.get() < 0 && errno == ENOENT) return std::nullopt;
  if (file.get() < 0) fail_lock(path, "read", errno);
  return read_to_end(file.get());
}

// Making the file is the one step that every file system does for one process alone; a file that
// is there already may be removed by its owner between the two calls.
LockFile::LockFile(const Path& path) : path_(path) {
  constexpr int kFlags = O_RDWR | O_CLOEXEC | O_NOFOLLOW;
  constexpr int kTries = 1000;
  for (int i = 0; i < kTries && fd_ < 0; ++i) {
    fd_ = retried([&] { return ::open(path.c_str(), kFlags | O_CREAT | O_EXCL, 0666); });
    made_ = fd_ >= 0;
    if (fd_ < 0 && errno == ENOENT) return;  // the folder is gone
    if (fd_ < 0 && errno == EEXIST) {
      fd_ = retried([&] { return ::open(path.c_str(), kFlags); });
      if (fd_ < 0 && errno == ENOENT) continue;
    }
    if (fd_ < 0) fail_lock(path, "lock", errno);
  }
  if (fd_ < 0) fail_lock(path, "lock", EAGAIN);
}

LockFile::~LockFile() {
  if (fd_ >= 0) ::close(fd_);
}

LockFile::Attempt LockFile::try_lock() {
  if (retried([&] { return ::flock(fd_, LOCK_EX | LOCK_NB); }) == 0) return Attempt::kHeld;
  return errno == EWOULDBLOCK ? Attempt::kTaken : Attempt::kUnsupported;
}

bool LockFile::is_at_path() const {
  struct stat here {};
  struct stat there {};
  return ::fstat(fd_, &here) == 0 && ::stat(path_.c_str(), &there) == 0 &&
         here.st_dev == there.st_dev && here.st_ino == there.st_ino;
}

std::string LockFile::read() const { return read_to_end(fd_); }

void LockFile::write(std::string_view text) {
  std::size_t done = 0;
  while (done < text.size()) {
    const ssize_t put = retried([&] {
      return ::pwrite(fd_, text.data() + done, text.size() - done, static_cast<off_t>(done));
    });
    if (put < 0) fail_lock(path_, "write", errno);
    done += static_cast<std::size_t>(put);
  }
  if (::ftruncate(fd_, static_cast<off_t>(text.size())) != 0) fail_lock(path_, "write", errno);
}

void LockFile::sync() {
  if (retried([&] { return ::fsync(fd_); }) != 0 && errno != EINVAL)
    fail_lock(path_, "write", errno);
}

void LockFile::remove() { ::unlink(path_.c_str()); }

}  // namespace isthmus
