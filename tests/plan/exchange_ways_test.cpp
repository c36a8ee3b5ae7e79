// SPDX-License-Identifier: Apache-2.0
// Shares and groups by links, against forms worked out by hand.
#include "plan/exchange_ways.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

namespace isthmus::this_file {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

/// Mbit/s of each direction.
std::vector<DirectedLink> links_of(int members, const std::function<int(int, int)>& rate) {
  std::vector<DirectedLink> links;
  for (int from = 0; from < members; ++from) {
    for (int to = 0; to < members; ++to) {
      links.push_back({.bits_per_s = from == to ? 0 : rate(from, to) * 1'000'000LL});
    }
  }
  return links;
}

TEST(SharesByLines, AreThoseOfTheClosedForm) {
  EXPECT_THAT(shares_by_lines(std::vector{1.0, 1.0, 1.0}, {}), IsEmpty());
  EXPECT_THAT(shares_by_lines(std::vector{4.0, 4.0, 1.0, 4.0}, {}),
              ElementsAre(1365, 1365, 0, 1365));
  // f_i = T b_i / V - 1 for three members: b = 3, 2, 3 gives T = V / 2 and f = 1/2, 0, 1/2.
  EXPECT_THAT(shares_by_lines(std::vector{3.0, 2.0, 3.0}, {}), ElementsAre(2048, 0, 2048));
}

TEST(SharesByLinks, AreEvenOnEvenLinks) {
  EXPECT_THAT(shares_by_links(links_of(4, [](int, int) { return 100; }), 4), IsEmpty());
  EXPECT_THAT(shares_by_links(links_of(2, [](int, int to) { return 10 + to; }), 2), IsEmpty());
  EXPECT_THAT(shares_by_links(links_of(3, [](int, int) { return 0; }), 3), IsEmpty());
}

// One line four times slower, M = 4: even shares take 1.5 V / b, none for the slow one V / b.
TEST(SharesByLinks, TheSlowOwnsNothingWhereThatIsFastest) {
  const auto rate = [](int from, int to) { return from == 2 || to == 2 ? 25 : 100; };
  const std::vector<std::uint32_t> shares = shares_by_links(links_of(4, rate), 4);
  ASSERT_EQ(shares.size(), 4u);
  EXPECT_EQ(shares[2], 0u);
  for (const int m : {0, 1, 3}) EXPECT_NEAR(shares[static_cast<std::size_t>(m)], 4096 / 3, 2);
}

// Lines of 100, 100 and 80: f_i = T b_i - 1 of sum 1, so T = 4 / 2.8 and f = 3/7, 3/7, 1/7.
TEST(SharesByLinks, FillTheLinesAlike) {
  const auto rate = [](int from, int to) { return from == 1 || to == 1 ? 80 : 100; };
  EXPECT_THAT(shares_by_links(links_of(3, rate), 3), ElementsAre(1755, 585, 1755));
}

// The same lines, of which the first may own nothing: f_i = T b_i - 1 of sum 1, T = 3 / 1.8 = 5/3.
TEST(SharesByLinks, LeaveOutWhoMayOwnNothing) {
  const auto rate = [](int from, int to) { return from == 1 || to == 1 ? 80 : 100; };
  const std::vector<std::uint32_t> owners = {0, 1, 1};
  EXPECT_THAT(shares_by_links(links_of(3, rate), 3, owners), ElementsAre(0, 1365, 2731));
}

TEST(GroupsByLinks, AreCutWhereRatesFallMost) {
  const auto pairs = [](int from, int to) { return from / 2 == to / 2 ? 1000 : 100; };
  EXPECT_THAT(groups_by_links(links_of(4, pairs), 4), ElementsAre(0, 0, 2, 2));
  const auto odd = [](int from, int to) {
    return from % 2 == to % 2 ? 1000 : from > to ? 90 : 400;
  };
  EXPECT_THAT(groups_by_links(links_of(5, odd), 5), ElementsAre(0, 1, 0, 1, 0)) << "the worse way";
  const auto one_apart = [](int from, int to) { return from == 1 || to == 1 ? 10 : 500; };
  EXPECT_THAT(groups_by_links(links_of(3, one_apart), 3), ElementsAre(0, 1, 0));
}

TEST(GroupsByLinks, AreNoneWithoutAGap) {
  EXPECT_THAT(groups_by_links(links_of(4, [](int, int) { return 100; }), 4), IsEmpty());
  const auto near = [](int from, int to) { return from / 2 == to / 2 ? 299 : 100; };
  EXPECT_THAT(groups_by_links(links_of(4, near), 4), IsEmpty());
  // One link is slow, but the other two join all three: there is nothing to cut.
  const auto chain = [](int from, int to) { return from + to == 2 ? 10 : 1000; };
  EXPECT_THAT(groups_by_links(links_of(3, chain), 3), IsEmpty());
}

}  // namespace
}  // namespace isthmus::this_file
