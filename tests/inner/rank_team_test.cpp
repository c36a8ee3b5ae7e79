// SPDX-License-Identifier: Apache-2.0
// Threads that are ranks: one that does not come back, one that fails.
#include "inner/mesh/rank_team.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <functional>
#include <latch>
#include <string>
#include <thread>
#include <vector>

#include "isthmus/errors.h"

namespace isthmus::this_file {
namespace {
using testing::HasSubstr;

// Healthy ranks answer at once, unless the machine lets them stand for as long as this.
constexpr std::chrono::seconds kPatience{10};
constexpr MeshShape kMesh{.tp = 2, .pp = 1, .dp = 2};

struct Loss {
  std::vector<std::string> told;  // where a process would end
  std::string thrown;
};

/// Plays a team of which rank 2 does not come back before its loss has been told.
Loss lose_a_rank(const std::function<void(RankTeam&, std::size_t, std::latch&)>& body) {
  Loss loss;
  std::latch over{1};
  RankTeam team(kMesh, {.wait = kPatience, .on_hang = [&](const std::string& error) {
                          loss.told.push_back(error);
                          over.count_down();
                        }});
  try {
    team.run([&](std::size_t rank) { body(team, rank, over); });
  } catch (const PeerError& error) {
    loss.thrown = error.what();
  }
  return loss;
}

/// Two teams whose ranks mostly wait, so they are played side by side.
class RankTeamLoses : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    const std::jthread beside([] {
      unnoticed_ = lose_a_rank([](RankTeam& team, std::size_t rank, std::latch& over) {
        team.world(rank).barrier();
        if (rank == 2) over.wait();
      });
    });
    awaited_ = lose_a_rank([](RankTeam& team, std::size_t rank, std::latch& over) {
      team.world(rank).barrier();
      if (rank == 2) over.wait();
      // 3 waits for 2, and 0 and 1 for both: any of these may be the first.
      if (rank == 3) {
        float value = 0;
        team.world(rank).receive({&value, 1, Dtype::kF32}, 2, 7);
      }
      team.world(rank).barrier();
    });
  }

  static Loss awaited_, unnoticed_;
};
Loss RankTeamLoses::awaited_, RankTeamLoses::unnoticed_;

TEST_F(RankTeamLoses, TheThreadThatDoesNotComeBackAndNoOther) {
  ASSERT_EQ(awaited_.told.size(), 1U);
  const std::string& told = awaited_.told.front();
  EXPECT_EQ(told.substr(0, told.find("; it began with")),
            "the mesh has lost ranks: rank 2 (tp 0, pp 0, dp 1) did not come back for 10 s more");
  EXPECT_THAT(told, HasSubstr("threads cannot be stopped, so the process ends"));
  EXPECT_THAT(told, HasSubstr("--resume auto"));
  EXPECT_THAT(awaited_.thrown, HasSubstr("rank 2"));  // all are back by now
}

TEST_F(RankTeamLoses, AThreadThatHangsWhereNobodyWaitsForIt) {
  EXPECT_NE(unnoticed_.thrown, "");
  ASSERT_EQ(unnoticed_.told.size(), 1U);
  EXPECT_THAT(unnoticed_.told.front(),
              HasSubstr("lost ranks: rank 2 (tp 0, pp 0, dp 1) did not come back"));
}

// A mismatch is a bug, not a lost rank: nothing to go on from with --resume auto.
TEST(RankTeam, WithoutPatienceAnErrorOfACallIsNoLostRank) {
  RankTeam team(kMesh, {});
  EXPECT_THROW(team.run([&](std::size_t rank) {
    float value = 0;
    if (rank == 0) {
      team.world(rank).barrier();
    } else {
      team.world(rank).all_reduce({&value, 1, Dtype::kF32}, Reduce::kSum);
    }
  }),
               RunError);
}

TEST(RankTeam, ARankThatFailsIsNoHang) {
  bool told = false;
  RankTeam team(
      kMesh, {.wait = std::chrono::hours(1), .on_hang = [&](const std::string&) { told = true; }});
  try {
    team.run([&](std::size_t rank) {
      if (rank == 1) throw RunError("no room");
      team.world(rank).barrier();
    });
    FAIL() << "nothing thrown";
  } catch (const RunError& error) {
    EXPECT_STREQ(error.what(), "no room");
  }
  EXPECT_FALSE(told);
}

TEST(RankTeam, RunsTheRanksSideBySide) {
  RankTeam team(kMesh, {});
  std::array<float, 4> sums{};
  for (int pass = 0; pass < 3; ++pass) {
    team.run([&](std::size_t rank) {
      sums[rank] = static_cast<float>(rank);
      team.world(rank).all_reduce({&sums[rank], 1, Dtype::kF32}, Reduce::kSum);
    });
    EXPECT_THAT(sums, testing::Each(6.0f));
  }
}

}  // namespace
}  // namespace isthmus::this_file
