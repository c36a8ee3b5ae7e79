// SPDX-License-Identifier: Apache-2.0
// Two TCP connections of which each is sent what the other brings. What cannot go out holds up what
// comes in, so a slow end slows the other down, and memory is two small buffers; whatever goes out
// makes room for more at once, so that no window stays shut while the other end takes anything.
// When one ends, what it has sent still goes out, then the other is ended too. One task.
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
  /// `to_a`, `to_b`: go out before anything else. Either may still be connecting. Ends are given up
  /// when they acknowledge nothing for `dead_after`.
  TcpSplice(TcpSocket a, TcpSocket b, std::string to_a, std::string to_b, Duration dead_after);

  /// Appends what it waits for.
  void add_to(std::vector<Waited>& all);
  /// Moves what goes without blocking. `all`: of the last `add_to`, waited for since.
  /// RETURNS: false once it is over.
  [[nodiscard]] bool advance(const std::vector<Waited>& all, TimePoint now);

 private:
  /// From one end to the other one.
  struct Way {
    std::vector<char> bytes;          // a ring
    std::size_t begin = 0, held = 0;  // what is to go out
    [[nodiscard]] bool empty() const { return held == 0; }
    [[nodiscard]] bool full() const { return held == bytes.size(); }
    /// What goes out next, and where what comes next belongs: up to where the ring closes.
    [[nodiscard]] std::string_view next() const;
    [[nodiscard]] std::span<char> room();
  };
  /// RETURNS: false when end `to` is broken.
  [[nodiscard]] bool flush(std::size_t to);
  void read_from(std::size_t from);

  std::array<TcpSocket, 2> ends_;
  std::array<Way, 2> to_;             // by where it goes
  std::optional<std::size_t> ended_;  // the first end that brings no more
  bool other_ended_ = false;
  bool told_ = false;  // the other end, that nothing more comes
  TimePoint over_at_ = kNever;
  std::size_t place_ = 0;  // in what was waited for
};

}  // namespace isthmus
