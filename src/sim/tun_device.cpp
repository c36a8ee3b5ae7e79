// SPDX-License-Identifier: Apache-2.0
#include "sim/tun_device.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <linux/if_tun.h>
#include <net/if.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>

#include "isthmus/errors.h"

namespace isthmus {
namespace {

/// THROWS: SystemError naming the call, why it failed, and the remedy.
[[noreturn]] void fail(const std::string& what, const std::string& remedy) {
  throw SystemError(fmt::format("{}: {}; {}", what, std::strerror(errno), remedy));
}

}  // namespace

void enter_network_namespace(const std::string& name) {
  const std::string path = "/run/netns/" + name;
  const FileDescriptor place(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (place.get() < 0) fail(path, fmt::format("make it with: ip netns add {}", name));
  if (::setns(place.get(), CLONE_NEWNET) != 0) {
    fail(fmt::format("entering network namespace {}", name), "run as root");
  }
}

FileDescriptor make_network_namespace() {
  if (::unshare(CLONE_NEWNET) != 0) {
    fail("a network namespace", "it needs root, and in a container the right to make them");
  }
  FileDescriptor space(::open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC));
  if (space.get() < 0) fail("/proc/thread-self/ns/net", "it needs Linux with /proc");
  const FileDescriptor settings(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  ifreq request{};
  std::strncpy(request.ifr_name, "lo", IFNAMSIZ - 1);
  request.ifr_flags = IFF_UP | IFF_RUNNING | IFF_LOOPBACK;
  if (::ioctl(settings.get(), SIOCSIFFLAGS, &request) != 0) fail("loopback", "run as root");
  // Connections do not inherit the kernel's memory of earlier ones; if the setting does not exist
  // for a namespace, there is no such memory yet either.
  const FileDescriptor metrics(
      ::open("/proc/sys/net/ipv4/tcp_no_metrics_save", O_WRONLY | O_CLOEXEC));
  if (metrics.get() >= 0) (void)!::write(metrics.get(), "1", 1);
  return space;
}

FileDescriptor open_tun_device(const std::string& address) {
  FileDescriptor packets(::open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC));
  if (packets.get() < 0) {
    fail("/dev/net/tun", "it needs root, and in a container the device itself (--device)");
  }
  ifreq request{};
  std::strncpy(request.ifr_name, kTunDevice, IFNAMSIZ - 1);
  request.ifr_flags = IFF_TUN | IFF_NO_PI;
  if (::ioctl(packets.get(), TUNSETIFF, &request) != 0) {
    fail(fmt::format("TUN device {}", kTunDevice), "is there one already?");
  }
  const FileDescriptor settings(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  const auto set = [&](unsigned long what, const char* name) {
    if (::ioctl(settings.get(), what, &request) != 0) {
      fail(fmt::format("{} of {}", name, kTunDevice), "run as root");
    }
  };
  const auto set_address = [&](unsigned long what, const char* text, const char* name) {
    sockaddr_in inet{};
    inet.sin_family = AF_INET;
    if (::inet_pton(AF_INET, text, &inet.sin_addr) != 1) {
      throw ConfigError(fmt::format("{}: no IPv4 address", text));
    }
    std::memcpy(&request.ifr_addr, &inet, sizeof inet);
    set(what, name);
  };
  set_address(SIOCSIFADDR, address.c_str(), "address");
  set_address(SIOCSIFNETMASK, "255.255.255.0", "netmask");
  request.ifr_mtu = kMtu;
  set(SIOCSIFMTU, "MTU");
  request.ifr_qlen = 10000;  // drops belong to the queues modelled here
  set(SIOCSIFTXQLEN, "queue length");
  request.ifr_flags = IFF_UP | IFF_RUNNING;
  set(SIOCSIFFLAGS, "start");
  return packets;
}

}  // namespace isthmus
