// SPDX-License-Identifier: Apache-2.0
#include "transport/shared_segment.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <utility>

#include "isthmus/errors.h"

namespace isthmus {
namespace {

// Names that a process of the same number has left: of jobs killed in the moment between making one
// and dropping it.
constexpr int kNamesToTry = 1000;

[[noreturn]] void fail(const char* what, const std::string& name, int error) {
  throw SystemError(fmt::format("shared memory {}: {}: {}", name, what, std::strerror(error)));
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
  const int error = ::posix_fallocate(file, 0, static_cast<off_t>(bytes));
  if (error != 0) {
    ::close(file);
    fail(fmt::format("no room for {} bytes (in /dev/shm; a container has --shm-size)", bytes)
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
