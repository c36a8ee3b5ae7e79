// SPDX-License-Identifier: Apache-2.0
#include "core/state/state_pager.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <system_error>
#include <vector>

#include "isthmus/errors.h"

namespace isthmus {
namespace {

constexpr std::size_t kPiece = std::size_t{8} << 20;  // bytes read or written at a time

bool overlap(const StatePages& a, const StatePages& b) {
  return a.file == b.file && a.begin < b.begin + b.bytes && b.begin < a.begin + a.bytes;
}

template <typename Body>
void for_pieces(const StatePages& pages, const Body& body) {
  for (std::size_t at = 0; at < pages.bytes; at += kPiece) {
    body(StatePages{.file = pages.file,
                    .begin = pages.begin + at,
                    .bytes = std::min(kPiece, pages.bytes - at),
                    .offset = pages.offset + static_cast<std::int64_t>(at)});
  }
}

std::size_t absent_bytes(const StatePages& pages) {
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  std::vector<unsigned char> resident((pages.bytes + page - 1) / page);
  if (::mincore(pages.begin, pages.bytes, resident.data()) != 0) return 0;
  return page * static_cast<std::size_t>(
                    std::ranges::count_if(resident, [](auto flags) { return (flags & 1) == 0; }));
}

// Kernels before 5.14 do not know how to fill page tables; then a byte of each page is looked at.
// RETURNS: false when the disk did not give them.
bool populate(const StatePages& pages, StateUse use) {
  constexpr int kPopulateRead = 22, kPopulateWrite = 23;  // MADV_POPULATE_*, for older headers
  const int advice = use == StateUse::kWrite ? kPopulateWrite : kPopulateRead;
  if (::madvise(pages.begin, pages.bytes, advice) == 0) return true;
  if (errno == EFAULT) return false;
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  for (std::size_t at = 0; at < pages.bytes; at += page) {
    static_cast<void>(*static_cast<volatile const std::byte*>(pages.begin + at));
  }
  return true;
}

}  // namespace

StatePager::StatePager(const StateMemory::Options& options) : options_(options) {
  try {
    reader_ = std::thread([this] { serve(reads_, &StatePager::read); });
    writer_ = std::thread([this] { serve(writes_, &StatePager::write); });
  } catch (...) {
    stop();
    throw;
  }
}

StatePager::~StatePager() { stop(); }

void StatePager::stop() {
  {
    const std::scoped_lock lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  if (reader_.joinable()) reader_.join();
  if (writer_.joinable()) writer_.join();
}

void StatePager::check() const {
  if (failure_) std::rethrow_exception(failure_);
}

void StatePager::fail(const char* action, int error) const {
  throw SystemError(fmt::format(
      "train.offload = \"{}\": the training state cannot be {}: {}; look after the disk, or name a "
      "folder on another one, and resume from the last checkpoint",
      options_.folder.string(), action, std::generic_category().message(error)));
}

void StatePager::serve(Lane& lane, void (StatePager::*work)(const Request&)) {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return stopping_ || !lane.queue.empty(); });
    if (stopping_) return;
    lane.active = lane.queue.front();
    lane.queue.pop_front();
    lock.unlock();
    std::exception_ptr failure;
    try {
      (this->*work)(lane.active);
    } catch (...) {
      failure = std::current_exception();
    }
    lock.lock();
    if (!failure_) failure_ = failure;
    if (&lane == &writes_ && lane.active.use == StateUse::kWrite) {
      backlog_ -= lane.active.pages.bytes;
    }
    lane.active = {};
    changed_.notify_all();
  }
}

template <typename Ready>
void StatePager::wait(std::unique_lock<std::mutex>& lock, const Ready& ready) {
  check();
  if (ready()) return;
  const auto begin = std::chrono::steady_clock::now();
  changed_.wait(lock, [&] { return failure_ || ready(); });
  check();
  traffic_.wait_s += in_seconds(std::chrono::steady_clock::now() - begin);
}

void StatePager::fetch(const StatePages& pages, StateUse use) {
  {
    const std::scoped_lock lock(mutex_);
    check();
    std::erase_if(writes_.queue, [&](const Request& request) {
      const bool again = overlap(request.pages, pages);
      if (again && request.use == StateUse::kWrite) backlog_ -= request.pages.bytes;
      return again;
    });
    reads_.queue.push_back({pages, use});
  }
  changed_.notify_all();
}

void StatePager::await(const StatePages& pages) {
  std::unique_lock lock(mutex_);
  wait(lock, [&] {
    return !overlap(reads_.active.pages, pages) &&
           std::ranges::none_of(
               reads_.queue, [&](const Request& request) { return overlap(request.pages, pages); });
  });
}

void StatePager::drop(const StatePages& pages, StateUse use) {
  std::unique_lock lock(mutex_);
  check();
  // Pieces that were requested and are not used after all.
  std::erase_if(reads_.queue,
                [&](const Request& request) { return overlap(request.pages, pages); });
  if (use == StateUse::kWrite) {
    wait(lock, [&] { return backlog_ == 0 || backlog_ + pages.bytes <= kBacklog; });
    backlog_ += pages.bytes;
  }
  writes_.queue.push_back({pages, use});
  lock.unlock();
  changed_.notify_all();
}

void StatePager::forget(int file) {
  std::unique_lock lock(mutex_);
  const auto of_file = [&](const Request& request) { return request.pages.file == file; };
  std::erase_if(reads_.queue, of_file);
  std::erase_if(writes_.queue, [&](const Request& request) {
    if (of_file(request) && request.use == StateUse::kWrite) backlog_ -= request.pages.bytes;
    return of_file(request);
  });
  changed_.wait(lock, [&] { return !of_file(reads_.active) && !of_file(writes_.active); });
  lock.unlock();
  changed_.notify_all();
}

void StatePager::read(const Request& request) {
  const TimePoint begin = now();
  std::size_t bytes = 0;
  for_pieces(request.pages, [&](const StatePages& piece) { bytes += absent_bytes(piece); });
  // All of it is on its way before the first of it is waited for.
  static_cast<void>(::madvise(request.pages.begin, request.pages.bytes, MADV_WILLNEED));
  for_pieces(request.pages, [&](const StatePages& piece) {
    if (!populate(piece, request.use)) fail("read", EIO);
  });
  note(EventKind::kRead, begin, bytes);
}

// Unmapping first hands the dirty marks to the page cache, which then writes each page once. The
// next piece is on its way while the last one is waited for. Pages that the disk did not take are
// not dropped, and the run ends: the kernel reports them once and counts them as written from then
// on.
void StatePager::write(const Request& request) {
  const TimePoint begin = now();
  const StatePages& pages = request.pages;
  static_cast<void>(::madvise(pages.begin, pages.bytes, MADV_DONTNEED));
  const auto bytes_of = [](const StatePages& piece) { return static_cast<off_t>(piece.bytes); };
  if (request.use == StateUse::kWrite) {
    const auto sync = [&](const StatePages& piece, unsigned flags) {
      // Without such a call the kernel writes when it likes, and drops the written pages.
      if (::sync_file_range(piece.file, piece.offset, bytes_of(piece), flags) != 0 &&
          errno != ENOSYS) {
        fail("written", errno);
      }
    };
    StatePages last;
    const auto finish = [&](const StatePages& piece) {
      if (piece.file < 0) return;
      sync(piece, SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER);
      static_cast<void>(
          ::posix_fadvise(piece.file, piece.offset, bytes_of(piece), POSIX_FADV_DONTNEED));
    };
    for_pieces(pages, [&](const StatePages& piece) {
      sync(piece, SYNC_FILE_RANGE_WRITE);
      finish(last);
      last = piece;
    });
    finish(last);
    note(EventKind::kWrite, begin, pages.bytes);
  } else {
    static_cast<void>(
        ::posix_fadvise(pages.file, pages.offset, bytes_of(pages), POSIX_FADV_DONTNEED));
  }
}

TimePoint StatePager::now() {
  const std::scoped_lock lock(recording_);
  return options_.clock != nullptr ? options_.clock->now() : TimePoint{};
}

void StatePager::stop_recording() {
  const std::scoped_lock lock(recording_);
  options_.events = nullptr;
  options_.clock = nullptr;
}

void StatePager::note(EventKind kind, TimePoint begin, std::size_t bytes) {
  if (bytes == 0) return;
  std::int64_t step = 0;
  {
    const std::scoped_lock lock(mutex_);
    (kind == EventKind::kRead ? traffic_.read_bytes : traffic_.written_bytes) += bytes;
    step = step_;
  }
  const std::scoped_lock recording(recording_);
  if (options_.events == nullptr || options_.clock == nullptr) return;
  options_.events->record({.kind = kind,
                           .worker = options_.worker,
                           .begin = begin,
                           .end = options_.clock->now(),
                           .bytes = bytes,
                           .step = step});
}

StateTraffic StatePager::traffic() const {
  const std::scoped_lock lock(mutex_);
  check();
  return traffic_;
}

void StatePager::begin_step(StepIndex t) {
  const std::scoped_lock lock(mutex_);
  step_ = t.value();
}

}  // namespace isthmus
