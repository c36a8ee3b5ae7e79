// SPDX-License-Identifier: Apache-2.0
#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <array>
#include <chrono>
#include <cstddef>

#include "transport/tcp_counters.h"

namespace isthmus {

std::optional<LinkCounters> tcp_counters(int descriptor) {
  tcp_info info{};
  socklen_t bytes = sizeof info;
  // Kernels before 4.10 know fewer fields: then nothing is told, rather than zeros.
  constexpr std::size_t kNeeded = offsetof(tcp_info, tcpi_busy_time) + sizeof(std::uint64_t);
  if (::getsockopt(descriptor, IPPROTO_TCP, TCP_INFO, &info, &bytes) != 0 || bytes < kNeeded) {
    return std::nullopt;
  }
  LinkCounters counters;
  counters.segments = info.tcpi_data_segs_out;
  counters.retransmits = info.tcpi_total_retrans;
  counters.acked_bytes = info.tcpi_bytes_acked;
  counters.busy = std::chrono::microseconds(info.tcpi_busy_time);
  counters.rtt = std::chrono::microseconds(info.tcpi_rtt);
  std::array<char, 32> name{};
  bytes = name.size() - 1;
  if (::getsockopt(descriptor, IPPROTO_TCP, TCP_CONGESTION, name.data(), &bytes) == 0) {
    counters.congestion = name.data();
  }
  return counters;
}

}  // namespace isthmus
