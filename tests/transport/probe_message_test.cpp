// SPDX-License-Identifier: Apache-2.0
// Messages of a measurement: what is written is read, what is none is refused by name.
#include "transport/links/probe/probe_message.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <chrono>
#include <set>
#include <string>
#include <vector>

#include "transport/wire/frame.h"

namespace isthmus::this_file {
namespace {

using std::chrono::milliseconds;
using testing::HasSubstr;

EchoSummary some_echo() {
  return {.samples = 20,
          .least = milliseconds(10),
          .p50 = milliseconds(11),
          .p99 = milliseconds(19),
          .jitter = milliseconds(2)};
}
DirectionMeasurement some_direction() {
  DirectionMeasurement direction;
  direction.bits_per_s = 93.5e6;
  direction.streams = 2;
  direction.scan = {{1, 50e6}, {2, 93e6}};
  direction.bytes = 12'345'678;
  direction.retransmits = Retransmits{.segments = 1000, .repeated = 3};
  direction.loaded_rtt = milliseconds(80);
  direction.congestion = "cubic";
  return direction;
}

std::vector<ProbeMessage> all_kinds() {
  PairMeasurement pair{
      .a = WorkerId(0), .b = WorkerId(2), .echo = some_echo(), .up = some_direction(), .down = {}};
  pair.down.bits_per_s = 1;
  return {ProbeHello{.budget = milliseconds(3000), .streams = 16, .name = "east"},
          ProbePing{.pair = 1, .number = 7},
          ProbePong{.pair = 1, .number = 7},
          ProbeLoad{.pair = 1, .transfer = 2},
          ProbeTaken{.pair = 1, .transfer = 2, .bytes = 4096},
          ProbeEnd{.pair = 1, .transfer = 2, .bytes = 8192},
          ProbeReport{
              .pair = 1, .transfer = 2, .arrivals = {8192, milliseconds(9), 4096, milliseconds(5)}},
          ProbeTurn{.pair = 1, .echo = some_echo()},
          ProbeDirection{.pair = 1, .direction = some_direction()},
          ProbeResult{.pair = 1, .result = pair},
          ProbeStop{.why = "site west is gone"}};
}

TEST(ProbeMessage, EveryKindSurvivesTheWay) {
  for (const ProbeMessage& message : all_kinds()) {
    const std::vector<std::byte> bytes = write_probe(message);
    const auto read = read_probe(bytes);
    ASSERT_TRUE(read.has_value()) << name_of(message) << ": " << read.error();
    EXPECT_EQ(read->index(), message.index());
    EXPECT_EQ(write_probe(*read), bytes) << name_of(message);
  }
  const auto result = read_probe(write_probe(all_kinds()[9]));
  EXPECT_EQ(std::get<ProbeResult>(*result).result, std::get<ProbeResult>(all_kinds()[9]).result);
}

TEST(ProbeMessage, NothingShorterOrLongerIsAMessage) {
  for (const ProbeMessage& message : all_kinds()) {
    std::vector<std::byte> bytes = write_probe(message);
    for (std::size_t n = 0; n < bytes.size(); ++n) {
      EXPECT_FALSE(read_probe(std::span(bytes).first(n)).has_value()) << name_of(message) << n;
    }
    bytes.push_back(std::byte{0});
    EXPECT_EQ(read_probe(bytes).has_value(), std::holds_alternative<ProbeLoad>(message))
        << name_of(message);
  }
}

TEST(ProbeMessage, OtherVersionsAndKindsAreNamed) {
  std::vector<std::byte> bytes = write_probe(ProbePing{});
  bytes[4] = std::byte{9};
  EXPECT_THAT(read_probe(bytes).error(), HasSubstr("version 9"));
  bytes = write_probe(ProbePing{});
  bytes[6] = std::byte{99};
  EXPECT_THAT(read_probe(bytes).error(), HasSubstr("unknown kind 99"));
  bytes[6] = std::byte{0};
  EXPECT_THAT(read_probe(bytes).error(), HasSubstr("unknown kind 0"));
  bytes[0] = std::byte{'X'};
  EXPECT_THAT(read_probe(bytes).error(), HasSubstr("no message of a measurement"));
}

TEST(ProbeMessage, LiesAreRefused) {
  ProbeDirection direction{.pair = 0, .direction = some_direction()};
  direction.direction.bits_per_s = -1;
  EXPECT_THAT(read_probe(write_probe(direction)).error(), HasSubstr("-1 bit/s"));
  ProbeTurn turn{.pair = 0, .echo = some_echo()};
  turn.echo.p50 = Duration(-5);
  EXPECT_THAT(read_probe(write_probe(turn)).error(), HasSubstr("cannot be"));
  EXPECT_FALSE(
      read_probe(write_probe(ProbeHello{.budget = Duration(0), .streams = 1})).has_value());
  EXPECT_FALSE(
      read_probe(write_probe(ProbeHello{.budget = milliseconds(1), .streams = 65})).has_value());
  EXPECT_FALSE(read_probe(write_probe(ProbeStop{.why = "\x1b[2Jgone"})).has_value())
      << "what is shown to people has no control characters";
  ProbeResult result = std::get<ProbeResult>(all_kinds()[9]);
  std::swap(result.result.a, result.result.b);
  EXPECT_FALSE(read_probe(write_probe(result)).has_value());
}

TEST(ProbeMessage, ALoadIsAFrameOfTheSizeAskedForThatDoesNotCompress) {
  const FrameBytes frame = load_frame({.pair = 3, .transfer = 4}, 0, 65'536);
  const auto parsed = parse_frame(*frame);
  ASSERT_TRUE(parsed.has_value()) << parsed.error().what;
  EXPECT_EQ(parsed->payload.size(), 65'536u);
  const auto read = read_probe(parsed->payload);
  ASSERT_TRUE(read.has_value());
  EXPECT_EQ(std::get<ProbeLoad>(*read).transfer, 4u);
  std::vector<int> count(256);
  for (const std::byte each : parsed->payload) ++count[std::to_integer<std::size_t>(each)];
  for (const int n : count) EXPECT_NEAR(n, 256, 130);  // eight standard deviations
}

// What a dictionary coder could reuse are runs of a few bytes that have come before.
TEST(ProbeMessage, NoTwoPiecesOfATransferHaveTheirFillerInCommon) {
  std::set<std::string> seen;
  std::size_t words = 0;
  for (const std::uint32_t transfer : {0u, 1u}) {
    for (std::uint64_t place = 0; place < 32 * 4096; place += 4096) {
      const FrameBytes frame = load_frame({.pair = 3, .transfer = transfer}, place, 4096 + 3);
      const auto payload = payload_of(frame).subspan(kSmallestLoad);
      for (std::size_t i = 0; i + 8 <= payload.size(); i += 8, ++words) {
        seen.emplace(reinterpret_cast<const char*>(&payload[i]), 8);
      }
      const FrameBytes again = load_frame({.pair = 3, .transfer = transfer}, place, 4096 + 3);
      EXPECT_TRUE(std::ranges::equal(*again, *frame));
    }
  }
  EXPECT_EQ(seen.size(), words);
}

}  // namespace
}  // namespace isthmus::this_file
