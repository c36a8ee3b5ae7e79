// SPDX-License-Identifier: Apache-2.0
#include "kernels/thread_team.h"

#include <fmt/format.h>
#include <pthread.h>
#include <sched.h>

#include <cstring>
#include <system_error>
#include <utility>

#include "core/base/check.h"
#include "isthmus/errors.h"
#include "kernels/thread_pinning.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace isthmus::kernels {
namespace {
constexpr std::uint32_t kInsideMask = 0x7ff;  // low 11 bits: members inside
static_assert(ThreadTeam::kMaxSize < kInsideMask);
constexpr std::uint32_t kOpen = 0x800;
constexpr std::uint32_t kGeneration = 0x1000;
constexpr std::uint32_t kGenerationMask = ~(kGeneration - 1);
constexpr std::uint32_t kQuit = kInsideMask;  // more than kMaxSize members: the team is going away

// About 50 microseconds of pauses: the gap between two loops of a training step is shorter, and a
// sleeping thread takes about as long to wake.
constexpr int kSpins = 1000;

// Members of all living teams. Spinning pays only while each of them can have a separate core.
std::atomic<int> live_members{0};

int spin_limit() {
  const int cores = static_cast<int>(std::thread::hardware_concurrency());
  return live_members.load(std::memory_order_relaxed) <= cores ? kSpins : 1;
}

void pause() {
#if defined(__x86_64__)
  _mm_pause();
#endif
}

/// The cores that the calling thread might use before one of its own teams pinned it; null: it is
/// not pinned. Another team's threads would inherit its one core.
thread_local const std::vector<int>* before_pinning = nullptr;

/// Returns once `word` no longer holds `old`: spins a little, then sleeps.
void await_change(const std::atomic<std::uint32_t>& word, std::uint32_t old) {
  for (int left = spin_limit(); left > 0; --left) {
    if (word.load(std::memory_order_acquire) != old) return;
    pause();
  }
  word.wait(old, std::memory_order_acquire);
}

/// RETURNS: 0, or the system's error number.
int run_on(pthread_t thread, std::span<const int> cores) {
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const int core : cores) CPU_SET(static_cast<std::size_t>(core), &set);
  return ::pthread_setaffinity_np(thread, sizeof set, &set);
}

void pin(pthread_t thread, int core) {
  const int error = run_on(thread, std::span(&core, 1));
  if (error == 0) return;
  throw SystemError(fmt::format(
      "core {}: this process may not run a thread there ({}); set train.pin = false, or "
      "start it with more cores (taskset, mpirun --bind-to, the container's cpuset)",
      core, std::strerror(error)));
}
}  // namespace

std::vector<int> usable_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  std::vector<int> cores;
  if (::sched_getaffinity(0, sizeof set, &set) != 0) return cores;
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (CPU_ISSET(static_cast<std::size_t>(core), &set)) cores.push_back(core);
  }
  return cores;
}

void unpin_calling_thread() {
  if (before_pinning == nullptr) return;
  static_cast<void>(run_on(::pthread_self(), *before_pinning));
  before_pinning = nullptr;
}

ThreadTeam::ThreadTeam(int size, std::span<const int> cores)
    : size_(size), members_(static_cast<std::size_t>(size)) {
  ISTHMUS_CHECK(size >= 1 && size <= kMaxSize, size);
  ISTHMUS_CHECK(cores.empty() || static_cast<int>(cores.size()) == size, cores.size(), size);
  live_members.fetch_add(size, std::memory_order_relaxed);
  try {
    threads_.reserve(static_cast<std::size_t>(size) - 1);
    for (int member = 1; member < size; ++member) {
      threads_.emplace_back([this, member] { serve(member); });
      if (!cores.empty()) {
        pin(threads_.back().native_handle(), cores[static_cast<std::size_t>(member)]);
      } else if (before_pinning != nullptr) {
        static_cast<void>(run_on(threads_.back().native_handle(), *before_pinning));
      }
    }
    if (!cores.empty()) {
      std::vector<int> before = usable_cores();
      pin(::pthread_self(), cores[0]);
      caller_cores_ = std::move(before);
      if (before_pinning == nullptr) before_pinning = &caller_cores_;
    }
  } catch (const std::system_error& error) {
    const std::size_t started = threads_.size() + 1;
    dismiss();
    throw SystemError(fmt::format(
        "thread {} of a team of {}: {}; lower train.threads, or raise the limit (ulimit -u, or the "
        "container's pids limit)",
        started + 1, size, error.code().message()));
  } catch (...) {
    dismiss();
    throw;
  }
}

ThreadTeam::~ThreadTeam() { dismiss(); }

void ThreadTeam::dismiss() {
  gate_.store((gate_.load(std::memory_order_relaxed) & kGenerationMask) + kGeneration + kQuit,
              std::memory_order_release);
  gate_.notify_all();
  for (std::thread& thread : threads_) thread.join();
  if (!caller_cores_.empty()) static_cast<void>(run_on(::pthread_self(), caller_cores_));
  if (before_pinning == &caller_cores_) before_pinning = nullptr;
  live_members.fetch_sub(size_, std::memory_order_relaxed);
}

void ThreadTeam::run(std::int64_t count, Call call, void* context) {
  ISTHMUS_CHECK(!running_);
  running_ = true;
  call_ = call;
  context_ = context;
  count_ = count;
  next_.store(0, std::memory_order_relaxed);
  left_.store(0, std::memory_order_relaxed);
  const std::uint32_t generation =
      (gate_.load(std::memory_order_relaxed) & kGenerationMask) + kGeneration;
  gate_.store(generation | kOpen, std::memory_order_release);
  gate_.notify_all();

  claim_indices(0);

  // A member that has not entered by now is not waited for: a thread that still sleeps would only
  // delay the others.
  const std::uint32_t inside = gate_.fetch_and(~kOpen, std::memory_order_acq_rel) & kInsideMask;
  for (std::uint32_t left = left_.load(std::memory_order_acquire); left != inside;
       left = left_.load(std::memory_order_acquire)) {
    await_change(left_, left);
  }
  running_ = false;
  if (failed_.load(std::memory_order_relaxed)) {
    failed_.store(false, std::memory_order_relaxed);
    std::rethrow_exception(std::exchange(error_, nullptr));
  }
}

void ThreadTeam::claim_indices(int member) {
  try {
    for (std::int64_t index = next_.fetch_add(1, std::memory_order_relaxed); index < count_;
         index = next_.fetch_add(1, std::memory_order_relaxed)) {
      call_(context_, index, member);
    }
  } catch (...) {
    // Most likely no memory for scratch. The caller hears of it, not std::terminate.
    next_.store(count_, std::memory_order_relaxed);
    if (!failed_.exchange(true, std::memory_order_relaxed)) error_ = std::current_exception();
  }
}

void ThreadTeam::serve(int member) {
  std::uint32_t served = 0;  // generation of the last loop this thread took part in
  for (;;) {
    std::uint32_t gate = gate_.load(std::memory_order_acquire);
    if ((gate & kInsideMask) == kQuit) return;
    const bool joinable = (gate & kOpen) != 0 && (gate & kGenerationMask) != served;
    if (!joinable) {
      await_change(gate_, gate);
      continue;
    }
    if (!gate_.compare_exchange_strong(gate, gate + 1, std::memory_order_acq_rel)) continue;
    served = gate & kGenerationMask;
    claim_indices(member);
    left_.fetch_add(1, std::memory_order_release);
    left_.notify_one();
  }
}

void* ThreadTeam::scratch_bytes(Scratch slot, std::size_t bytes, int member) {
  ISTHMUS_CHECK(member >= 0 && member < size_, member, size_);
  AlignedBuffer& buffer =
      members_[static_cast<std::size_t>(member)].scratch[static_cast<std::size_t>(slot)];
  buffer.grow(bytes);
  return buffer.data();
}

}  // namespace isthmus::kernels
