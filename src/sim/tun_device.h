// SPDX-License-Identifier: Apache-2.0
// A TUN device in a network namespace: packets sent there are read here, and packets written here
// arrive there. Linux, as root.
#pragma once

#include <unistd.h>

#include <string>
#include <utility>

namespace isthmus {

inline constexpr int kMtu = 1500;
inline constexpr const char* kTunDevice = "wan0";

class FileDescriptor {
 public:
  explicit FileDescriptor(int number) : number_(number) {}
  ~FileDescriptor() {
    if (number_ >= 0) ::close(number_);
  }
  FileDescriptor(FileDescriptor&& other) noexcept : number_(std::exchange(other.number_, -1)) {}
  FileDescriptor(const FileDescriptor&) = delete;
  FileDescriptor& operator=(const FileDescriptor&) = delete;
  FileDescriptor& operator=(FileDescriptor&& other) noexcept {
    std::swap(number_, other.number_);
    return *this;
  }
  [[nodiscard]] int get() const { return number_; }

 private:
  int number_;
};

/// Moves the calling thread into the network namespace of that name, created with `ip netns add`.
/// THROWS: SystemError naming what is missing.
void enter_network_namespace(const std::string& name);

/// Moves the calling thread into a new network namespace, which has no name and ends with its last
/// process and its last descriptor; starts its loopback device. RETURNS: the namespace. THROWS:
/// SystemError naming what is missing.
[[nodiscard]] FileDescriptor make_network_namespace();

/// Creates the device kTunDevice in the thread's namespace, gives it `address` in a network of 256
/// and starts it. Reads and writes do not block, one packet each. RETURNS: the descriptor of its
/// packets; closing it removes the device. THROWS: SystemError naming what is missing; ConfigError
/// for an invalid `address`.
[[nodiscard]] FileDescriptor open_tun_device(const std::string& address);

}  // namespace isthmus
