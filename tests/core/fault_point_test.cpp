// SPDX-License-Identifier: Apache-2.0
#include "core/base/fault_point.h"

#include <gtest/gtest.h>

#include <csignal>
#include <cstdlib>
#include <string>

#include "isthmus/errors.h"

namespace isthmus::this_file {
namespace {

TEST(FaultPoint, IsNamedWithHowOftenItIsReachedBefore) {
  for (std::size_t k = 0; k < kFaultPoints.size(); ++k) {
    const Fault fault = parse_fault("kill@" + std::string(kFaultPoints[k]) + ":12");
    EXPECT_EQ(static_cast<std::size_t>(fault.at), k);
    EXPECT_EQ(fault.nth, 12);
  }
}

TEST(FaultPoint, AnythingElseIsRefusedWithWhatThereIs) {
  for (const char* text : {"", "1", "kill", "kill@serves", "kill@serves:", "kill@serves:0",
                           "kill@serves:1x", "kill@nowhere:1", "stop@serves:1", "kill@serves:-1"}) {
    try {
      (void)parse_fault(text);
      ADD_FAILURE() << text;
    } catch (const ConfigError& error) {
      EXPECT_NE(std::string(error.what()).find("contributes"), std::string::npos) << error.what();
    }
  }
}

TEST(FaultPoint, NothingHappensUnlessItIsArmed) {
  for (int k = 0; k < 3; ++k) reach(FaultPoint::kServes);
  EXPECT_FALSE(is_armed());
}

TEST(FaultPointDeath, TheProcessIsKilledThereAndThen) {
  const auto reached = [](FaultPoint point, int times) {
    arm({FaultPoint::kServes, 3});
    for (int k = 0; k < times; ++k) reach(point);
    std::_Exit(7);
  };
  EXPECT_EXIT(reached(FaultPoint::kServes, 3), ::testing::KilledBySignal(SIGKILL), "");
  EXPECT_EXIT(reached(FaultPoint::kServes, 2), ::testing::ExitedWithCode(7), "");
  EXPECT_EXIT(reached(FaultPoint::kJoins, 9), ::testing::ExitedWithCode(7), "");
}

}  // namespace
}  // namespace isthmus::this_file
