// SPDX-License-Identifier: Apache-2.0
// The kernel's state of a TCP connection, and its settings for long-distance links.
//
// After a pause a connection sends a whole window at once, which overflows the queue before the
// line, so that every connection loses packets and slows down: in both directions over 100 Mbit/s
// and 50 ms, cubic got 65 % of the line so, and gets 86 to 91 % with paced packets. The kernel also
// buffers megabytes per connection that it cannot send yet, so the last of several connections ends
// long after the first; for a far peer it is made to buffer little, and frames wait in link_flow,
// where the next free connection gets them. Any thread.
#pragma once

#include <chrono>
#include <optional>

#include "isthmus/types.h"

namespace isthmus {

/// Unsent bytes above which the kernel accepts no more for a far peer: a few packets, enough for
/// the line never to wait for the next write.
inline constexpr int kUnsentBytes = 16 << 10;
/// Peers with a longer round trip are far. Within a machine or a data hall it is shorter.
inline constexpr Duration kFarRoundTrip = std::chrono::milliseconds(1);

/// The shortest round trip seen, at least the handshake's. RETURNS: nothing when there was none, or
/// when `fd` is no TCP connection.
[[nodiscard]] std::optional<Duration> round_trip(int fd);

/// Whether both ends of a connection are on this machine: their addresses are one. RETURNS: false
/// when `fd` is no TCP connection. A forwarder on this machine looks like its far end.
[[nodiscard]] bool is_within_machine(int fd);

/// Bytes a second that the peer has acknowledged lately, as the kernel measures them. RETURNS: 0
/// where the kernel has measured nothing, or when `fd` is no TCP connection.
[[nodiscard]] double delivery_rate(int fd);

/// If the peer is far, makes the kernel pace packets and buffer at most kUnsentBytes (and a
/// segment) of unsent bytes; for a near peer it turns BBR's timers off, and the bound on unsent
/// bytes, if an earlier call took it for far. RETURNS: whether the peer is far and the kernel took
/// both settings; false, and nothing is set, where round_trip has nothing.
bool pace_connection(int fd, Duration far = kFarRoundTrip);

/// Gives a listening socket a receive buffer of 64 KiB, so that backlog stays at the sender.
/// Connections that it accepts later have that buffer too. A refusal by the kernel is ignored.
void receive_little(int fd);

/// Sends small pieces at once, and breaks the connection when the other end acknowledges nothing
/// for `dead_after`, idle or not. Settings that the kernel refuses are ignored.
void watch_connection(int fd, Duration dead_after);

}  // namespace isthmus
