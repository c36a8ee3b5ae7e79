// SPDX-License-Identifier: Apache-2.0
#include "transport/collectives/shared_segment.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <utility>

#include "isthmus/errors.h"

namespace isthmus {
namespace {

// Names that a process of the same number has left: of jobs killed in the moment between making one
// and dropping it.
constexpr int kNamesToTry = 1000;

// Of a container's usual 64 MiB a sixteenth.
constexpr std::uint64_t kLeftToOthers = std::uint64_t{4} << 20;

[[noreturn]] void fail(const char* what, const std::string& name, int error) {
  throw SystemError(
      fmt::format("shared memory {}: {}: {}; look at /dev/shm (room, permissions), or use "
                  "the communicator \"mpi\"",
                  name, what, std::strerror(error)));
}

/// Of the file's file system; 0 where it does not say.
std::uint64_t free_bytes(int file) {
  struct statvfs room {};
  return ::fstatvfs(file, &room) == 0 ? std::uint64_t{room.f_bavail} * room.f_frsize : 0;
}

/// RETURNS: 0 or an error number.
int reserve(int file, std::size_t bytes, std::uint64_t free) {
  if (free < bytes + kLeftToOthers) return ENOSPC;
  int error = EINTR;  // by a signal: it begins again
  while (error == EINTR) error = ::posix_fallocate(file, 0, static_cast<off_t>(bytes));
  return error;
}

/// Closes the file: a mapping does without.
std::byte* map(int file, std::size_t bytes, const std::string& name) {
  void* const at = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  const int error = errno;
  ::close(file);
  if (at == MAP_FAILED) fail("cannot be mapped", name, error);
  return static_cast<std::byte*>(at);
}

}  // namespace

SharedSegment SharedSegment::create(std::size_t bytes) {
  static std::atomic<int> made{0};
  SharedSegment segment;
  int file = -1;
  for (int i = 0; i < kNamesToTry && file < 0; ++i) {
    segment.name_ = fmt::format("/isthmus-{}-{}", ::getpid(), made.fetch_add(1));
    file = ::shm_open(segment.name_.c_str(), O_RDWR | O_CREAT | O_EXCL, S_IRUSR | S_IWUSR);
    if (file >= 0 || errno == EEXIST) continue;
    fail("cannot be made", std::exchange(segment.name_, {}), errno);
  }
  if (file < 0) fail("its names are all taken", std::exchange(segment.name_, {}), EEXIST);
  const std::uint64_t free = free_bytes(file);
  const int error = reserve(file, bytes, free);
  if (error != 0) {
    ::close(file);
    fail(fmt::format("no room for {} bytes: {} are free in /dev/shm, {} of them are left to others "
                     "(a container has --shm-size)",
                     bytes, free, kLeftToOthers)
             .c_str(),
         segment.name_, error);
  }
  segment.data_ = map(file, bytes, segment.name_);
  segment.bytes_ = bytes;
  return segment;
}

SharedSegment SharedSegment::open(const std::string& name, std::size_t bytes) {
  const int file = ::shm_open(name.c_str(), O_RDWR, 0);
  if (file < 0) fail("is not here", name, errno);
  struct stat status {};
  if (::fstat(file, &status) != 0 || status.st_size != static_cast<off_t>(bytes)) {
    ::close(file);
    fail("has another size", name, EINVAL);
  }
  SharedSegment segment;
  segment.data_ = map(file, bytes, name);
  segment.bytes_ = bytes;
  return segment;
}

SharedSegment SharedSegment::unshared(std::size_t bytes) {
  SharedSegment segment;
  void* const at =
      ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (at == MAP_FAILED) fail("cannot be had", "of one process", errno);
  segment.data_ = static_cast<std::byte*>(at);
  segment.bytes_ = bytes;
  return segment;
}

SharedSegment::SharedSegment(SharedSegment&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)),
      bytes_(std::exchange(other.bytes_, 0)),
      name_(std::exchange(other.name_, {})) {}

SharedSegment& SharedSegment::operator=(SharedSegment&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  std::swap(name_, other.name_);
  return *this;
}

SharedSegment::~SharedSegment() {
  drop_name();
  if (data_ != nullptr) ::munmap(data_, bytes_);
}

void SharedSegment::drop_name() noexcept {
  if (!name_.empty()) ::shm_unlink(name_.c_str());
  name_.clear();
}

}  // namespace isthmus
