// SPDX-License-Identifier: Apache-2.0
#include "core/state/state_memory.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <mutex>
#include <new>
#include <optional>
#include <string>
#include <system_error>
#include <utility>

#include "core/base/fresh_id.h"
#include "core/base/units.h"
#include "core/state/state_pager.h"
#include "isthmus/errors.h"

namespace isthmus {
namespace {

constexpr std::size_t kInFile = std::size_t{1} << 20;  // bytes from which an array has a file
constexpr std::size_t kHugePage = std::size_t{2} << 20;
constexpr std::size_t kManyHugePages = std::size_t{16} << 20;  // bytes from which rounding is small
constexpr std::size_t kCacheLine = 64;
constexpr std::size_t kWindowBytes = std::size_t{8} << 20;  // of one array on a walk

thread_local StateMemory* current_memory = nullptr;

struct Mapped {
  std::size_t bytes = 0;
  int file = -1;
  StatePager* pager = nullptr;
};

/// The mapped files of this process by where they begin, as the process has one address space.
struct MappedFiles {
  std::mutex mutex;
  std::map<const std::byte*, Mapped> by_begin;
  std::atomic<int> count{0};
};

MappedFiles& mapped_files() {
  static MappedFiles files;
  return files;
}

struct FilePlace {
  StatePager* pager = nullptr;
  StatePages pages;
};

/// The pages of values; outward: also those that they share with their neighbours.
std::optional<FilePlace> place_of(std::span<const float> values, bool outward) {
  MappedFiles& files = mapped_files();
  if (files.count.load(std::memory_order_acquire) == 0 || values.empty()) return std::nullopt;
  auto* const first = reinterpret_cast<std::byte*>(const_cast<float*>(values.data()));
  const std::scoped_lock lock(files.mutex);
  auto at = files.by_begin.upper_bound(first);
  if (at == files.by_begin.begin()) return std::nullopt;
  --at;
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  auto begin = static_cast<std::size_t>(first - at->first);
  if (begin >= at->second.bytes) return std::nullopt;
  std::size_t end = std::min(begin + values.size_bytes(), at->second.bytes);
  const bool to_the_end = end + page > at->second.bytes;  // no other array is on the last page
  begin = (outward ? begin : begin + page - 1) / page * page;
  end = (outward || to_the_end ? end + page - 1 : end) / page * page;
  if (begin >= end) return std::nullopt;
  return FilePlace{.pager = at->second.pager,
                   .pages = {.file = at->second.file,
                             .begin = const_cast<std::byte*>(at->first) + begin,
                             .bytes = end - begin,
                             .offset = static_cast<std::int64_t>(begin)}};
}

[[noreturn]] void fail_at(const std::filesystem::path& folder, const char* action, int error) {
  throw SystemError(
      fmt::format("train.offload = \"{}\": cannot {}: {}; name a folder on a local "
                  "disk that this process may write to",
                  folder.string(), action, std::generic_category().message(error)));
}

/// A file without a name: where the file system has no such files, the name is taken away at once.
int nameless_file(const std::filesystem::path& folder) {
  constexpr mode_t kOwnerOnly = 0600;
  int file = ::open(folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, kOwnerOnly);
  if (file >= 0) return file;
  if (errno == EMFILE || errno == ENFILE) {
    throw SystemError(
        fmt::format("train.offload = \"{}\": too many open files, each fragment has "
                    "some; raise the limit (ulimit -n)",
                    folder.string()));
  }
  if (errno != EOPNOTSUPP && errno != EISDIR && errno != EINVAL) fail_at(folder, "write", errno);
  const std::filesystem::path name = folder / (".isthmus-state-" + fresh_id().hex());
  file = ::open(name.c_str(), O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, kOwnerOnly);
  if (file < 0) fail_at(folder, "write", errno);
  ::unlink(name.c_str());
  return file;
}

}  // namespace

StateMemory::StateMemory(const Options& options)
    : folder_(options.folder), pager_(std::make_shared<StatePager>(options)) {
  std::error_code error;
  std::filesystem::create_directories(folder_.parent_path(), error);
  constexpr mode_t kOwnerOnly = 0700;
  if (::mkdir(folder_.c_str(), kOwnerOnly) != 0 && errno != EEXIST) {
    fail_at(folder_, "make the folder", errno);
  }
}

StateMemory::~StateMemory() { pager_->stop_recording(); }

StateTraffic StateMemory::traffic() const { return pager_->traffic(); }
void StateMemory::begin_step(StepIndex t) { pager_->begin_step(t); }
StateMemory* StateMemory::current() { return current_memory; }

StateMemoryScope::StateMemoryScope(StateMemory* memory) : before_(current_memory) {
  if (memory != nullptr) current_memory = memory;
}
StateMemoryScope::~StateMemoryScope() { current_memory = before_; }

namespace {

/// Not filled. Advice only: a kernel without transparent huge pages refuses, and small pages serve
/// as well. Whole huge pages alone are asked for: no array takes more memory than its values do.
float* take_memory(std::size_t bytes) {
  const std::size_t alignment = bytes >= kManyHugePages ? kHugePage : kCacheLine;
  const std::size_t room = (bytes + alignment - 1) / alignment * alignment;
  auto* const data = static_cast<std::byte*>(std::aligned_alloc(alignment, room));
  if (data == nullptr) throw std::bad_alloc();
  const auto at = reinterpret_cast<std::uintptr_t>(data);
  const std::size_t first = (kHugePage - at % kHugePage) % kHugePage;
  if (first < bytes && bytes - first >= kHugePage) {
    const std::size_t whole = (bytes - first) / kHugePage * kHugePage;
    static_cast<void>(::madvise(data + first, whole, MADV_HUGEPAGE));
  }
  return reinterpret_cast<float*>(data);
}

}  // namespace

StateArray::StateArray(std::size_t size) : StateArray(size, Start::kZeros) {}
StateArray StateArray::unfilled(std::size_t size) { return {size, Start::kUnfilled}; }

StateArray::StateArray(std::size_t size, Start start) : size_(size) {
  if (size == 0) return;
  const std::size_t bytes = size * sizeof(float);
  if (current_memory != nullptr && bytes >= kInFile) {
    take_file(*current_memory);  // which reads as zeros
    return;
  }
  data_ = take_memory(bytes);
  if (start == Start::kZeros) std::fill_n(data_, size_, 0.0f);
}

StateArray::StateArray(std::span<const float> values)
    : StateArray(values.size(), Start::kUnfilled) {
  StateWalk walk(size_, [&](std::size_t begin, std::size_t end, const StateWalk::Visit& visit) {
    visit(values.subspan(begin, end - begin), StateUse::kRead);
    visit(span().subspan(begin, end - begin), StateUse::kWrite);
  });
  walk.run([&](std::size_t begin, std::size_t end) {
    std::copy_n(values.data() + begin, end - begin, data_ + begin);
  });
}

void StateArray::take_file(const StateMemory& memory) {
  const std::size_t bytes = size_ * sizeof(float);
  const int file = nameless_file(memory.folder_);
  const int error = ::posix_fallocate(file, 0, static_cast<off_t>(bytes));
  if (error != 0) {
    ::close(file);
    std::error_code ignored;
    const auto free = std::filesystem::space(memory.folder_, ignored).available;
    if (error != ENOSPC && error != EDQUOT && error != EFBIG) {
      fail_at(memory.folder_, "reserve space", error);
    }
    throw SystemError(
        fmt::format("train.offload = \"{}\": no room for {} more of the training "
                    "state ({} are free): free space, or name another disk",
                    memory.folder_.string(), human_bytes(static_cast<double>(bytes)),
                    human_bytes(static_cast<double>(free))));
  }
  void* const at = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (at == MAP_FAILED) {
    ::close(file);
    throw std::bad_alloc();
  }
  data_ = static_cast<float*>(at);
  pager_ = memory.pager_;
  MappedFiles& files = mapped_files();
  const std::scoped_lock lock(files.mutex);
  files.by_begin[static_cast<const std::byte*>(at)] = {
      .bytes = bytes, .file = file, .pager = pager_.get()};
  files.count.fetch_add(1, std::memory_order_release);
}

StateArray::~StateArray() {
  if (data_ == nullptr) return;
  if (pager_ == nullptr) {
    std::free(data_);
    return;
  }
  MappedFiles& files = mapped_files();
  int file = -1;
  {
    const std::scoped_lock lock(files.mutex);
    const auto mapped = files.by_begin.find(reinterpret_cast<const std::byte*>(data_));
    file = mapped->second.file;
    files.by_begin.erase(mapped);
    files.count.fetch_sub(1, std::memory_order_release);
  }
  pager_->forget(file);
  ::munmap(data_, size_ * sizeof(float));
  ::close(file);
}

StateArray::StateArray(StateArray&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)),
      pager_(std::move(other.pager_)) {}

StateArray& StateArray::operator=(StateArray&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  std::swap(pager_, other.pager_);
  return *this;
}

void StateArray::fill_zero() {
  const std::optional<FilePlace> place = pager_ ? place_of(span(), true) : std::nullopt;
  if (place) {
    // Zeros without pages of zeros: the blocks stay reserved and count as never written.
    pager_->forget(place->pages.file);
    const auto bytes = static_cast<off_t>(size_ * sizeof(float));
    if (::fallocate(place->pages.file, FALLOC_FL_ZERO_RANGE, 0, bytes) == 0) return;
  }
  StateWalk walk(size_, ranges_of(span(), StateUse::kWrite));
  walk.run(
      [&](std::size_t begin, std::size_t end) { std::fill(data_ + begin, data_ + end, 0.0f); });
}

bool state_in_file(std::span<const float> values) { return place_of(values, true).has_value(); }

void state_needed(std::span<const float> values, StateUse use) {
  if (const auto place = place_of(values, true)) place->pager->fetch(place->pages, use);
}

void state_await(std::span<const float> values) {
  if (const auto place = place_of(values, true)) place->pager->await(place->pages);
}

void state_done(std::span<const float> values, StateUse use) {
  if (const auto place = place_of(values, false)) place->pager->drop(place->pages, use);
}

StateWalk::StateWalk(std::size_t size, Ranges ranges)
    : size_(size),
      window_(mapped_files().count.load(std::memory_order_acquire) == 0
                  ? 0
                  : kWindowBytes / sizeof(float)),
      ranges_(std::move(ranges)) {}

StateWalk::~StateWalk() {
  try {
    leave();
  } catch (...) {  // the pager keeps the error for the next caller
  }
}

void StateWalk::leave() {
  if (begin_ < end_) ranges_(begin_, end_, state_done);
}

void StateWalk::at(std::size_t position) {
  if (window_ == 0 || position < end_ || position >= size_) return;
  leave();
  begin_ = position;
  end_ = std::min(size_, begin_ + window_);
  const auto await = [](std::span<const float> values, StateUse) { state_await(values); };
  if (begin_ == 0) ranges_(begin_, end_, state_needed);
  const std::size_t next = std::min(size_, end_ + window_);
  if (end_ < next) ranges_(end_, next, state_needed);
  ranges_(begin_, end_, await);
}

void StateWalk::run(const std::function<void(std::size_t begin, std::size_t end)>& body) {
  if (window_ == 0) {
    body(0, size_);
    return;
  }
  for (std::size_t begin = 0; begin < size_; begin += window_) {
    at(begin);
    body(begin, std::min(size_, begin + window_));
  }
}

StateWalk::Ranges ranges_of(std::span<const float> values, StateUse use) {
  return [values, use](std::size_t begin, std::size_t end, const StateWalk::Visit& visit) {
    visit(values.subspan(begin, end - begin), use);
  };
}

}  // namespace isthmus
