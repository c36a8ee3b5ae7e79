// SPDX-License-Identifier: Apache-2.0
// What members say to one another while they measure their links. Each message is the payload of a
// NOTE frame, so that it goes the way of everything else; the layout is drawn in WIRE_FORMAT.md.
// Whatever bytes arrive, `read_probe` answers with a message whose numbers can be, or a reason.
// Pure functions and values; any thread.
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

/// First of all, to everyone: who speaks, and how it means to measure.
struct ProbeHello {
  Duration budget{0};         // of each direction
  std::uint32_t streams = 1;  // the most to be tried
  std::string name;           // for people; at most kMaxMemberName bytes
};
/// To be answered at once with the same number.
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
/// So much of it has come.
struct ProbeTaken {
  std::uint32_t pair = 0;
  std::uint32_t transfer = 0;
  std::uint64_t bytes = 0;
};
/// All of it has been sent.
struct ProbeEnd {
  std::uint32_t pair = 0;
  std::uint32_t transfer = 0;
  std::uint64_t bytes = 0;
};
/// All of it has come, like this.
struct ProbeReport {
  std::uint32_t pair = 0;
  std::uint32_t transfer = 0;
  Arrivals arrivals;
};
/// From a to b: now the other direction.
struct ProbeTurn {
  std::uint32_t pair = 0;
  EchoSummary echo;
};
/// From b to a: what came of it.
struct ProbeDirection {
  std::uint32_t pair = 0;
  DirectionMeasurement direction;
};
/// From a to everyone.
struct ProbeResult {
  std::uint32_t pair = 0;
  PairMeasurement result;
};
/// The sender goes no further.
struct ProbeStop {
  std::string why;  // at most kMaxStopText bytes
};
inline constexpr std::size_t kMaxStopText = 512;

using ProbeMessage = std::variant<ProbeHello, ProbePing, ProbePong, ProbeLoad, ProbeTaken, ProbeEnd,
                                  ProbeReport, ProbeTurn, ProbeDirection, ProbeResult, ProbeStop>;

/// "a ping", for messages about messages.
[[nodiscard]] const char* name_of(const ProbeMessage& message);

/// The payload. REQUIRES: numbers that can be.
[[nodiscard]] std::vector<std::byte> write_probe(const ProbeMessage& message);
/// RETURNS: why the payload is no message of this version.
[[nodiscard]] Expected<ProbeMessage, std::string> read_probe(std::span<const std::byte> payload);

/// The same as a whole frame.
[[nodiscard]] FrameBytes probe_frame(const ProbeMessage& message);
/// The piece of a transfer that begins `place` bytes into it and has so many bytes of payload. The
/// filler is another one at each place: a tunnel that compresses finds nothing to gain, neither in
/// a frame nor in those before. REQUIRES: kSmallestLoad to kMaxFramePayload.
[[nodiscard]] FrameBytes load_frame(const ProbeLoad& load, std::uint64_t place,
                                    std::size_t payload_bytes);
inline constexpr std::size_t kSmallestLoad = 16;

}  // namespace isthmus
