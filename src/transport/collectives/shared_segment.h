// SPDX-License-Identifier: Apache-2.0
// Memory that processes of one machine share (POSIX), under a name that it has only until all of
// them have mapped it: after that nothing is left behind, however they end.
// One thread uses it at a time; what is in it is the callers' matter.
#pragma once

#include <cstddef>
#include <functional>
#include <string>

namespace isthmus {

class SharedSegment {
 public:
  SharedSegment() = default;
  /// Zeros, reserved: who writes them later does not find the memory full. Some of it is left to
  /// others that write what they have not reserved, as MPI does, and would be killed.
  /// THROWS: SystemError when there is no room or the system refuses.
  [[nodiscard]] static SharedSegment create(std::size_t bytes);
  /// THROWS: SystemError when there is none of this name or size.
  [[nodiscard]] static SharedSegment open(const std::string& name, std::size_t bytes);
  /// Zeros of a process that shares them with nobody: without a name, and of /dev/shm it takes
  /// none. THROWS: SystemError.
  [[nodiscard]] static SharedSegment unshared(std::size_t bytes);
  SharedSegment(SharedSegment&& other) noexcept;
  SharedSegment& operator=(SharedSegment&& other) noexcept;
  SharedSegment(const SharedSegment&) = delete;
  SharedSegment& operator=(const SharedSegment&) = delete;
  ~SharedSegment();

  [[nodiscard]] std::byte* data() const { return data_; }
  /// Of a created one, by which others open it; empty once it is gone.
  [[nodiscard]] const std::string& name() const { return name_; }
  void drop_name() noexcept;

 private:
  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
  std::string name_;
};

/// How a group comes by its memory; tests put failures here.
struct SegmentCalls {
  std::function<SharedSegment(std::size_t bytes)> create = SharedSegment::create;
  std::function<SharedSegment(const std::string& name, std::size_t bytes)> open =
      SharedSegment::open;
};

}  // namespace isthmus
