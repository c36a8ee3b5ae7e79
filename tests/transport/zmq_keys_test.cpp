// SPDX-License-Identifier: Apache-2.0
// Links with keys over ZeroMQ: the same bits as plain text, and everybody else refused in words.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>

#include "core/base/system_runtime.h"
#include "isthmus/errors.h"
#include "raw_peer.h"
#include "transport/exchange/run_in_process.h"
#include "transport/naive_mean.h"
#include "zmq_members.h"

namespace isthmus::testing_support::this_file {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;
using Members = std::vector<std::unique_ptr<NetworkTransport>>;

/// Pairs of all members of a run.
struct KeyRing {
  explicit KeyRing(int members) {
    for (int i = 0; i < members; ++i) {
      pairs.push_back(make_link_keys());
      public_keys.push_back(pairs.back().public_key);
    }
  }
  [[nodiscard]] const LinkKeys& of(WorkerId rank) const {
    return pairs.at(static_cast<std::size_t>(rank.value()));
  }
  void give(MemberOptions& options) const {
    options.keys = of(options.self);
    options.member_keys = public_keys;
  }
  std::vector<LinkKeys> pairs;
  std::vector<std::string> public_keys;
};

class ZmqKeys : public ::testing::Test {
 protected:
  void SetUp() override {
    if (zmq_version().empty()) GTEST_SKIP() << "this build has no ZeroMQ";
  }
  TimePoint in(Duration time) { return runtime_.clock().now() + time; }
  /// Asks again until the words of who is missing have settled.
  std::string why_not_joined(NetworkTransport& end, const std::string& words) {
    std::string what;
    for (int waits = 0; waits < 60 && what.find(words) == std::string::npos; ++waits) {
      const auto joined = end.await_members(in(500ms));
      if (joined) return "joined";
      what = joined.error().what;
    }
    return what;
  }

  SystemRuntime runtime_;
};

TEST_F(ZmqKeys, TheExchangeGivesTheBitsOfPlainText) {
  const KeyRing ring(3);
  for (const char* name : {"fp32", "int4:64:rounding=stochastic"}) {
    const std::shared_ptr<const Codec> codec = make_codec(name);
    std::vector<std::vector<float>> results[2];
    for (const bool keys : {false, true}) {
      results[keys ? 1 : 0].resize(3);
      std::vector<std::unique_ptr<Transport>> ends;
      for (auto& end : joined_members(runtime_, 3, [&](MemberOptions& options) {
             if (keys) ring.give(options);
           })) {
        ends.push_back(std::move(end));
      }
      run_over(runtime_, ends, PeerExchangeOptions{}, [&](WorkerContext& context) {
        const auto result =
            context.exchange.wait(context.exchange.begin(testing_support::contribution_of(
                                      codec, context.rank, 900000, {FragmentId(0), StepIndex(5)},
                                      ReductionKind::kReduce)),
                                  120s);
        ASSERT_TRUE(result.has_value()) << result.error().what;
        results[keys ? 1 : 0][static_cast<std::size_t>(context.rank.value())] = result->values;
      });
    }
    EXPECT_EQ(results[0], results[1]) << name;
    EXPECT_FALSE(results[1][2].empty());
  }
}

TEST_F(ZmqKeys, ThePortSpeaksCurveAlone) {
  const KeyRing ring(2);
  Members ends = joined_members(runtime_, 2, [&](MemberOptions& options) { ring.give(options); });
  RawPeer peer(ends[0]->endpoint());
  ASSERT_TRUE(peer.send_greeting("CURVE"));
  const std::string greeting = peer.read(64);
  ASSERT_EQ(greeting.size(), 64u);
  EXPECT_EQ(greeting.substr(12, 20), "CURVE" + std::string(15, '\0'));
  RawPeer plain(ends[0]->endpoint());
  ASSERT_TRUE(plain.send_greeting("NULL"));
  EXPECT_LE(plain.read(1000).size(), 64u);  // and then hung up
  RawPeer old(ends[0]->endpoint());
  old.send(std::string("\xff\0\0\0\0\0\0\0\x01\x7f\x01\x05", 12));  // ZMTP 2.0 knows no security
  EXPECT_LE(old.read(1000).size(), 64u);                            // and then hung up
}

TEST_F(ZmqKeys, AnUnknownKeyIsRefusedOnBothSides) {
  const KeyRing ring(2);
  EventLog log(runtime_);
  Members ends = bind_members(runtime_, 1, [&](MemberOptions& options) {
    options.members = 2;
    options.on_event = [&](const LinkEvent& event) { log.record(event); };
    ring.give(options);
  });
  KeyRing strange = ring;
  strange.pairs[1] = make_link_keys();
  strange.public_keys[1] = strange.pairs[1].public_key;
  MemberOptions options{.self = WorkerId(1), .members = 2, .streams = 2};
  strange.give(options);
  const auto stranger = make_zmq_transport(runtime_, options);
  const std::vector<std::string> endpoints = {ends[0]->endpoint(), stranger->endpoint()};
  ends[0]->join(endpoints);
  stranger->join(endpoints);
  // Member 0 expects the other key there, and says so instead of "no connection".
  const std::string why = why_not_joined(*ends[0], "was refused");
  EXPECT_THAT(why, HasSubstr("member 1"));
  EXPECT_THAT(why, HasSubstr("does not have the key " + key_label(ring.public_keys[1])));
  EXPECT_THAT(why, HasSubstr("a connection with key " + key_label(strange.public_keys[1])));
  const auto joined = stranger->await_members(in(30s));
  ASSERT_FALSE(joined);
  EXPECT_TRUE(joined.error().refused);
  EXPECT_EQ(joined.error().field, RefusedField::kKey);
  EXPECT_EQ(joined.error().peer, WorkerId(0));
  const auto met = ends[0]->await_members(in(30s));
  ASSERT_FALSE(met);
  EXPECT_EQ(met.error().field, RefusedField::kKey);
  EXPECT_THAT(joined.error().what, HasSubstr("member 0: it does not know this member's key " +
                                             key_label(strange.public_keys[1])));
  EXPECT_TRUE(log.wait_for(LinkEvent::Kind::kStranger,
                           fmt::format("a connection with key {} was refused: it is no member's",
                                       key_label(strange.public_keys[1]))));
}

TEST_F(ZmqKeys, AWrongKeyOfWhoAnswersIsNamedOnBothSides) {
  const KeyRing ring(3);
  EventLog logs[3] = {EventLog(runtime_), EventLog(runtime_), EventLog(runtime_)};
  const std::string wrong = make_link_keys().public_key;
  Members ends = bind_members(runtime_, 3, [&](MemberOptions& options) {
    ring.give(options);
    if (options.self == WorkerId(0)) options.member_keys[1] = wrong;
    options.on_event = [&logs, self = options.self](const LinkEvent& event) {
      logs[self.value()].record(event);
    };
  });
  const auto endpoints = endpoints_of(ends);
  for (const auto& end : ends) end->join(endpoints);
  EXPECT_TRUE(logs[0].wait_for(LinkEvent::Kind::kHandshakeFailed,
                               "does not have the key " + key_label(wrong)));
  EXPECT_TRUE(logs[1].wait_for(LinkEvent::Kind::kStranger, "for a key other than this member's " +
                                                               key_label(ring.public_keys[1])));
  const auto joined = ends[1]->await_members(in(30s));  // whose key member 0 does not know
  ASSERT_FALSE(joined);
  EXPECT_EQ(joined.error().field, RefusedField::kKey);
  EXPECT_THAT(why_not_joined(*ends[0], "does not have the key"),
              HasSubstr("compare it with the public key in the key file of member 1"));
  EXPECT_TRUE(ends[2]->await_members(in(30s)));  // it has no quarrel with either
}

// Whichever end of a connection reads the greeting of the other first hangs up; the other one may
// have nothing but that.
TEST_F(ZmqKeys, PlainTextAndKeysDoNotMix) {
  const KeyRing ring(2);
  EventLog log(runtime_);
  Members ends = bind_members(runtime_, 2, [&](MemberOptions& options) {
    if (options.self == WorkerId(0)) ring.give(options);
    options.on_event = [&](const LinkEvent& event) { log.record(event); };
  });
  const auto endpoints = endpoints_of(ends);
  for (const auto& end : ends) end->join(endpoints);
  const auto words = [](const char* settled, const char* seen, const char* hung_up) {
    return ::testing::AnyOf(HasSubstr(settled), HasSubstr(seen), HasSubstr(hung_up));
  };
  const std::string why[2] = {why_not_joined(*ends[0], " key"), why_not_joined(*ends[1], " key")};
  EXPECT_THAT(why[0], words("member 1: it speaks plain text, and this member has a key",
                            "in plain text, and links here have keys: give every site its key",
                            "does not have the key"));
  EXPECT_THAT(why[1], words("member 0: it wants a key, and this member has none",
                            "with a key, and this member has none: give every site its key",
                            "is no member, or wants a key"));
  EXPECT_THAT(why[0] + why[1], HasSubstr("member 1"));
  EXPECT_TRUE(log.wait_for(LinkEvent::Kind::kHandshakeFailed, " key"));
}

// ZeroMQ never dials again after a refusal; a member that learns of this one's key must be found.
TEST_F(ZmqKeys, WhoLearnsOfAKeyLateIsDialledAgain) {
  const KeyRing ring(2);
  EventLog log(runtime_);
  Members ends = bind_members(runtime_, 2, [&](MemberOptions& options) {
    ring.give(options);
    if (options.self == WorkerId(0)) {
      options.on_event = [&](const LinkEvent& event) { log.record(event); };
    } else {
      options.member_keys[0] = make_link_keys().public_key;
    }
  });
  const auto endpoints = endpoints_of(ends);
  for (const auto& end : ends) end->join(endpoints);
  ASSERT_TRUE(log.wait_for(LinkEvent::Kind::kHandshakeFailed, "does not know this member's key"));
  ends[1].reset();
  MemberOptions late{.self = WorkerId(1), .members = 2, .bind = endpoints[1], .streams = 2};
  ring.give(late);
  ends[1] = make_zmq_transport(runtime_, late);
  ends[1]->join(endpoints);
  EXPECT_TRUE(log.wait_for(LinkEvent::Kind::kWelcomed, "member 1, connection 0: accepted"));
  EXPECT_TRUE(log.wait_for(LinkEvent::Kind::kWelcomed, "member 1, connection 1: accepted"));
  EXPECT_TRUE(ends[1]->await_members(in(30s)));
}

// A hub (member 2) gives a key that no configuration has, and takes it out again.
TEST_F(ZmqKeys, AKeyComesByTheHubAndIsBarredByIt) {
  const KeyRing ring(3);
  EventLog logs[3] = {EventLog(runtime_), EventLog(runtime_), EventLog(runtime_)};
  Members ends = bind_members(runtime_, 3, [&](MemberOptions& options) {
    ring.give(options);
    if (options.self != WorkerId(1)) options.member_keys[1].clear();
    options.keys_from = WorkerId(2);
    options.keys_come = true;
    options.readmits = true;
    options.on_event = [&logs, self = options.self](const LinkEvent& event) {
      logs[self.value()].record(event);
    };
  });
  const auto endpoints = endpoints_of(ends);
  std::vector<std::string> without = ring.public_keys;
  without[1].clear();
  ends[2]->set_keys({.version = 1, .members = without, .guests = {}});
  EXPECT_FALSE(ends[0]->members_with_keys());
  for (const auto& end : ends) end->join(endpoints);
  const std::vector<WorkerId> hub = {WorkerId(2)};
  ASSERT_TRUE(ends[0]->await_members(in(60s), hub));
  EXPECT_TRUE(logs[1].wait_for(LinkEvent::Kind::kHandshakeFailed, "it lets no member with this"));
  EXPECT_FALSE(ends[1]->await_members(in(60s), hub));

  ends[1].reset();  // what it was refused is settled
  MemberOptions options{.self = WorkerId(1), .members = 3, .streams = 2};
  ring.give(options);
  options.keys_from = WorkerId(2);
  options.keys_come = true;
  options.readmits = true;
  options.bind = endpoints[1];
  options.on_event = [&](const LinkEvent& event) { logs[1].record(event); };
  ends[2]->set_keys({.version = 2, .members = ring.public_keys, .guests = {}});
  const std::vector<WorkerId> invited = {WorkerId(1)};
  ends[1] = make_zmq_transport(runtime_, options);
  ends[1]->join(endpoints);
  const std::vector<WorkerId> others = {WorkerId(0), WorkerId(2)};
  ASSERT_TRUE(ends[1]->await_members(in(60s), others));
  ASSERT_TRUE(ends[0]->await_members(in(60s), invited));
  EXPECT_EQ(ends[0]->members_with_keys(),
            (std::vector<WorkerId>{WorkerId(0), WorkerId(1), WorkerId(2)}));

  ends[2]->set_keys({.version = 3, .members = without, .guests = {}});
  for (const int there : {0, 2}) {
    EXPECT_TRUE(logs[there].wait_for(LinkEvent::Kind::kLost, "its key counts no more"));
  }
  EXPECT_EQ(ends[0]->members_with_keys(), (std::vector<WorkerId>{WorkerId(0), WorkerId(2)}));
  EXPECT_TRUE(logs[0].wait_for(LinkEvent::Kind::kStranger, "was refused: it is no member's"));
}

// While members exchange: unknown keys, plain text, and a member that poses as another one.
TEST_F(ZmqKeys, IntrudersAreRefusedAndDisturbNobody) {
  const KeyRing ring(3);
  EventLog log(runtime_);
  Members joined = joined_members(runtime_, 3, [&](MemberOptions& options) {
    ring.give(options);
    options.on_event = [&](const LinkEvent& event) { log.record(event); };
  });
  const auto endpoints = endpoints_of(joined);
  std::vector<std::unique_ptr<Transport>> ends;
  for (auto& end : joined) ends.push_back(std::move(end));

  std::atomic<bool> over = false;
  const auto intruders = runtime_.spawn("intruders", [&] {
    for (int i = 0; !over || i < 3; ++i) {
      MemberOptions options{.self = WorkerId(1), .members = 3, .streams = 2, .linger = 0s};
      if (i % 3 != 0) {
        KeyRing false_ring = ring;
        // Member 2 in the place of member 1, or someone whom nobody knows.
        false_ring.pairs[1] = i % 3 == 1 ? ring.pairs[2] : make_link_keys();
        false_ring.public_keys[1] = false_ring.pairs[1].public_key;
        if (i % 3 == 1) false_ring.public_keys[2] = ring.public_keys[1];
        false_ring.give(options);
      }
      const auto intruder = make_zmq_transport(runtime_, options);
      std::vector<std::string> dialled = endpoints;
      dialled[1] = intruder->endpoint();
      intruder->join(dialled);
      const auto refused = intruder->await_members(in(i % 3 == 0 ? 2s : 30s));
      ASSERT_FALSE(refused);
      EXPECT_THAT(refused.error().what, HasSubstr(" key"));
      if (i % 3 != 0) {
        EXPECT_EQ(refused.error().field, RefusedField::kKey) << refused.error().what;
      }
    }
  });
  const std::shared_ptr<const Codec> codec = make_codec("int8");
  run_over(runtime_, ends, PeerExchangeOptions{}, [&](WorkerContext& context) {
    for (int step = 0; step < 20; ++step) {
      const SyncId id{FragmentId(0), StepIndex(step)};
      const auto result =
          context.exchange.wait(context.exchange.begin(testing_support::contribution_of(
                                    codec, context.rank, 200000, id, ReductionKind::kReduce)),
                                120s);
      ASSERT_TRUE(result.has_value()) << result.error().what;
      EXPECT_EQ(result->values,
                testing_support::naive_mean(*codec, 3, 200000, ReductionKind::kReduce, id));
    }
    if (context.rank == WorkerId(0)) {  // while all still listen
      EXPECT_TRUE(log.wait_for(LinkEvent::Kind::kStranger, "it is no member's"));
      EXPECT_TRUE(log.wait_for(LinkEvent::Kind::kRefused,
                               "opened with the key of member 2 says it is member 1"));
      over = true;
      intruders->join();
    }
  });
}

TEST_F(ZmqKeys, OptionsThatCannotBeAreRefused) {
  const KeyRing ring(2);
  const auto what = [&](const Tweak& tweak) -> std::string {
    MemberOptions options{.self = WorkerId(0), .members = 2};
    ring.give(options);
    tweak(options);
    try {
      (void)make_zmq_transport(runtime_, options);
    } catch (const ConfigError& error) {
      EXPECT_THAT(error.what(), ::testing::Not(HasSubstr(ring.pairs[0].secret)));
      return error.what();
    }
    return "accepted";
  };
  EXPECT_EQ(what([](MemberOptions&) {}), "accepted");
  EXPECT_EQ(what([](MemberOptions& o) { o.bind = "tcp://0.0.0.0:*"; }), "accepted");
  EXPECT_THAT(what([](MemberOptions& o) { o.member_keys.clear(); }),
              HasSubstr("there are 0 public keys for 2 members"));
  EXPECT_THAT(what([](MemberOptions& o) { o.keys.reset(); }), HasSubstr("no secret key"));
  EXPECT_THAT(what([](MemberOptions& o) { o.member_keys.push_back(o.member_keys[0]); }),
              HasSubstr("there are 3 public keys for 2 members"));
  EXPECT_THAT(what([](MemberOptions& o) { o.member_keys[1] = o.member_keys[0]; }),
              HasSubstr("members 0 and 1 have the same key"));
  EXPECT_THAT(what([](MemberOptions& o) { o.member_keys[1] = "east"; }),
              HasSubstr("key of member 1: has 4 characters"));
  EXPECT_THAT(what([](MemberOptions& o) { std::swap(o.member_keys[0], o.member_keys[1]); }),
              HasSubstr("key of member 0: the configuration has"));
  EXPECT_THAT(what([](MemberOptions& o) { o.keys->public_key = o.member_keys[1]; }),
              HasSubstr("key of member 0"));
}

}  // namespace
}  // namespace isthmus::testing_support::this_file
