// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>

#include "isthmus/errors.h"
#include "session/site/site_session.h"

namespace isthmus::app::this_file {
namespace {

const std::vector<std::string> kSites = {"east", "west"};

HelloNote site(const std::string& run_id, std::vector<std::pair<std::string, std::string>> common) {
  return {.run_id = run_id, .resumes = false, .held = {}, .common = std::move(common)};
}
HelloNote resuming(std::vector<HeldCheckpoint> held) {
  return {.run_id = "new", .resumes = true, .held = std::move(held), .common = {}};
}

/// What agree_on_start says against it; empty: nothing.
std::string refusal(const std::vector<HelloNote>& facts) {
  try {
    static_cast<void>(agree_on_start(kSites, facts));
    return {};
  } catch (const ConfigError& error) {
    return error.what();
  }
}

TEST(SiteStart, ANewRunHasTheFirstSitesId) {
  const SiteStart start =
      agree_on_start(kSites, {site("a", {{"outer.H", "5"}}), site("b", {{"outer.H", "5"}})});
  EXPECT_EQ(start.run_id, "a");
  EXPECT_EQ(start.resume_after, std::nullopt);
}

TEST(SiteStart, DifferencesAreNamedKeyByKeyWithBothValues) {
  const std::string text =
      refusal({site("a", {{"outer.H", "5"}, {"inner.lr", "0.1"}, {"train.steps", "10"}}),
               site("b", {{"outer.H", "7"}, {"train.steps", "10"}, {"data c.txt", "9 bytes"}})});
  EXPECT_THAT(text, testing::HasSubstr("outer.H is 5 at east and 7 at west"));
  EXPECT_THAT(text, testing::HasSubstr("inner.lr is 0.1 at east and absent at west"));
  EXPECT_THAT(text, testing::HasSubstr("data c.txt is absent at east and 9 bytes at west"));
  EXPECT_THAT(text, testing::Not(testing::HasSubstr("train.steps")));
}

// Values of a trainer are compared among trainers of one kind; the run's own values by all.
TEST(SiteStart, UnlikeTrainersDoNotCompareTheirOwnValues) {
  const auto torch = [](const std::string& momentum, const std::string& H) {
    return site("t", {{"outer.H", H}, {"trainer", "torch"}, {"trainer.momentum", momentum}});
  };
  const HelloNote own = site("o", {{"outer.H", "5"}, {"inner.lr", "0.1"}, {"data", "1 files"}});
  EXPECT_EQ(refusal({own, torch("0.9", "5")}), "");
  EXPECT_EQ(refusal({torch("0.9", "5"), own}), "");
  EXPECT_THAT(refusal({own, torch("0.9", "7")}), testing::HasSubstr("outer.H is 5"));
  EXPECT_THAT(refusal({torch("0.9", "5"), torch("0.8", "5")}),
              testing::HasSubstr("trainer.momentum is 0.9 at east and 0.8 at west"));
  try {
    check_alike({"east", "west", "north"}, {own, torch("0.9", "5"), torch("0.8", "5")});
    FAIL() << "two of one kind differ";
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("0.9 at west and 0.8 at north"));
  }
}

TEST(SiteStart, DataDifferInContentsCountAndOrder) {
  const auto common = [](const std::vector<DataFile>& files) {
    std::vector<std::pair<std::string, std::string>> values;
    append_data(files, values);
    return values;
  };
  const DataFile a{"x/part.txt", 5, "aa"};
  const DataFile b{"y/part.txt", 5, "bb"};
  EXPECT_EQ(refusal({site("r", common({a, b})), site("s", common({{"z/part.txt", 5, "aa"}, b}))}),
            "");
  EXPECT_THAT(refusal({site("r", common({a, b})), site("s", common({a, a}))}),
              testing::HasSubstr("data[1] part.txt is 5 bytes of SHA-256 bb at east"));
  EXPECT_NE(refusal({site("r", common({a, b})), site("s", common({b, a}))}), "");
  EXPECT_NE(refusal({site("r", common({a, b})), site("s", common({a}))}), "");
  const DataFile narrow{"x/ids.bin", 8, "cc", "4 ids of u16"};
  const DataFile wide{"x/ids.bin", 8, "cc", "2 ids of u32"};
  EXPECT_THAT(refusal({site("r", common({narrow})), site("s", common({wide}))}),
              testing::AllOf(testing::HasSubstr("read as 4 ids of u16 at east"),
                             testing::HasSubstr("read as 2 ids of u32")));
  DataFile lies = narrow;
  lies.reading += kAsItLies;
  EXPECT_EQ(refusal({site("r", common({narrow})), site("s", common({lies}))}), "");
  const std::vector<DataFile> many(100, a);
  std::vector<DataFile> other = many;
  other[70].sha256 = "cc";
  EXPECT_EQ(common(many).size(), 1U);
  EXPECT_THAT(refusal({site("r", common(many)), site("s", common(other))}),
              testing::HasSubstr("data is 100 files"));
}

TEST(SiteStart, GoesOnFromTheNewestThatIsTheSameEverywhere) {
  const HeldCheckpoint at_10{10, "r", "x"};
  const HeldCheckpoint at_20{20, "r", "y"};
  const HeldCheckpoint at_20_unlike{20, "r", "z"};
  const SiteStart start = agree_on_start(
      kSites, {resuming({at_20, at_10}), resuming({{30, "r", "w"}, at_20_unlike, at_10})});
  EXPECT_EQ(start.resume_after, 10);
  EXPECT_EQ(start.run_id, "r");
  EXPECT_EQ(
      agree_on_start(kSites, {resuming({at_10, at_20}), resuming({at_20, at_10})}).resume_after,
      20);
}

TEST(SiteStart, WithoutACheckpointAnywhereItIsANewRun) {
  EXPECT_EQ(agree_on_start(kSites, {resuming({}), resuming({})}).resume_after, std::nullopt);
}

TEST(SiteStart, CheckpointsThatAreNotEverywhereAreRefusedWithTheSteps) {
  EXPECT_THAT(refusal({resuming({{10, "r", "x"}, {20, "r", "y"}}), resuming({})}),
              testing::HasSubstr("east: steps 10, 20; west: none"));
}

// All were cut off while they laid down the first one.
TEST(SiteStart, WhereSomeLackTheFirstCheckpointTheRunBeginsAnew) {
  constexpr std::int64_t kInterval = 20;
  const auto start = [&](const std::vector<HelloNote>& facts) {
    return agree_on_start(kSites, facts, std::nullopt, kInterval);
  };
  const HelloNote first = resuming({{20, "r", "y"}});
  for (const auto& facts : {std::vector{first, resuming({})}, std::vector{resuming({}), first}}) {
    EXPECT_EQ(start(facts).resume_after, std::nullopt);
    EXPECT_EQ(start(facts).run_id, "r") << "the same run";
    EXPECT_THROW(static_cast<void>(agree_on_start(kSites, facts)), ConfigError)
        << "who knows how far the start is?";
  }
  EXPECT_EQ(start({first, first}).resume_after, 20);
  EXPECT_EQ(start({first, resuming({})}).given_up, 20);
  EXPECT_EQ(start({first, first}).given_up, std::nullopt);
  HelloNote unreadable = first;
  unreadable.unreadable = true;  // perhaps a later one
  for (const HelloNote& more : {resuming({{40, "r", "z"}}), resuming({{12, "r", "of a stop"}}),
                                resuming({{20, "r", "y"}, {40, "r", "z"}}), unreadable}) {
    EXPECT_THROW(static_cast<void>(start({more, resuming({})})), ConfigError);
    EXPECT_THROW(static_cast<void>(start({resuming({}), more})), ConfigError);
  }
  EXPECT_THROW(static_cast<void>(start({first, resuming({{20, "r", "z"}})})), ConfigError)
      << "two first ones that differ";
}

// A site that was killed before it had laid down the start has nothing; one that has done so may
// have come to the first checkpoint.
TEST(SiteStart, WhereSomeLackTheStartTheRunBeginsAnew) {
  constexpr std::int64_t kInterval = 20;
  const HeldCheckpoint at_0{0, "r", "x"}, at_20{20, "r", "y"};
  const auto start = [&](const std::vector<HelloNote>& facts) {
    return agree_on_start(kSites, facts, std::nullopt, kInterval);
  };
  for (const auto& facts :
       {std::vector{resuming({at_0}), resuming({})}, std::vector{resuming({}), resuming({at_0})}}) {
    EXPECT_EQ(start(facts).given_up, 0);
    EXPECT_EQ(start(facts).run_id, "r");
    EXPECT_EQ(agree_on_start(kSites, facts).given_up, 0) << "wherever the next one is";
  }
  EXPECT_EQ(start({resuming({at_20, at_0}), resuming({})}).given_up, 20);
  EXPECT_EQ(start({resuming({at_20, at_0}), resuming({at_0})}).resume_after, 0);
  EXPECT_EQ(start({resuming({at_20, at_0}), resuming({at_0, at_20})}).resume_after, 20);
  EXPECT_THROW(static_cast<void>(start({resuming({at_0}), resuming({{0, "r", "z"}})})), ConfigError)
      << "two starts that differ";
  EXPECT_THROW(static_cast<void>(start({resuming({{40, "r", "z"}, at_0}), resuming({})})),
               ConfigError);
}

// A site that died before its first checkpoint holds the start; a run that went back there would
// drop what the others have done since.
TEST(SiteStart, OneThatHoldsTheStartAloneCostsNoLaterCheckpoint) {
  const HeldCheckpoint at_0{0, "r", "s"};
  const HeldCheckpoint at_20{20, "r", "x"};
  const HeldCheckpoint at_40{40, "r", "y"};
  const std::vector<HelloNote> facts = {resuming({at_0, at_20, at_40}), resuming({at_0}),
                                        resuming({at_0, at_20, at_40})};
  const std::vector<std::string> sites = {"east", "west", "north"};
  const SiteStart start = agree_on_start(sites, facts, 2, 20);
  EXPECT_EQ(start.resume_after, 40);
  EXPECT_EQ(start.without, std::vector<std::size_t>{1});
  const auto of_two = [&](std::int64_t interval) {
    return agree_on_start(kSites, {facts[0], facts[1]}, std::nullopt, interval);
  };
  EXPECT_THROW(static_cast<void>(of_two(20)), ConfigError);
  EXPECT_EQ(of_two(100).resume_after, 0) << "within the first interval";
}

TEST(SiteStart, OneThatResumesAndOneThatDoesNotAreRefused) {
  HelloNote fresh = resuming({});
  fresh.resumes = false;
  EXPECT_THAT(refusal({resuming({{10, "r", "x"}}), fresh}),
              testing::HasSubstr("site east was started with --resume"));
  EXPECT_THAT(refusal({fresh, resuming({{10, "r", "x"}})}),
              testing::HasSubstr("site west was started with --resume"));
}

// As one that was joining when the first site died: it joins again.
TEST(SiteStart, OneThatHoldsNothingIsLeftToJoinWhereEnoughAreThere) {
  const std::vector<std::string> sites = {"east", "west", "north"};
  const HelloNote at_10 = resuming({{10, "r", "x"}});
  for (const HelloNote& empty : {resuming({}), site("b", {})}) {
    const SiteStart start = agree_on_start(sites, {at_10, at_10, empty}, 2);
    EXPECT_EQ(start.resume_after, 10);
    EXPECT_EQ(start.run_id, "r");
    EXPECT_THAT(start.without, testing::ElementsAre(2U));
    EXPECT_THROW(static_cast<void>(agree_on_start(sites, {at_10, at_10, empty}, 3)), ConfigError);
    EXPECT_THROW(static_cast<void>(agree_on_start(sites, {empty, at_10, at_10}, 1)), ConfigError)
        << "whose state would they take over?";
  }
  EXPECT_THROW(
      static_cast<void>(agree_on_start(sites, {at_10, at_10, resuming({{20, "r", "y"}})}, 2)),
      ConfigError)
      << "what it has would be lost";
  EXPECT_THAT(agree_on_start(sites, {resuming({}), site("b", {}), site("c", {})}, 1).without,
              testing::IsEmpty());
}

// `launch` starts a site again with --resume, also one that died before the run had begun.
TEST(SiteStart, OneThatResumesWithNothingBeginsWithThoseThatStartAnew) {
  HelloNote fresh = site("b", {});
  EXPECT_EQ(agree_on_start(kSites, {resuming({}), fresh}).resume_after, std::nullopt);
  EXPECT_EQ(agree_on_start(kSites, {fresh, resuming({})}).run_id, "b");
}

}  // namespace
}  // namespace isthmus::app::this_file
