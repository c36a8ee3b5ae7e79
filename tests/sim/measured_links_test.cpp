// SPDX-License-Identifier: Apache-2.0
// The TCP model against measurements on shaped links: DEALER to ROUTER, 256 KiB frames, 200 Mbit/s,
// RTT 50 ms, queue of one bandwidth-delay product, 5 s with the first second left out; and single
// connections of a peer library on 50 and 100 Mbit/s. Each cell was measured once or twice.
//
// Left out: one cubic stream at 1 % loss (measured 1.1 % of the line in a single run of some eight
// losses; the model, like Mathis's formula, gives 1.4 %), and transfers that their own protocol
// holds up: gloo, Open MPI and several connections of PCCL with cubic reach 30 to 60 % of what TCP
// gives on the same links.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <ostream>
#include <string>

#include "sim/link_queue.h"

namespace isthmus::this_file {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr double kAllowed = 0.15;  // of the measured value: what the design asks of the model

/// Share of the line in percent that 256 KiB frames get within [begin, end).
double goodput_percent(const DirectedLink& config, Duration begin, Duration end) {
  constexpr std::uint64_t kFrameBytes = 262'144;
  LinkQueue link(config, {.model = LinkModel::kTcp}, 1, 0);
  double bits = 0;
  while (true) {
    const Passage passage = link.send(TimePoint{}, kFrameBytes);
    // A frame that straddles a border counts by its share of time inside.
    const TimePoint from = std::max(passage.begin, TimePoint(begin));
    const TimePoint to = std::min(passage.departure, TimePoint(end));
    if (to > from) {
      bits += static_cast<double>(kFrameBytes) * 8 * static_cast<double>((to - from).count()) /
              static_cast<double>((passage.departure - passage.begin).count());
    }
    if (passage.departure >= TimePoint(end)) break;
  }
  const double window = std::chrono::duration<double>(end - begin).count();
  return 100 * bits / (static_cast<double>(config.bits_per_s) * window);
}

struct Cell {
  double loss;
  Congestion congestion;
  int streams;
  double measured_percent;
};
void PrintTo(const Cell& cell, std::ostream* out) {
  *out << (cell.congestion == Congestion::kBbr ? "BBR" : "cubic") << ", " << cell.streams
       << " streams, loss " << cell.loss;
}

DirectedLink link_of(const Cell& cell) {
  return {.bits_per_s = 200'000'000,
          .one_way = milliseconds(25),
          .loss = cell.loss,
          .streams = cell.streams,
          .congestion = cell.congestion};
}

class MeasuredGoodput : public ::testing::TestWithParam<Cell> {};

TEST_P(MeasuredGoodput, IsReproducedWithin15Percent) {
  const Cell& cell = GetParam();
  const double model = goodput_percent(link_of(cell), seconds(1), seconds(5));
  RecordProperty("model_percent", std::to_string(model));
  std::printf("  model %.1f %%, measured %.1f %%, %+.1f %%\n", model, cell.measured_percent,
              100 * (model / cell.measured_percent - 1));
  EXPECT_NEAR(model, cell.measured_percent, kAllowed * cell.measured_percent);
}

INSTANTIATE_TEST_SUITE_P(
    Cells, MeasuredGoodput,
    ::testing::Values(Cell{0, Congestion::kCubic, 1, 98}, Cell{0, Congestion::kCubic, 4, 96},
                      Cell{0, Congestion::kCubic, 8, 96}, Cell{0, Congestion::kBbr, 1, 85},
                      Cell{0, Congestion::kBbr, 4, 92}, Cell{0, Congestion::kBbr, 8, 93},
                      Cell{0.001, Congestion::kCubic, 1, 4.9},
                      Cell{0.001, Congestion::kCubic, 4, 37},
                      Cell{0.001, Congestion::kCubic, 8, 67},
                      Cell{0.001, Congestion::kCubic, 16, 89}, Cell{0.001, Congestion::kBbr, 1, 75},
                      Cell{0.001, Congestion::kBbr, 4, 99}, Cell{0.001, Congestion::kBbr, 8, 100},
                      Cell{0.01, Congestion::kCubic, 4, 5.3}, Cell{0.01, Congestion::kCubic, 8, 11},
                      Cell{0.01, Congestion::kBbr, 1, 86}, Cell{0.01, Congestion::kBbr, 4, 94},
                      Cell{0.01, Congestion::kBbr, 8, 99}));

TEST(CubicWindows, LongRunIsMathis) {
  // 1.22 MSS / (RTT sqrt(p)) is what a periodic loss gives; timeouts take a little off. Losses of
  // several streams do not fall together, so the line may be cut off a little above.
  constexpr double kTimeouts = 0.06;
  for (const double loss : {0.0003, 0.001, 0.003, 0.01}) {
    for (const int streams : {1, 4}) {
      const DirectedLink link = link_of({loss, Congestion::kCubic, streams, 0});
      const double mathis = 100.0 * streams *
                            static_cast<double>(mathis_bits_per_s(milliseconds(50), loss)) /
                            static_cast<double>(link.bits_per_s);
      if (mathis > 60) continue;
      const double model = goodput_percent(link, seconds(60), seconds(200));
      EXPECT_NEAR(model, mathis, kTimeouts * mathis) << streams << " streams, loss " << loss;
    }
  }
}

struct Transfer {
  const char* name;
  DirectedLink link;
  double megabytes;
  double measured_s;
};
void PrintTo(const Transfer& transfer, std::ostream* out) { *out << transfer.name; }

class MeasuredTransfer : public ::testing::TestWithParam<Transfer> {};

TEST_P(MeasuredTransfer, IsReproducedWithin15Percent) {
  const Transfer& transfer = GetParam();
  LinkQueue link(transfer.link, {.model = LinkModel::kTcp}, 1, 0);
  TimePoint arrival;
  for (int i = 0; i < 100; ++i) {
    const auto bytes = static_cast<std::uint64_t>(transfer.megabytes * 1e6 / 100);
    arrival = link.send(TimePoint{}, bytes).arrival;
  }
  const double model = std::chrono::duration<double>(arrival.time_since_epoch()).count();
  std::printf("  model %.3f s, measured %.3f s, %+.1f %%\n", model, transfer.measured_s,
              100 * (model / transfer.measured_s - 1));
  EXPECT_NEAR(model, transfer.measured_s, kAllowed * transfer.measured_s);
}

DirectedLink wan(std::int64_t mbit, double loss, Congestion congestion) {
  return {.bits_per_s = mbit * 1'000'000,
          .one_way = milliseconds(25),
          .loss = loss,
          .streams = 1,
          .congestion = congestion};
}

// An all-reduce of V bytes sends 2 (M - 1) / M V from each member: 25 MB for two, 33.3 MB for
// three.
INSTANTIATE_TEST_SUITE_P(
    Cells, MeasuredTransfer,
    ::testing::Values(Transfer{"M=2 100 Mbit/s BBR", wan(100, 0, Congestion::kBbr), 25, 2.403},
                      Transfer{"M=2 100 Mbit/s BBR 0.1 % loss", wan(100, 0.001, Congestion::kBbr),
                               25, 2.325},
                      Transfer{"M=3 50 Mbit/s BBR", wan(50, 0, Congestion::kBbr), 33.33, 6.15},
                      Transfer{"M=2 100 Mbit/s cubic 0.1 % loss",
                               wan(100, 0.001, Congestion::kCubic), 25, 25.86}));

TEST(TcpLink, BothWaysTopOutNearWhatIperfGives) {
  // iperf3 both ways at once: 88 to 92 % with cubic; what queues drop is not modelled.
  const double model = goodput_percent(wan(100, 0, Congestion::kCubic), seconds(1), seconds(5));
  EXPECT_NEAR(model, 90, kAllowed * 90);
}

}  // namespace
}  // namespace isthmus::this_file
