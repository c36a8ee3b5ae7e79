// SPDX-License-Identifier: Apache-2.0
// What the kernel knows of a TCP connection, and how it is to send over a long thin link.
//
// After a pause it sends a whole window at once, which overflows the queue before the line, and
// every connection loses packets and slows down: both ways over 100 Mbit/s and 50 ms, cubic got
// 65 % of the line so, and gets 86 to 91 % with its packets spaced. And it takes megabytes a
// connection that it cannot send yet, so the last of several connections ends long after the first;
// for a far peer it takes little, and frames wait in link_flow, where the next free one gets them.
// Any thread.
#pragma once

#include <chrono>
#include <optional>

#include "isthmus/types.h"

namespace isthmus {

/// Bytes not yet sent above which the kernel takes no more for a far peer: a few packets, enough
/// for the line never to wait for the next write.
inline constexpr int kUnsentBytes = 16 << 10;
/// Peers with a longer round trip are far. Within a machine or a hall it is below.
inline constexpr Duration kFarRoundTrip = std::chrono::milliseconds(1);

/// The shortest one seen, the handshake's at least. RETURNS: nothing where none was, or where `fd`
/// is no TCP connection.
[[nodiscard]] std::optional<Duration> round_trip(int fd);

/// Has the kernel space packets and take at most kUnsentBytes (and a segment) that it cannot send
/// yet, if the peer is far, and send to a near one without BBR's timers. RETURNS: whether far.
bool pace_connection(int fd, Duration far = kFarRoundTrip);

/// Of a socket that listens: the kernel takes in little of what its connections bring before it is
/// read, so that what waits does so at the sender.
void receive_little(int fd);

/// Sends small pieces at once, and breaks off where the other end acknowledges nothing for
/// `dead_after`, idle or not.
void watch_connection(int fd, Duration dead_after);

}  // namespace isthmus
