// SPDX-License-Identifier: Apache-2.0
// A team of threads that runs loops of independent indices. The caller's thread is member 0, so a
// team of 1 has no threads and costs nothing; several teams may live in one process.
//
// Results never depend on the team's size: a kernel cuts its work into indices by shape alone, each
// index writes only its own output, and sums over indices are taken afterwards in index order. The
// member that runs an index is not fixed (members claim the next one), so a core lost to another
// process delays the loop by only one index.
//
// Threads: one driver thread at a time calls a team; loops do not nest.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <span>
#include <thread>
#include <type_traits>
#include <vector>

#include "kernels/aligned_buffer.h"

namespace isthmus::kernels {

/// Scratch areas of a member; an operation holds a slot only while it runs. Operations that call
/// others (cross-entropy calls gemm) use other slots than these.
enum class Scratch { kPanelA, kPanelB, kOperation, kPartial, kLogits, kCount };

/// Cores that this process may run on, ascending: all cores, or those that taskset, mpirun or a
/// container allows. Empty if the system does not say.
[[nodiscard]] std::vector<int> usable_cores();

class ThreadTeam {
 public:
  static constexpr int kMaxSize = 1024;

  /// cores: empty, or one for each member, which is pinned to it; the caller's thread too, until
  /// the team is destroyed. Only the driver thread may make and destroy pinned teams, in reverse
  /// order of making. REQUIRES: 1 <= size <= kMaxSize. THROWS: SystemError when the system refuses
  /// a thread or a core; threads started by then are joined.
  explicit ThreadTeam(int size, std::span<const int> cores = {});
  ~ThreadTeam();
  ThreadTeam(const ThreadTeam&) = delete;
  ThreadTeam& operator=(const ThreadTeam&) = delete;

  [[nodiscard]] int size() const { return size_; }

  /// Calls body(index, member) once for each index in [0, count), in any order; returns when all
  /// are done. member in [0, size) names the thread, only for scratch. THROWS: the first exception
  /// of a body, on the caller's thread, after every member has left the loop; indices not claimed
  /// by then are not run.
  template <typename Body>
  void for_each(std::int64_t count, Body&& body) {
    using Plain = std::remove_reference_t<Body>;
    if (size_ == 1 || count <= 1) {
      for (std::int64_t index = 0; index < count; ++index) body(index, 0);
      return;
    }
    run(
        count,
        [](void* context, std::int64_t index, int member) {
          (*static_cast<Plain*>(context))(index, member);
        },
        const_cast<void*>(static_cast<const void*>(&body)));
  }

  /// Calls body(begin, end) for the blocks [0, block), [block, 2 block), ... of [0, count).
  template <typename Body>
  void for_blocks(std::int64_t count, std::int64_t block, Body&& body) {
    for_each((count + block - 1) / block, [&](std::int64_t index, int) {
      const std::int64_t begin = index * block;
      body(begin, begin + block < count ? begin + block : count);
    });
  }

  /// At least `count` uninitialised values for `member`, aligned to 64 bytes; valid until the
  /// member's next request for the same slot. Call from that member, or from the driver between
  /// loops.
  template <typename T>
  [[nodiscard]] T* scratch(Scratch slot, std::int64_t count, int member = 0) {
    static_assert(std::is_trivial_v<T>);
    return static_cast<T*>(
        scratch_bytes(slot, static_cast<std::size_t>(count) * sizeof(T), member));
  }

 private:
  using Call = void (*)(void* context, std::int64_t index, int member);
  struct alignas(64) Member {
    AlignedBuffer scratch[static_cast<std::size_t>(Scratch::kCount)];
  };

  void run(std::int64_t count, Call call, void* context);
  void claim_indices(int member);
  void serve(int member);
  void dismiss();
  void* scratch_bytes(Scratch slot, std::size_t bytes, int member);

  const int size_;
  std::vector<int> caller_cores_;  // cores of the caller's thread before it was pinned
  std::vector<Member> members_;
  // The current loop; written by the driver while the gate is shut.
  Call call_ = nullptr;
  void* context_ = nullptr;
  std::int64_t count_ = 0;
  bool running_ = false;
  std::atomic<bool> failed_{false};
  std::exception_ptr error_;  // exception of the member that set failed_; read once all have left
  alignas(64) std::atomic<std::int64_t> next_{0};
  alignas(64) std::atomic<std::uint32_t> gate_{0};  // generation | open bit | members inside
  alignas(64) std::atomic<std::uint32_t> left_{0};  // members that entered and left again
  std::vector<std::thread> threads_;
};

}  // namespace isthmus::kernels
