// SPDX-License-Identifier: Apache-2.0
// What a site's cap makes of a transfer over real sockets.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>

#include "config/schema/send_cap.h"
#include "core/base/system_runtime.h"
#include "transport/wire/frame.h"
#include "zmq_members.h"

namespace isthmus::testing_support::this_file {
namespace {

using namespace std::chrono_literals;
using Members = std::vector<std::unique_ptr<NetworkTransport>>;

constexpr std::size_t kFrameBytes = 250'000;
constexpr int kNoon = 12 * 60;
constexpr int kMidnight = 0;

class ZmqCap : public ::testing::Test {
 protected:
  void SetUp() override {
    if (zmq_version().empty()) GTEST_SKIP() << "this build has no ZeroMQ";
    config_.sites.resize(2);
  }
  /// The first of two members has the cap of the first site, at `minute_` of its day.
  Members members() {
    return joined_members(runtime_, 2, [this](MemberOptions& options) {
      options.heartbeat = 50ms;
      if (options.self != WorkerId(0)) return;
      options.send_bits_per_s = [cap = SendCap(config_, config_.sites[0]), this] {
        return cap.at(minute_);
      };
    });
  }
  /// Seconds until the other end has `frames` of these.
  double transfer(const Members& ends, int from, int frames) {
    const auto frame = std::make_shared<const std::vector<std::byte>>(kFrameBytes);
    const TimePoint begin = runtime_.clock().now();
    for (int i = 0; i < frames; ++i)
      ends[static_cast<std::size_t>(from)]->send(WorkerId(1 - from), frame);
    for (int i = 0; i < frames; ++i) {
      EXPECT_TRUE(ends[static_cast<std::size_t>(1 - from)]->receive(begin + 60s));
    }
    return std::chrono::duration<double>(runtime_.clock().now() - begin).count();
  }
  /// Paid for before the last frame goes: all but that one, and 20 ms that the budget holds.
  static double least_seconds(int frames, double bits_per_s) {
    return (frames - 1) * static_cast<double>(kFrameBytes) * 8 / bits_per_s - 0.02;
  }

  SystemRuntime runtime_;
  Config config_;
  std::atomic<int> minute_{kNoon};
};

TEST_F(ZmqCap, BoundsWhatTheSiteSends) {
  config_.net.cap_bits_per_s = 1e9;
  config_.sites[0].cap_bits_per_s = 40e6;
  const Members ends = members();
  constexpr int kFrames = 20;  // a second
  const double seconds = transfer(ends, 0, kFrames);
  EXPECT_GE(seconds, 0.9 * least_seconds(kFrames, 40e6));
  EXPECT_LE(seconds, 10) << "that nothing else slows it down is for the tests in virtual time";
}

TEST_F(ZmqCap, QuietHoursComeAndGoWhileItSends) {
  config_.net.quiet = {"08:00-18:00 4Mbit/s"};
  const Members ends = members();
  constexpr int kFrames = 20;  // ten seconds, while it is quiet
  const auto frame = std::make_shared<const std::vector<std::byte>>(kFrameBytes);
  const TimePoint begin = runtime_.clock().now();
  for (int i = 0; i < kFrames; ++i) ends[0]->send(WorkerId(1), frame);
  constexpr int kQuiet = 3;
  for (int i = 0; i < kFrames; ++i) {
    ASSERT_TRUE(ends[1]->receive(begin + 60s));
    if (i + 1 == kQuiet) minute_ = kMidnight;
  }
  const double seconds = std::chrono::duration<double>(runtime_.clock().now() - begin).count();
  EXPECT_GE(seconds, 0.9 * least_seconds(kQuiet, 4e6));
  EXPECT_LT(seconds, 9.4) << "of ten";
  minute_ = kNoon;
  // The news comes with a heartbeat; from then on two frames take the time of one.
  double quiet = 0;
  for (const TimePoint end = runtime_.clock().now() + 30s;
       quiet < 0.9 * least_seconds(2, 4e6) && runtime_.clock().now() < end;) {
    quiet = transfer(ends, 0, 2);
  }
  EXPECT_GE(quiet, 0.9 * least_seconds(2, 4e6));
}

}  // namespace
}  // namespace isthmus::testing_support::this_file
