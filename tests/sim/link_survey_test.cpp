// SPDX-License-Identifier: Apache-2.0
// Links of known rate and round trip are measured in virtual time, where what comes out must be
// what was put in; peers that vanish, lie or flood end it by name.
#include "transport/links/probe/link_survey.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "isthmus/errors.h"
#include "sim/emulated_transport.h"
#include "sim/world.h"
#include "transport/wire/frame.h"
#include "transport/wire/in_process_transport.h"

namespace isthmus::this_file {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::ElementsAre;
using testing::HasSubstr;

// The last arrival of a transfer and the one that begins its second half stand for whole frames of
// at most 20 ms, in at least a second; headers are 1.7 % of the smallest frames.
constexpr double kRateTolerance = 0.04;

using Links = std::vector<std::vector<DirectedLink>>;  // [from][to]

/// Members behind emulated links.
std::vector<std::unique_ptr<Transport>> members_of(Runtime& runtime, const Links& links) {
  std::vector<std::unique_ptr<Transport>> members;
  for (auto& below : make_in_process_transports(runtime, static_cast<int>(links.size()))) {
    const std::size_t self = members.size();
    members.push_back(emulate_links(runtime, std::move(below), {.links = links[self], .seed = 5}));
  }
  return members;
}

SurveyOptions options_of(int member) {
  SurveyOptions options;
  options.plan.budget = seconds(3);
  options.name = std::string(1, static_cast<char>('a' + member));
  return options;
}

struct Outcome {
  std::vector<Survey> surveys;
  std::vector<std::string> errors;  // by member
  Duration took{0};
};

using Body = std::function<void(Runtime&, Transport&)>;

/// All members survey in virtual time, but those with a body of their own.
Outcome survey(const Links& links, const std::map<int, Body>& others = {},
               const std::function<void(int, SurveyOptions&)>& tweak = {}) {
  Outcome outcome;
  outcome.surveys.resize(links.size());
  outcome.errors.resize(links.size());
  SimWorld world(1);
  world.run([&] {
    auto members = members_of(world, links);
    std::vector<std::unique_ptr<Task>> tasks;
    for (std::size_t m = 0; m < members.size(); ++m) {
      tasks.push_back(world.spawn("member", [&, m] {
        const int member = static_cast<int>(m);
        try {
          if (const auto other = others.find(member); other != others.end()) {
            other->second(world, *members[m]);
          } else {
            SurveyOptions options = options_of(member);
            if (tweak) tweak(member, options);
            outcome.surveys[m] = survey_links(*members[m], world, options);
          }
        } catch (const PeerError& error) {
          outcome.errors[m] = error.what();
        }
        members[m]->close();
      }));
    }
    for (const auto& task : tasks) task->join();
    outcome.took = world.clock().now().time_since_epoch();
    members.clear();
  });
  return outcome;
}

Links between_two(const DirectedLink& up, const DirectedLink& down) {
  return {{{}, up}, {down, {}}};
}

double ms(Duration duration) { return std::chrono::duration<double, std::milli>(duration).count(); }

class LinkOfKnownRate : public testing::TestWithParam<std::tuple<double, int>> {};

TEST_P(LinkOfKnownRate, IsMeasuredEachWayApart) {
  const auto [mbit, rtt_ms] = GetParam();
  const DirectedLink up{.bits_per_s = std::llround(mbit * 1e6),
                        .one_way = Duration(milliseconds(rtt_ms)) / 2};
  DirectedLink down = up;
  down.bits_per_s = up.bits_per_s / 4;
  const Outcome outcome = survey(between_two(up, down));
  EXPECT_THAT(outcome.errors, ElementsAre("", ""));
  ASSERT_EQ(outcome.surveys[0].pairs.size(), 1u);
  EXPECT_EQ(outcome.surveys[0].pairs, outcome.surveys[1].pairs);
  const PairMeasurement& pair = outcome.surveys[0].pairs[0];
  EXPECT_NEAR(pair.up.bits_per_s, mbit * 1e6, kRateTolerance * mbit * 1e6);
  EXPECT_NEAR(pair.down.bits_per_s, mbit * 1e6 / 4, kRateTolerance * mbit * 1e6 / 4);
  // An echo and its answer are frames of 88 bytes, each of which leaves at its own end's rate.
  const double on_the_line = 88 * 8 * (1 + 4) / (mbit * 1e3);
  EXPECT_NEAR(ms(pair.echo.p50), rtt_ms + on_the_line, 1e-3);
  EXPECT_LE(ms(pair.echo.jitter), 0.01);
  EXPECT_EQ(pair.up.streams, 0u) << "no gauge: not measured";
  EXPECT_FALSE(pair.up.retransmits.has_value());
  EXPECT_FALSE(pair.up.loaded_rtt.has_value());
  EXPECT_LE(outcome.took, survey_time(2, options_of(0).plan) + seconds(20));
}

INSTANTIATE_TEST_SUITE_P(Links, LinkOfKnownRate,
                         testing::Combine(testing::Values(1.0, 20.0, 1000.0),
                                          testing::Values(1, 50, 300)));

TEST(LinkSurvey, JitterIsThatOfTheLink) {
  DirectedLink link{.bits_per_s = 100'000'000, .one_way = milliseconds(20)};
  link.jitter = milliseconds(8);
  const Outcome outcome = survey(between_two(link, link), {}, [](int, SurveyOptions& options) {
    options.plan.budget = seconds(8);
  });
  EXPECT_THAT(outcome.errors, ElementsAre("", ""));
  const EchoSummary& echo = outcome.surveys[0].pairs.at(0).echo;
  EXPECT_GE(echo.samples, 15u);
  EXPECT_NEAR(ms(echo.jitter), 8, 4) << "twenty samples";
}

TEST(LinkSurvey, EveryMemberOfFourHearsOfEveryPairAndOnlyOneMeasures) {
  const DirectedLink link{.bits_per_s = 10'000'000, .one_way = milliseconds(5)};
  Links links(4, std::vector<DirectedLink>(4, link));
  links[1][3].bits_per_s = 2'000'000;
  std::vector<std::string> said;
  const Outcome outcome = survey(links, {}, [&](int member, SurveyOptions& options) {
    options.plan.budget = seconds(1);
    options.on_result = [&said, member](const PairMeasurement& pair, std::size_t done,
                                        std::size_t all) {
      EXPECT_EQ(all, 6u);
      if (member == 0) said.push_back(fmt::format("{}{} {}", pair.a.value(), pair.b.value(), done));
    };
  });
  EXPECT_THAT(outcome.errors, ElementsAre("", "", "", ""));
  for (const Survey& each : outcome.surveys) {
    EXPECT_EQ(each.pairs, outcome.surveys[0].pairs);
    EXPECT_THAT(each.names, ElementsAre("a", "b", "c", "d"));
  }
  const auto order = survey_pairs(4);
  ASSERT_EQ(outcome.surveys[0].pairs.size(), order.size());
  for (std::size_t i = 0; i < order.size(); ++i) {
    const PairMeasurement& pair = outcome.surveys[0].pairs[i];
    EXPECT_EQ(std::pair(pair.a, pair.b), order[i]);
    const bool slow = pair.a == WorkerId(1) && pair.b == WorkerId(3);
    EXPECT_NEAR(pair.up.bits_per_s, slow ? 2e6 : 1e7, kRateTolerance * (slow ? 2e6 : 1e7));
    EXPECT_NEAR(pair.down.bits_per_s, 1e7, kRateTolerance * 1e7);
  }
  EXPECT_EQ(said.size(), 6u);
  EXPECT_GE(outcome.took, 6 * 2 * seconds(1)) << "one pair after another";
}

// The last pair is (0, 1), and its result takes 150 ms to member 2, whom member 1 is near to.
TEST(LinkSurvey, WhoeverHearsTheLastResultLateMissesNobodyWhoHasLeft) {
  const DirectedLink near{.bits_per_s = 10'000'000, .one_way = milliseconds(10)};
  Links links(3, std::vector<DirectedLink>(3, near));
  links[0][2].one_way = links[2][0].one_way = milliseconds(150);
  ASSERT_EQ(survey_pairs(3).back(), std::pair(WorkerId(0), WorkerId(1)));
  const Outcome outcome = survey(links);
  EXPECT_THAT(outcome.errors, ElementsAre("", "", ""));
  for (const Survey& each : outcome.surveys) {
    ASSERT_EQ(each.pairs.size(), 3u);
    EXPECT_EQ(each.pairs, outcome.surveys[0].pairs);
  }
}

TEST(LinkSurvey, WhoeverOnlyHearsTheLastPairIsToldThatItsSecondIsGone) {
  const DirectedLink link{.bits_per_s = 10'000'000, .one_way = milliseconds(10)};
  const Outcome outcome = survey(Links(3, std::vector<DirectedLink>(3, link)),
                                 {{1, [](Runtime& runtime, Transport& end) {
                                     SurveyOptions options = options_of(1);
                                     options.say = [&end](const std::string& words) {
                                       if (!words.starts_with("b -> a: "))
                                         return;  // its turn in the last pair
                                       end.close();
                                       throw PeerError("dead");
                                     };
                                     (void)survey_links(end, runtime, options);
                                   }}});
  EXPECT_THAT(outcome.errors, ElementsAre(HasSubstr("site b is gone"), "dead",
                                          HasSubstr("site a has stopped: site b is gone")));
}

const DirectedLink kLink{.bits_per_s = 10'000'000, .one_way = milliseconds(5)};

TEST(LinkSurvey, APeerThatVanishesIsNamedAtBothEndsOfWhatIsLeft) {
  Links links(3, std::vector<DirectedLink>(3, kLink));
  const Outcome outcome = survey(
      links, {{2, [](Runtime& runtime, Transport& end) {
                 for (int to = 0; to < 2; ++to) {
                   end.send(WorkerId(to), probe_frame(ProbeHello{
                                              .budget = seconds(3), .streams = 16, .name = "c"}));
                 }
                 runtime.sleep_until(TimePoint(milliseconds(100)));
               }}});
  EXPECT_THAT(outcome.errors[0], HasSubstr("site c is gone"));
  EXPECT_THAT(outcome.errors[1],
              testing::AnyOf(HasSubstr("site c is gone"), HasSubstr("has stopped")));
}

/// What member 0 says of a member 1 that greets and then does this.
std::string error_about(const std::function<void(Runtime&, Transport&)>& body) {
  return survey(between_two(kLink, kLink),
                {{1,
                  [&](Runtime& runtime, Transport& end) {
                    end.send(WorkerId(0), probe_frame(ProbeHello{
                                              .budget = seconds(3), .streams = 16, .name = "b"}));
                    body(runtime, end);
                  }}})
      .errors[0];
}

/// Answers like a member, but for what `change` makes of the answer.
void answer_with(Transport& end, const std::function<ProbeMessage(const ProbeMessage&)>& answer) {
  while (true) {
    const auto received = end.receive(kNever);
    if (!received) return;
    const auto frame = parse_frame(*received->bytes);
    const auto message = read_probe(frame->payload);
    if (std::holds_alternative<ProbeStop>(*message)) return;
    if (std::holds_alternative<ProbeHello>(*message)) continue;
    end.send(WorkerId(0), probe_frame(answer(*message)));
  }
}

TEST(LinkSurvey, ASilentPeerIsNamedInBoundedTime) {
  EXPECT_THAT(error_about([](Runtime& runtime, Transport&) {
                runtime.sleep_until(TimePoint(std::chrono::minutes(30)));
              }),
              HasSubstr("site b has said nothing for 30 s"));
}

TEST(LinkSurvey, APeerThatNeverGreetsIsNamed) {
  const Outcome outcome = survey(between_two(kLink, kLink),
                                 {{1, [](Runtime& runtime, Transport&) {
                                     runtime.sleep_until(TimePoint(std::chrono::minutes(30)));
                                   }}});
  EXPECT_THAT(outcome.errors[0], HasSubstr("member 1 does not say how it wants to measure"));
}

TEST(LinkSurvey, APeerThatClaimsMoreThanWasSentIsNamed) {
  EXPECT_THAT(error_about([](Runtime&, Transport& end) {
                answer_with(end, [](const ProbeMessage& message) -> ProbeMessage {
                  if (const auto* ping = std::get_if<ProbePing>(&message)) {
                    return ProbePong{.pair = ping->pair, .number = ping->number};
                  }
                  return ProbeTaken{.pair = 0, .transfer = 0, .bytes = 1ull << 60};
                });
              }),
              HasSubstr("site b sends a receipt for a receipt of more than 0"));
}

/// What member 0 says of a member 1 that tells this of each transfer.
std::string error_about_report(const std::function<Arrivals(std::uint64_t bytes)>& arrivals) {
  return error_about([&](Runtime&, Transport& end) {
    std::uint64_t bytes = 0;
    answer_with(end, [&](const ProbeMessage& message) -> ProbeMessage {
      if (const auto* ping = std::get_if<ProbePing>(&message)) {
        return ProbePong{.pair = ping->pair, .number = ping->number};
      }
      if (std::holds_alternative<ProbeLoad>(message)) {
        return ProbeTaken{.pair = 0, .transfer = 0, .bytes = bytes += 4096};
      }
      const auto* done = std::get_if<ProbeEnd>(&message);
      return ProbeReport{.pair = 0, .transfer = 0, .arrivals = arrivals(done->bytes)};
    });
  });
}

TEST(LinkSurvey, AReportOfANegativeTimeIsNamed) {
  EXPECT_THAT(error_about_report([](std::uint64_t bytes) {
                return Arrivals{bytes, seconds(-1), 1, Duration(-1)};
              }),
              HasSubstr("a report that cannot be"));
}

// Nobody takes such a rate as a result: it must not leave the site that was told it.
TEST(LinkSurvey, AReportOfARateThatNoLinkHasIsNamed) {
  EXPECT_THAT(error_about_report([](std::uint64_t bytes) {
                return Arrivals{bytes, seconds(1), bytes, Duration(1)};
              }),
              testing::AllOf(HasSubstr("site b sends a report that cannot be"),
                             HasSubstr("in 1 ns, a rate of")));
}

TEST(LinkSurvey, NoFrameOfATransferIsSentTwice) {
  std::set<std::string> fillers;
  std::size_t loads = 0;
  (void)error_about([&](Runtime&, Transport& end) {
    while (const auto received = end.receive(kNever)) {
      const auto frame = parse_frame(*received->bytes);
      const auto message = read_probe(frame->payload);
      if (const auto* ping = std::get_if<ProbePing>(&*message)) {
        end.send(WorkerId(0), probe_frame(ProbePong{.pair = 0, .number = ping->number}));
      } else if (std::holds_alternative<ProbeLoad>(*message)) {
        ++loads;
        const auto filler = frame->payload.subspan(kSmallestLoad);
        fillers.emplace(reinterpret_cast<const char*>(filler.data()), filler.size());
      } else if (std::holds_alternative<ProbeStop>(*message)) {
        return;
      }
    }
  });
  EXPECT_GE(loads, 10u);
  EXPECT_EQ(fillers.size(), loads);
}

TEST(LinkSurvey, AFloodOfPingsEndsByName) {
  EXPECT_THAT(error_about([](Runtime&, Transport& end) {
                for (std::uint64_t i = 0; i < 1000; ++i) {
                  end.send(WorkerId(0), probe_frame(ProbePing{.pair = 0, .number = i}));
                }
              }),
              HasSubstr("site b sends a ping for an answer to a ping"));
}

TEST(LinkSurvey, AFloodOutOfTurnEndsByName) {
  Links links(3, std::vector<DirectedLink>(3, kLink));
  const auto pairs = survey_pairs(3);
  const auto [a, b] = pairs[0];
  const WorkerId third(3 - a.value() - b.value());
  const Outcome outcome =
      survey(links, {{third.value(), [&, a = a](Runtime& runtime, Transport& end) {
                        for (int to = 0; to < 3; ++to) {
                          if (to == third.value()) continue;
                          end.send(WorkerId(to),
                                   probe_frame(ProbeHello{.budget = seconds(3), .streams = 16}));
                        }
                        for (std::uint64_t i = 0; i < 1000; ++i)
                          end.send(a, probe_frame(ProbePing{.pair = 0, .number = i}));
                        runtime.sleep_until(TimePoint(std::chrono::minutes(5)));
                      }}});
  EXPECT_THAT(outcome.errors[static_cast<std::size_t>(a.value())],
              HasSubstr("messages out of turn"));
}

TEST(LinkSurvey, BytesThatAreNoMessageAreNamed) {
  EXPECT_THAT(error_about([](Runtime&, Transport& end) {
                end.send(WorkerId(0), std::make_shared<std::vector<std::byte>>(77));
              }),
              HasSubstr("site b sends frame starts with"));
  EXPECT_THAT(error_about([](Runtime&, Transport& end) {
                end.send(WorkerId(0), make_frame({.kind = FrameKind::kProbe}));
              }),
              HasSubstr("frames of a training run"));
}

TEST(LinkSurvey, UnlikePlansAreToldApart) {
  const Outcome outcome =
      survey(between_two(kLink, kLink), {}, [](int member, SurveyOptions& options) {
        if (member == 1) options.plan.budget = seconds(7);
      });
  EXPECT_THAT(outcome.errors[0], HasSubstr("--seconds is 3 here and 7 at b"));
}

TEST(LinkSurvey, WhoeverChecksCanEndItAndTheOtherIsToldWhy) {
  const Outcome outcome =
      survey(between_two(kLink, kLink), {}, [](int member, SurveyOptions& options) {
        if (member == 0) {
          options.check = [count = 0]() mutable {
            if (++count == 50) throw PeerError("stopped by hand");
          };
        }
      });
  EXPECT_EQ(outcome.errors[0], "stopped by hand");
  EXPECT_THAT(outcome.errors[1], HasSubstr("site a has stopped: stopped by hand"));
}

}  // namespace
}  // namespace isthmus::this_file
