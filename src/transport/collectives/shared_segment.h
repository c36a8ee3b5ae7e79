// SPDX-License-Identifier: Apache-2.0
// Memory that processes of one machine share (POSIX). It has a name only until all of them have
// mapped it: after that nothing is left behind, however they end. One thread uses it at a time;
// callers define the content.
#pragma once

#include <cstddef>
#include <functional>
#include <string>

namespace isthmus {

class SharedSegment {
 public:
  SharedSegment() = default;
  /// Zeros, reserved, so that later writes cannot find the memory full. Leaves some room for other
  /// programs that write without reserving, as MPI does, and would be killed. THROWS: SystemError
  /// when there is no room or the system refuses.
  [[nodiscard]] static SharedSegment create(std::size_t bytes);
  /// THROWS: SystemError when no segment has this name and size.
  [[nodiscard]] static SharedSegment open(const std::string& name, std::size_t bytes);
  /// Zeros for one process alone: without a name, and not from /dev/shm. THROWS: SystemError.
  [[nodiscard]] static SharedSegment unshared(std::size_t bytes);
  SharedSegment(SharedSegment&& other) noexcept;
  SharedSegment& operator=(SharedSegment&& other) noexcept;
  SharedSegment(const SharedSegment&) = delete;
  SharedSegment& operator=(const SharedSegment&) = delete;
  ~SharedSegment();

  [[nodiscard]] std::byte* data() const { return data_; }
  /// The name by which others open a created segment; empty once it is dropped.
  [[nodiscard]] const std::string& name() const { return name_; }
  void drop_name() noexcept;

 private:
  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
  std::string name_;
};

/// The functions that create a group's memory; tests inject failures here.
struct SegmentCalls {
  std::function<SharedSegment(std::size_t bytes)> create = SharedSegment::create;
  std::function<SharedSegment(const std::string& name, std::size_t bytes)> open =
      SharedSegment::open;
};

}  // namespace isthmus
