// SPDX-License-Identifier: Apache-2.0
#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>

#include "transport/links/zmq/tcp_counters.h"

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
  // Told since Linux 5.4. A receiver that makes room tells of none or of a segment's at least.
  constexpr std::size_t kWindow = offsetof(tcp_info, tcpi_snd_wnd) + sizeof info.tcpi_snd_wnd;
  if (bytes >= kWindow) {
    const std::uint64_t sent = info.tcpi_bytes_sent - info.tcpi_bytes_retrans;
    const std::uint64_t there = std::min<std::uint64_t>(sent, info.tcpi_bytes_acked);
    counters.queued_bytes = info.tcpi_notsent_bytes + sent - there;
    counters.peer_full = info.tcpi_snd_wnd < info.tcpi_snd_mss;
  }
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
