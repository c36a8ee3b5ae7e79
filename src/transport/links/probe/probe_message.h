// SPDX-License-Identifier: Apache-2.0
// Messages between members that measure their links. Each one is the payload of a NOTE frame, so
// that it is sent like all other frames; the layout is drawn in WIRE_FORMAT.md. For any bytes
// `read_probe` returns a message with valid numbers, or a reason. Pure functions and values; any
// thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "isthmus/expected.h"
#include "transport/links/probe/link_measurement.h"
#include "transport/wire/transport.h"

namespace isthmus {

inline constexpr std::uint32_t kProbeMagic = 0x42525049;  // "IPRB" as bytes in the message
inline constexpr std::uint16_t kProbeVersion = 1;

/// The first message, to all: the sender, and its options for measuring.
struct ProbeHello {
  Duration budget{0};         // of each direction
  std::uint32_t streams = 1;  // the most to try
  std::string name;           // for people; at most kMaxMemberName bytes
};
/// The receiver answers at once with the same number.
struct ProbePing {
  std::uint32_t pair = 0;
  std::uint64_t number = 0;
};
struct ProbePong {
  std::uint32_t pair = 0;
  std::uint64_t number = 0;
};
/// A piece of a transfer; the rest of the frame is filler and counts.
struct ProbeLoad {
  std::uint32_t pair = 0;
  std::uint32_t transfer = 0;
};
/// The receiver's progress: bytes of the transfer so far.
struct ProbeTaken {
  std::uint32_t pair = 0;
  std::uint32_t transfer = 0;
  std::uint64_t bytes = 0;
};
/// The whole transfer has been sent.
struct ProbeEnd {
  std::uint32_t pair = 0;
  std::uint32_t transfer = 0;
  std::uint64_t bytes = 0;
};
/// The whole transfer has arrived, with these arrivals.
struct ProbeReport {
  std::uint32_t pair = 0;
  std::uint32_t transfer = 0;
  Arrivals arrivals;
};
/// From a to b: begin the other direction.
struct ProbeTurn {
  std::uint32_t pair = 0;
  EchoSummary echo;
};
/// From b to a: its result.
struct ProbeDirection {
  std::uint32_t pair = 0;
  DirectionMeasurement direction;
};
/// From a to everyone.
struct ProbeResult {
  std::uint32_t pair = 0;
  PairMeasurement result;
};
/// The sender stops.
struct ProbeStop {
  std::string why;  // at most kMaxStopText bytes
};
inline constexpr std::size_t kMaxStopText = 512;

using ProbeMessage = std::variant<ProbeHello, ProbePing, ProbePong, ProbeLoad, ProbeTaken, ProbeEnd,
                                  ProbeReport, ProbeTurn, ProbeDirection, ProbeResult, ProbeStop>;

/// "a ping", for messages about messages.
[[nodiscard]] const char* name_of(const ProbeMessage& message);

/// The payload. REQUIRES: valid numbers.
[[nodiscard]] std::vector<std::byte> write_probe(const ProbeMessage& message);
/// RETURNS: the reason if the payload is no message of this version.
[[nodiscard]] Expected<ProbeMessage, std::string> read_probe(std::span<const std::byte> payload);

/// The same as a whole frame.
[[nodiscard]] FrameBytes probe_frame(const ProbeMessage& message);
/// The piece of a transfer that begins `place` bytes into it, with `payload_bytes` of payload. The
/// filler differs at each place, so that a compressing tunnel gains nothing, neither within a frame
/// nor from earlier frames. REQUIRES: kSmallestLoad to kMaxFramePayload.
[[nodiscard]] FrameBytes load_frame(const ProbeLoad& load, std::uint64_t place,
                                    std::size_t payload_bytes);
inline constexpr std::size_t kSmallestLoad = 16;

}  // namespace isthmus
