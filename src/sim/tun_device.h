// SPDX-License-Identifier: Apache-2.0
// A TUN device in a network namespace: what is sent there comes out here, and what is written here
// arrives there. Linux, as root.
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

/// Moves the calling thread into the network namespace of that name, made with `ip netns add`.
/// THROWS: SystemError naming what is missing.
void enter_network_namespace(const std::string& name);

/// Moves the calling thread into a network namespace of its own, which has no name and goes with
/// the last process in it and the last descriptor of it; starts its loopback device. RETURNS: the
/// namespace. THROWS: SystemError naming what is missing.
[[nodiscard]] FileDescriptor make_network_namespace();

/// Makes the device kTunDevice in the thread's namespace, gives it its address in a network of 256
/// and starts it. Reads and writes do not block, one packet each. RETURNS: its packets; the device
/// goes when this is closed. THROWS: SystemError naming what is missing; ConfigError when `address`
/// is none.
[[nodiscard]] FileDescriptor open_tun_device(const std::string& address);

}  // namespace isthmus
