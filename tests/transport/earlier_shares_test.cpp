// SPDX-License-Identifier: Apache-2.0
// Members of an earlier program whose shares of owners move (net.shares = "measured"): their DONE
// and COMMIT carry bytes that this program does not send. Such a frame ends the round for all.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <tuple>
#include <vector>

#include "transport/engine_net.h"
#include "transport/naive_mean.h"

namespace isthmus::this_file {
namespace {

using namespace std::chrono_literals;
using namespace testing_support;
using ::testing::HasSubstr;

constexpr std::size_t kValues = 50'000;

Contribution contribution(int member, const SyncId& id) {
  return contribution_of(make_codec("fp32"), WorkerId(member), kValues, id, ReductionKind::kReduce);
}

/// The same frame with another payload.
FrameBytes with_payload(const FrameBytes& frame, const std::vector<std::byte>& payload) {
  return make_frame(parse_frame(*frame)->header, payload);
}

struct Unlike {
  const char* name;
  FrameKind kind;
  std::size_t payload;  // its bytes
};
void PrintTo(const Unlike& unlike, std::ostream* out) { *out << unlike.name; }

class EarlierShares : public ::testing::TestWithParam<std::tuple<Unlike, bool>> {};
INSTANTIATE_TEST_SUITE_P(
    All, EarlierShares,
    ::testing::Combine(::testing::Values(Unlike{"DoneWithRates", FrameKind::kDone, 40},
                                         Unlike{"CutDone", FrameKind::kDone, 7},
                                         Unlike{"CommitWithShares", FrameKind::kCommit, 12}),
                       ::testing::Bool()),
    [](const auto& each) {
      return std::string(std::get<0>(each.param).name) +
             (std::get<1>(each.param) ? "ToAHub" : "ToTheFirst");
    });

TEST_P(EarlierShares, EndTheRoundWithTheKeysName) {
  const auto& [unlike, hub] = GetParam();
  EngineNet net(3, 1, {}, true, 1, 100ms, hub);
  net.forge = [unlike = unlike](int, const FrameBytes& frame) {
    if (parse_frame(*frame)->header.kind != unlike.kind) return frame;
    return with_payload(frame, std::vector<std::byte>(unlike.payload));
  };
  const SyncId id{FragmentId(0), StepIndex(1)};
  for (int m = 0; m < 3; ++m) net.begin(m, contribution(m, id));
  const auto all_ready = [&] {
    return net.engine(0).ready(id) && net.engine(1).ready(id) && net.engine(2).ready(id);
  };
  for (int k = 0; k < 3000 && !all_ready(); ++k) ASSERT_TRUE(net.advance());
  ASSERT_TRUE(all_ready()) << "it never ends";
  // Who says COMMIT has ended the round by it.
  const int first = unlike.kind == FrameKind::kCommit && !hub ? 1 : 0;
  for (int m = first; m < 3; ++m) {
    const auto result = net.engine(m).take(id);
    ASSERT_FALSE(result.has_value()) << m;
    EXPECT_EQ(result.error().kind, ExchangeError::Kind::kCorrupt);
    EXPECT_THAT(result.error().what, HasSubstr("net.shares = \"measured\""));
    EXPECT_THAT(result.error().what, HasSubstr(std::to_string(unlike.payload) + " bytes"));
  }
}

}  // namespace
}  // namespace isthmus::this_file
