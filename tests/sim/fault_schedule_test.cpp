// SPDX-License-Identifier: Apache-2.0
// Faults of a configuration against closed forms and a walk in small steps.
#include "sim/fault_schedule.h"

#include <gtest/gtest.h>

#include <chrono>

#include "core/base/rng.h"
#include "isthmus/errors.h"
#include "sim/link_queue.h"

namespace isthmus::this_file {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr std::int64_t kMbit = 1'000'000;

TimePoint at(Duration time) { return TimePoint(time); }

FaultConfig link_fault(std::string kind, std::string a, std::string b, Duration begin,
                       Duration lasts, double rate = 0) {
  FaultConfig fault;
  fault.kind = std::move(kind);
  fault.a = std::move(a);
  fault.b = std::move(b);
  fault.at = begin;
  fault.lasts = lasts;
  fault.bits_per_s = rate;
  return fault;
}

FaultConfig site_fault(std::string kind, std::string site, Duration begin, Duration lasts,
                       double pace = 1) {
  FaultConfig fault;
  fault.kind = std::move(kind);
  fault.site = std::move(site);
  fault.at = begin;
  fault.lasts = lasts;
  fault.pace = pace;
  return fault;
}

const std::vector<std::string> kSites = {"a", "b", "c"};

std::vector<DirectedLink> links_at(std::int64_t rate) {
  return std::vector<DirectedLink>(kSites.size() * kSites.size(), {.bits_per_s = rate});
}

TEST(PaceProfile, APauseDelaysByItsLength) {
  const PaceProfile pace =
      fault_pace({site_fault("pause", "a", seconds(10), seconds(300))}, "a", Duration{0});
  EXPECT_EQ(pace.done(at(seconds(0)), seconds(10)), at(seconds(10))) << "done when it begins";
  EXPECT_EQ(pace.done(at(seconds(4)), seconds(7)), at(seconds(311)));
  EXPECT_EQ(pace.done(at(seconds(100)), seconds(7)), at(seconds(317))) << "begun while it lasts";
  EXPECT_EQ(pace.done(at(seconds(310)), seconds(7)), at(seconds(317)));
  EXPECT_EQ(pace.stood_still(at(seconds(4)), at(seconds(311))), seconds(300));
  EXPECT_EQ(pace.stood_still(at(seconds(20)), at(seconds(30))), seconds(10));
  EXPECT_EQ(pace.stood_still(at(seconds(310)), at(seconds(400))), Duration{0});
}

TEST(PaceProfile, ASlowStretchTakesItsShareAndTheSlowestOfSeveralCounts) {
  const PaceProfile pace = fault_pace({site_fault("slow", "a", seconds(10), seconds(20), 0.5),
                                       site_fault("slow", "a", seconds(20), seconds(4), 0.25),
                                       site_fault("slow", "b", seconds(0), seconds(99), 0.1)},
                                      "a", Duration{0});
  // From 10 to 20 five seconds' work, to 24 one, to 30 three.
  EXPECT_EQ(pace.done(at(seconds(10)), seconds(5)), at(seconds(20)));
  EXPECT_EQ(pace.done(at(seconds(10)), seconds(6)), at(seconds(24)));
  EXPECT_EQ(pace.done(at(seconds(10)), seconds(10)), at(seconds(31)));
}

TEST(PaceProfile, EqualsAWalkInMilliseconds) {
  const Rng rng(7, Stream::kSim);
  std::uint64_t drawn = 0;
  const auto draw = [&](std::int64_t bound) {
    return static_cast<std::int64_t>(rng.below(static_cast<std::uint64_t>(bound), drawn++));
  };
  for (int repetition = 0; repetition < 200; ++repetition) {
    std::vector<FaultConfig> faults;
    for (int i = 0; i < 4; ++i) {
      const milliseconds begin(draw(2000));
      const milliseconds lasts(1 + draw(500));
      const double paces[] = {0.25, 0.5, 1};
      const bool pause = draw(2) == 0;
      faults.push_back(site_fault(pause ? "pause" : "slow", "a", begin, lasts, paces[draw(3)]));
    }
    const PaceProfile pace = fault_pace(faults, "a", Duration{0});
    const auto begin = draw(2500);
    const auto work = 1 + draw(900);
    double done = 0;
    std::int64_t time = begin;
    for (; done < static_cast<double>(work); ++time) {
      double speed = 1;
      for (const FaultConfig& fault : faults) {
        const bool holds =
            fault.at <= milliseconds(time) && milliseconds(time) < fault.at + fault.lasts;
        if (holds) speed = std::min(speed, fault.kind == "pause" ? 0 : fault.pace);
      }
      done += speed;
    }
    // The walk ends with a whole millisecond.
    const TimePoint found = pace.done(at(milliseconds(begin)), milliseconds(work));
    EXPECT_LE(found, at(milliseconds(time))) << "repetition " << repetition;
    EXPECT_GT(found, at(milliseconds(time - 1))) << "repetition " << repetition;
  }
}

TEST(PaceProfile, RefusesWhatNeverEndsOrGoesBack) {
  EXPECT_THROW(PaceProfile({{at(seconds(1)), 0}}), ConfigError);
  EXPECT_THROW(PaceProfile({{at(seconds(1)), 1.5}, {at(seconds(2)), 1}}), ConfigError);
  EXPECT_THROW(PaceProfile({{at(seconds(1)), 0}, {at(seconds(1)), 1}}), ConfigError);
}

TEST(FaultRates, ACutStopsBothDirectionsOfItsLinkAlone) {
  const auto rates = fault_rates({link_fault("cut", "b", "a", seconds(5), seconds(2))},
                                 links_at(8 * kMbit), kSites, Duration{0});
  ASSERT_EQ(rates.size(), 2U);
  for (const auto& pair : {std::pair(0, 1), std::pair(1, 0)}) {
    const RateProfile& profile = rates.at(pair);
    EXPECT_EQ(profile.rate_at(at(milliseconds(4999))), 8 * kMbit);
    EXPECT_EQ(profile.rate_at(at(seconds(5))), 0);
    EXPECT_EQ(profile.rate_at(at(milliseconds(6999))), 0);
    EXPECT_EQ(profile.rate_at(at(seconds(7))), 8 * kMbit);
  }
}

TEST(FaultRates, APauseStopsAllLinksOfItsSiteAndStarsMeanEverySite) {
  const auto links = links_at(kMbit);
  const auto paused =
      fault_rates({site_fault("pause", "b", seconds(1), seconds(1))}, links, kSites, Duration{0});
  EXPECT_EQ(paused.size(), 4U);
  EXPECT_FALSE(paused.contains({0, 2}));
  const auto all = fault_rates({link_fault("cut", "*", "*", seconds(1), seconds(1))}, links, kSites,
                               Duration{0});
  EXPECT_EQ(all.size(), 6U);
  const auto of_c = fault_rates({link_fault("cut", "*", "c", seconds(1), seconds(1))}, links,
                                kSites, Duration{0});
  EXPECT_EQ(of_c.size(), 4U);
  EXPECT_FALSE(of_c.contains({0, 1}));
}

TEST(FaultRates, OfSeveralTheLowestCounts) {
  const auto rates = fault_rates({link_fault("rate", "a", "b", seconds(0), seconds(10), 2e6),
                                  link_fault("rate", "*", "*", seconds(4), seconds(20), 3e6),
                                  link_fault("cut", "a", "*", seconds(8), seconds(1))},
                                 links_at(9 * kMbit), kSites, Duration{0});
  const RateProfile& ab = rates.at({0, 1});
  const std::vector<RateProfile::Step> expected = {
      {at(seconds(0)), 2 * kMbit}, {at(seconds(4)), 2 * kMbit},  {at(seconds(8)), 0},
      {at(seconds(9)), 2 * kMbit}, {at(seconds(10)), 3 * kMbit}, {at(seconds(24)), 9 * kMbit}};
  EXPECT_EQ(ab.steps(), expected);
}

TEST(FaultRates, ARunThatGoesOnHasWhatIsLeftOfThem) {
  const auto rates = fault_rates({link_fault("cut", "a", "b", seconds(5), seconds(2)),
                                  link_fault("cut", "b", "c", seconds(1), seconds(2))},
                                 links_at(kMbit), kSites, seconds(6));
  EXPECT_FALSE(rates.contains({1, 2})) << "over";
  const std::vector<RateProfile::Step> expected = {{at(seconds(0)), 0}, {at(seconds(1)), kMbit}};
  EXPECT_EQ(rates.at({0, 1}).steps(), expected);
  const PaceProfile pace =
      fault_pace({site_fault("pause", "a", seconds(5), seconds(2))}, "a", seconds(6));
  EXPECT_EQ(pace.done(at(seconds(0)), seconds(1)), at(seconds(2)));
}

// A fault that lies elsewhere moves no frame, not by a nanosecond.
TEST(FaultRates, FramesBeforeAndAfterAFaultLeaveAsWithoutIt) {
  const DirectedLink link{.bits_per_s = 7'777'777};
  LinkQueue plain(link, {}, 1, 0);
  LinkQueue with_fault(link, {}, 1, 0);
  const auto rates = fault_rates({link_fault("cut", "a", "b", seconds(500), seconds(2))},
                                 std::vector<DirectedLink>(4, link), {"a", "b"}, Duration{0});
  with_fault.set_profile(rates.at({0, 1}));
  const Rng rng(3, Stream::kSim);
  TimePoint now{};
  for (std::uint64_t i = 0; i < 2000; ++i) {
    const std::uint64_t bytes = 1 + rng.below(300'000, i);
    ASSERT_EQ(with_fault.send(now, bytes).departure, plain.send(now, bytes).departure) << i;
    now += milliseconds(rng.below(200, i, 1));
    if (i == 1000) now = at(seconds(10'000));
  }
}

TEST(FaultRates, ACutWithinABusyTimeDelaysWhatFollowsByItsLength) {
  const DirectedLink link{.bits_per_s = kMbit};
  LinkQueue plain(link, {}, 1, 0);
  LinkQueue cut(link, {}, 1, 0);
  const TimePoint begin = at(milliseconds(2250));  // within the fifth frame
  cut.set_profile(RateProfile::outage(kMbit, begin, begin + seconds(300)));
  for (int i = 0; i < 10; ++i) {
    const TimePoint undisturbed = plain.send(at(Duration{0}), 62'500).departure;  // half a second
    const Duration delay = undisturbed > begin ? seconds(300) : seconds(0);
    EXPECT_EQ(cut.send(at(Duration{0}), 62'500).departure, undisturbed + delay) << i;
  }
}

}  // namespace
}  // namespace isthmus::this_file
