// SPDX-License-Identifier: Apache-2.0
// A TUN device in a network namespace: what is sent there comes out here, and what is written here
// arrives there.
#pragma once

#include <unistd.h>

#include <string>
#include <utility>

namespace isthmus {

inline constexpr int kMtu = 1500;

class FileDescriptor {
 public:
  explicit FileDescriptor(int number) : number_(number) {}
  ~FileDescriptor() {
    if (number_ >= 0) ::close(number_);
  }
  FileDescriptor(FileDescriptor&& other) noexcept : number_(std::exchange(other.number_, -1)) {}
  FileDescriptor(const FileDescriptor&) = delete;
  FileDescriptor& operator=(const FileDescriptor&) = delete;
  FileDescriptor& operator=(FileDescriptor&&) = delete;
  [[nodiscard]] int get() const { return number_; }

 private:
  int number_;
};

/// Moves this process into the namespace, makes the device "wan0" there, gives it its address in a
/// network of 256 and starts it. Reads and writes do not block, one packet each.
/// RETURNS: its packets; the device goes when this is closed.
/// THROWS: SystemError naming what is missing; ConfigError when `address` is none.
[[nodiscard]] FileDescriptor open_tun_device(const std::string& space, const std::string& address);

}  // namespace isthmus
