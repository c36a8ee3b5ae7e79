// SPDX-License-Identifier: Apache-2.0
// Two TCP connections, each of which is sent what the other one receives. Unsent bytes stop the
// reading of more, so a slow end slows the other down, and memory is two small buffers; sent bytes
// make room at once, so that no window stays closed while the other end reads. When one end closes,
// its bytes are still sent, then the other end is closed too. One task.
#pragma once

#include <array>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "isthmus/types.h"
#include "transport/links/tcp/tcp_socket.h"

namespace isthmus {

class TcpSplice {
 public:
  /// `to_a`, `to_b`: bytes to send first. Either socket may still be connecting. An end is given up
  /// when it acknowledges nothing for `dead_after`.
  TcpSplice(TcpSocket a, TcpSocket b, std::string to_a, std::string to_b, Duration dead_after);

  /// Appends the descriptors that it waits for.
  void add_to(std::vector<Waited>& all);
  /// Moves bytes without blocking. `all`: the list of the last `add_to`, after the wait. RETURNS:
  /// false once both ends are closed.
  [[nodiscard]] bool advance(const std::vector<Waited>& all, TimePoint now);

 private:
  /// From one end to the other.
  struct Way {
    std::vector<char> bytes;          // a ring
    std::size_t begin = 0, held = 0;  // bytes to send
    [[nodiscard]] bool empty() const { return held == 0; }
    [[nodiscard]] bool full() const { return held == bytes.size(); }
    /// The next bytes to send, and the free room for the next bytes: up to the end of the ring.
    [[nodiscard]] std::string_view next() const;
    [[nodiscard]] std::span<char> room();
  };
  /// RETURNS: false when end `to` is broken.
  [[nodiscard]] bool flush(std::size_t to);
  void read_from(std::size_t from);

  std::array<TcpSocket, 2> ends_;
  std::array<Way, 2> to_;             // by receiving end
  std::optional<std::size_t> ended_;  // the first end that sends no more
  bool other_ended_ = false;
  bool told_ = false;  // the other end, that no more bytes follow
  TimePoint over_at_ = kNever;
  std::size_t place_ = 0;  // index in the list of the last wait
};

}  // namespace isthmus
