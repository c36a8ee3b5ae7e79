// SPDX-License-Identifier: Apache-2.0
// Links against closed forms: bytes * 8 / rate + half a round trip, doubling windows, outages.
#include "sim/link_queue.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>

#include "isthmus/errors.h"

namespace isthmus::this_file {
namespace {

using std::chrono::milliseconds;
using std::chrono::nanoseconds;
using std::chrono::seconds;

constexpr std::int64_t kMbit = 1'000'000;

DirectedLink link_of(std::int64_t bits_per_s, Duration rtt) {
  return {.bits_per_s = bits_per_s, .one_way = rtt / 2};
}

TimePoint at(Duration duration) { return TimePoint(duration); }

double seconds_of(TimePoint time) {
  return std::chrono::duration<double>(time.time_since_epoch()).count();
}

TEST(PlainLink, AFrameTakesItsBitsOverTheRateAndHalfARoundTrip) {
  LinkQueue link(link_of(8 * kMbit, milliseconds(50)), {}, 1, 0);
  const Passage passage = link.send(at(seconds(1)), 1'000'000);
  EXPECT_EQ(passage.begin, at(seconds(1)));
  EXPECT_EQ(passage.departure, at(seconds(2)));
  EXPECT_EQ(passage.arrival, at(seconds(2) + milliseconds(25)));
}

TEST(PlainLink, FramesQueueWithoutGapsAndRoundingDoesNotAddUp) {
  // 3 bits a second: no frame takes a whole number of nanoseconds.
  LinkQueue link(link_of(3, Duration::zero()), {}, 1, 0);
  TimePoint last;
  for (int frame = 0; frame < 3000; ++frame) last = link.send(at(Duration::zero()), 1).departure;
  EXPECT_EQ(last, at(seconds(8000)));
}

TEST(PlainLink, AnIdleLinkStartsAtOnce) {
  LinkQueue link(link_of(8 * kMbit, Duration::zero()), {}, 1, 0);
  EXPECT_EQ(link.send(at(seconds(0)), 1000).departure, at(milliseconds(1)));
  EXPECT_EQ(link.send(at(seconds(5)), 1000).begin, at(seconds(5)));
  EXPECT_EQ(link.send(at(seconds(5)), 1000).departure, at(seconds(5) + milliseconds(2)));
}

TEST(PlainLink, RateZeroIsFree) {
  LinkQueue link({}, {}, 1, 0);
  EXPECT_EQ(link.send(at(seconds(1)), 1U << 30).arrival, at(seconds(1)));
}

TEST(PlainLink, LossUnderCubicCapsTheRateAtStreamsTimesMathis) {
  DirectedLink config = link_of(200 * kMbit, milliseconds(50));
  config.loss = 0.001;
  config.streams = 4;
  config.congestion = Congestion::kCubic;
  // 1.22 * 1448 * 8 / (0.05 * sqrt(0.001)) = 8.938 Mbit/s a stream.
  EXPECT_NEAR(static_cast<double>(mathis_bits_per_s(milliseconds(50), 0.001)), 8.938e6, 1e3);
  LinkQueue link(config, {}, 1, 0);
  const double expected = 25e6 * 8 / (4 * 8.938e6);
  EXPECT_NEAR(seconds_of(link.send(at(seconds(0)), 25'000'000).departure), expected,
              1e-3 * expected);
  config.congestion = Congestion::kBbr;
  LinkQueue bbr(config, {}, 1, 0);
  EXPECT_EQ(bbr.send(at(seconds(0)), 25'000'000).departure, at(seconds(1)));
}

TEST(PlainLink, ByteScaleMultipliesTheBytes) {
  LinkQueue link(link_of(8 * kMbit, Duration::zero()), {.byte_scale = 2.5}, 1, 0);
  EXPECT_EQ(link.send(at(seconds(0)), 400'000).departure, at(seconds(1)));
  EXPECT_EQ(link.modelled_bytes(400'000), 1'000'000U);
}

TEST(PlainLink, JitterStaysWithinItsBoundKeepsOrderAndIsAFunctionOfTheSeed) {
  DirectedLink config = link_of(800 * kMbit, milliseconds(10));
  config.jitter = milliseconds(3);
  LinkQueue link(config, {}, 1, 0);
  LinkQueue same(config, {}, 1, 0);
  LinkQueue other(config, {}, 2, 0);
  TimePoint before;
  bool differs = false;
  bool late = false;
  for (int frame = 0; frame < 200; ++frame) {
    const TimePoint now = at(milliseconds(10) * frame);
    const Passage passage = link.send(now, 1000);
    const Duration extra = passage.arrival - passage.departure - config.one_way;
    EXPECT_GE(extra, Duration::zero());
    EXPECT_LE(extra, config.jitter);
    EXPECT_GE(passage.arrival, before);
    before = passage.arrival;
    late = late || extra > config.jitter / 2;
    EXPECT_EQ(same.send(now, 1000).arrival, passage.arrival);
    differs = differs || other.send(now, 1000).arrival != passage.arrival;
  }
  EXPECT_TRUE(differs);
  EXPECT_TRUE(late);
}

/// Time until `bits` have left when a window of `window` bits doubles each round trip up to the
/// rate: the closed form of slow start, in doubles, independent of the implementation.
double slow_start_s(double bits, double rate, double rtt, double window) {
  double time = 0;
  while (window < rate * rtt) {
    if (bits <= window) return time + bits / window * rtt;
    bits -= window;
    time += rtt;
    window *= 2;
  }
  return time + bits / rate;
}

constexpr double kInitialWindowBits = 10 * 1448 * 8;

TEST(SlowStart, WindowsDoubleEachRoundTripFromTenPackets) {
  for (const std::uint64_t bytes : {1'000U, 14'480U, 50'000U, 300'000U, 5'000'000U}) {
    LinkQueue link(link_of(100 * kMbit, milliseconds(50)), {.slow_start = true}, 1, 0);
    const double expected =
        slow_start_s(static_cast<double>(bytes) * 8, 100e6, 0.05, kInitialWindowBits);
    EXPECT_NEAR(seconds_of(link.send(at(seconds(0)), bytes).departure), expected, 1e-6) << bytes;
  }
}

TEST(SlowStart, StreamsStartWithAWindowEach) {
  DirectedLink config = link_of(100 * kMbit, milliseconds(50));
  config.streams = 8;
  LinkQueue link(config, {.slow_start = true}, 1, 0);
  EXPECT_NEAR(seconds_of(link.send(at(seconds(0)), 1'000'000).departure),
              slow_start_s(8e6, 100e6, 0.05, 8 * kInitialWindowBits), 1e-6);
}

TEST(SlowStart, ManySmallFramesTakeAsLongAsOneBigOne) {
  LinkQueue whole(link_of(100 * kMbit, milliseconds(50)), {.slow_start = true}, 1, 0);
  LinkQueue pieces(link_of(100 * kMbit, milliseconds(50)), {.slow_start = true}, 1, 0);
  const TimePoint expected = whole.send(at(seconds(0)), 4'000'000).departure;
  TimePoint last;
  for (int i = 0; i < 4000; ++i) last = pieces.send(at(seconds(0)), 1000).departure;
  // Each frame's departure is rounded up to a nanosecond.
  EXPECT_LE(last - expected, nanoseconds(4000));
  EXPECT_GE(last, expected);
}

TEST(SlowStart, AWarmLinkRunsAtItsRateAndALongPauseMakesItCold) {
  const double cold = slow_start_s(8e6, 100e6, 0.05, kInitialWindowBits);
  LinkQueue link(link_of(100 * kMbit, milliseconds(50)), {.slow_start = true}, 1, 0);
  (void)link.send(at(seconds(0)), 10'000'000);
  EXPECT_EQ(link.send(at(seconds(2)), 0).departure, at(seconds(2)));
  // Shorter than the restart time of 250 ms: still warm, 80 ms for 8 Mbit.
  EXPECT_EQ(link.send(at(milliseconds(1300)), 0).begin, at(seconds(2)));
  LinkQueue warm(link_of(100 * kMbit, milliseconds(50)), {.slow_start = true}, 1, 0);
  const TimePoint end = warm.send(at(seconds(0)), 10'000'000).departure;
  EXPECT_EQ(warm.send(end + milliseconds(249), 1'000'000).departure, end + milliseconds(329));
  // Eight restart times halve the window to less than a packet: as cold as at first.
  const TimePoint much_later = end + seconds(100);
  EXPECT_NEAR(seconds_of(warm.send(much_later, 1'000'000).departure) - seconds_of(much_later), cold,
              1e-6);
}

TEST(SlowStart, OneRestartTimeOfPauseHalvesTheWindow) {
  LinkQueue link(link_of(100 * kMbit, milliseconds(50)),
                 {.slow_start = true, .idle_restart = seconds(1)}, 1, 0);
  const TimePoint end = link.send(at(seconds(0)), 10'000'000).departure;
  const TimePoint later = end + milliseconds(1500);
  // Half of 100 Mbit/s * 50 ms in the first round trip, all of it from then on.
  EXPECT_NEAR(seconds_of(link.send(later, 1'000'000).departure) - seconds_of(later),
              slow_start_s(8e6, 100e6, 0.05, 2.5e6), 1e-6);
}

TEST(SlowStart, SparseTrafficDoesNotOpenTheWindow) {
  // Ten packets of one round trip are never used up, so the window stays at ten.
  LinkQueue link(link_of(100 * kMbit, milliseconds(50)), {.slow_start = true}, 1, 0);
  for (int i = 0; i < 20; ++i) (void)link.send(at(milliseconds(100) * i), 1000);
  const TimePoint now = at(milliseconds(2100));
  EXPECT_NEAR(seconds_of(link.send(now, 1'000'000).departure) - seconds_of(now),
              slow_start_s(8e6, 100e6, 0.05, kInitialWindowBits), 1e-6);
}

/// Seconds that 12.5 MB take over BBR, 100 Mbit/s and 100 ms, sent `idle` after 25 MB have left;
/// small frames go meanwhile, as far apart as that.
double after_idle_s(Duration idle, int small_frames) {
  DirectedLink link = link_of(100 * kMbit, milliseconds(100));
  link.streams = 4;
  LinkQueue queue(link, {.model = LinkModel::kTcp}, 1, 0);
  TimePoint now = queue.send(at(seconds(0)), 25'000'000).departure;
  for (int i = 0; i < small_frames; ++i) now = queue.send(now + idle, 100).departure;
  now += idle;
  return seconds_of(queue.send(now, 12'500'000).departure) - seconds_of(now);
}

TEST(TcpLink, BbrIsBackAtItsRateTwoRoundTripsAfterItWasIdle) {
  const double rate = 100e6 * 1448 / 1500 * (1 - 0.11 / 4) * (1 - 52.0 / 3000);
  const double steady = 12.5e6 * 8 / rate;
  // 3/8 of the rate for a round trip, 3/4 for another.
  const double regaining = steady + (5.0 / 8 + 1.0 / 4) * 0.1;
  EXPECT_NEAR(after_idle_s(milliseconds(99), 0), steady, 1e-6);
  EXPECT_NEAR(after_idle_s(milliseconds(100), 0), regaining, 1e-4);
  EXPECT_NEAR(after_idle_s(seconds(100), 0), regaining, 1e-4);
  EXPECT_NEAR(after_idle_s(seconds(1), 3), regaining, 1e-4);  // small frames change nothing
}

TEST(RateProfile, AnOutageStopsTheFrameAndItGoesOnAfterwards) {
  LinkQueue link(link_of(8 * kMbit, Duration::zero()), {}, 1, 0);
  link.set_profile(RateProfile::outage(8 * kMbit, at(seconds(1)), at(seconds(3))));
  EXPECT_EQ(link.send(at(milliseconds(500)), 1'000'000).departure, at(milliseconds(3500)));
  EXPECT_EQ(link.send(at(seconds(4)), 1'000'000).departure, at(seconds(5)));
}

TEST(RateProfile, BitsAreServedAtTheRateOfEachPiece) {
  LinkQueue link(link_of(8 * kMbit, Duration::zero()), {}, 1, 0);
  link.set_profile(RateProfile(
      {{at(seconds(0)), 8 * kMbit}, {at(seconds(1)), 2 * kMbit}, {at(seconds(2)), 16 * kMbit}}));
  // 8 Mbit in the first second, 2 in the second, the other 6 of 16 at 16 Mbit/s.
  EXPECT_EQ(link.send(at(seconds(0)), 2'000'000).departure, at(milliseconds(2375)));
}

TEST(DirectedLink, ValuesOutOfRangeAreRefusedByName) {
  const auto message = [](const DirectedLink& link) {
    try {
      check_link(link, "link 0 -> 1");
    } catch (const ConfigError& error) {
      return std::string(error.what());
    }
    return std::string("accepted");
  };
  EXPECT_EQ(message({}), "accepted");
  EXPECT_EQ(message({.loss = 1.5}),
            "link 0 -> 1: loss = 1.5: must be in [0, 1), the share of packets lost");
  EXPECT_EQ(message({.loss = std::nan("")}).substr(0, 24), "link 0 -> 1: loss = nan:");
  EXPECT_EQ(message({.streams = 0}).substr(0, 26), "link 0 -> 1: streams = 0: ");
  EXPECT_EQ(message({.bits_per_s = -1}).substr(0, 22), "link 0 -> 1: rate = -1");
  EXPECT_EQ(message({.one_way = seconds(-1)}).substr(0, 21), "link 0 -> 1: rtt = -2");
}

}  // namespace
}  // namespace isthmus::this_file
