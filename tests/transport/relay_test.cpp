// SPDX-License-Identifier: Apache-2.0
// A relay, spoken to by hand and by members that cannot be dialled.
#include "transport/links/relay/relay.h"

#include <gmock/gmock.h>

#include <array>
#include <span>
#include <string>
#include <vector>

#include "core/base/system_runtime.h"
#include "isthmus/errors.h"
#include "relay_client.h"
#include "transport/links/relay/relayed_links.h"
#include "zmq_members.h"

namespace isthmus::testing_support::this_file {
namespace {

using namespace std::chrono_literals;
using ::testing::StartsWith;

RelayRequest some_request() {
  return {.verb = RelayVerb::kDial,
          .from = WorkerId(2),
          .to = WorkerId(300),
          .run = xxh3_128(std::as_bytes(std::span("run", 3))),
          .token = xxh3_128(std::as_bytes(std::span("token", 5))),
          .proof = {1, 2, 3}};
}

TEST(RelayMessage, ReadsWhatItWrote) {
  const RelayRequest request = some_request();
  const auto read = read_relay_request(write_relay_request(request));
  ASSERT_TRUE(read.has_value());
  EXPECT_EQ(read->verb, request.verb);
  EXPECT_EQ(read->from, request.from);
  EXPECT_EQ(read->to, request.to);
  EXPECT_EQ(read->run, request.run);
  EXPECT_EQ(read->token, request.token);
  EXPECT_EQ(read->proof, request.proof);
  const auto word =
      read_relay_word(write_relay_word({.kind = RelayWordKind::kCall, .token = request.token}));
  ASSERT_TRUE(word.has_value());
  EXPECT_EQ(word->kind, RelayWordKind::kCall);
  EXPECT_EQ(word->token, request.token);
}

TEST(RelayMessage, IsAsDrawnInTheWireFormat) {
  const std::string text = text_of(write_relay_request(some_request()));
  EXPECT_THAT(text, StartsWith(std::string("ISRL\x02\0\x02\0\x02\0\x2c\x01", 12)));
  EXPECT_EQ(text.size(), 80u);
  EXPECT_THAT(text_of(write_relay_word({.kind = RelayWordKind::kCall})),
              StartsWith(std::string("ISRL\x02\0\x04\0\0\0\0\0", 12)));
}

TEST(RelayMessage, RefusesEveryDamagedByteAndOtherVersions) {
  for (std::size_t i = 0; i < kRelayRequestBytes; ++i) {
    RelayRequestBytes bytes = write_relay_request(some_request());
    bytes[i] ^= std::byte{4};
    const auto read = read_relay_request(bytes);
    ASSERT_FALSE(read.has_value()) << "byte " << i;
    EXPECT_EQ(read.error(), i == 4 || i == 5 ? RelayWordKind::kVersion : RelayWordKind::kMalformed);
  }
  for (std::size_t i = 0; i < kRelayWordBytes; ++i) {
    RelayWordBytes bytes = write_relay_word({});
    bytes[i] ^= std::byte{4};
    EXPECT_FALSE(read_relay_word(bytes).has_value()) << "byte " << i;
  }
}

TEST(RelayMessage, AProofFitsOneRequestOneChallengeAndTwoOwners) {
  const LinkKeys site = make_link_keys(), relay = make_link_keys(), other = make_link_keys();
  const RelayRequest request = some_request();
  const Digest128 challenge = xxh3_128(std::as_bytes(std::span("now", 3)));
  const KeyProof proof = prove_request(site, relay.public_key, request, challenge);
  EXPECT_TRUE(same_proof(proof, prove_request(relay, site.public_key, request, challenge)));
  EXPECT_FALSE(same_proof(proof, prove_request(other, relay.public_key, request, challenge)));
  EXPECT_FALSE(same_proof(proof, prove_request(site, relay.public_key, request, {})));
  RelayRequest another = request;
  another.verb = RelayVerb::kListen;
  EXPECT_FALSE(same_proof(proof, prove_request(site, relay.public_key, another, challenge)));
  another = request;
  another.to = WorkerId(1);
  EXPECT_FALSE(same_proof(proof, prove_request(site, relay.public_key, another, challenge)));
}

/// With keys and without.
class RelayTest : public ::testing::TestWithParam<bool> {
 protected:
  [[nodiscard]] MemberOptions options(int self) const {
    MemberOptions made{.self = WorkerId(self),
                       .members = kMembers,
                       .streams = 2,
                       .dead_after = 2min,
                       .gone_after = 2min,
                       .relayed = {WorkerId(1), WorkerId(2)}};
    made.identity.run = xxh3_128(std::as_bytes(std::span("run", 3)));
    if (GetParam()) {
      made.keys = keys[static_cast<std::size_t>(self)];
      for (const LinkKeys& each : keys) made.member_keys.push_back(each.public_key);
    }
    return made;
  }
  static constexpr int kMembers = 3;
  const std::vector<LinkKeys> keys = {make_link_keys(), make_link_keys(), make_link_keys()};
  SystemRuntime runtime;
  Relay relay{runtime, options(0), "127.0.0.1", 0};
};

TEST_P(RelayTest, PassesOnBytesBothWaysAndTheEnd) {
  Client listening(relay, options(1)), calling(relay, options(2)), answering(relay, options(1));
  listening.ask(RelayVerb::kListen, 1);
  ASSERT_EQ(listening.hear().kind, RelayWordKind::kDone);
  calling.ask(RelayVerb::kDial, 1);
  const RelayWord called = listening.news();
  ASSERT_EQ(called.kind, RelayWordKind::kCall);
  answering.ask(RelayVerb::kAccept, 1, called.token);
  ASSERT_EQ(calling.hear().kind, RelayWordKind::kDone);
  ASSERT_EQ(answering.hear().kind, RelayWordKind::kDone);
  // More than all buffers on the way take, so it must wait for who reads.
  const std::string much(std::size_t{16} << 20, 'x');
  const auto sender =
      runtime.spawn("sender", [&] { EXPECT_TRUE(calling.bytes().send("there" + much)); });
  EXPECT_TRUE(answering.bytes().send("back"));
  EXPECT_EQ(calling.bytes().read(4), "back");
  EXPECT_TRUE(answering.bytes().read(5 + much.size()) == "there" + much);
}

TEST_P(RelayTest, WhatWasSaidLastStillArrives) {
  Client listening(relay, options(1)), answering(relay, options(1));
  listening.ask(RelayVerb::kListen, 1);
  ASSERT_EQ(listening.hear().kind, RelayWordKind::kDone);
  {
    Client calling(relay, options(2));
    calling.ask(RelayVerb::kDial, 1);
    answering.ask(RelayVerb::kAccept, 1, listening.news().token);
    ASSERT_EQ(calling.hear().kind, RelayWordKind::kDone);
    EXPECT_TRUE(calling.bytes().send("farewell"));
  }
  ASSERT_EQ(answering.hear().kind, RelayWordKind::kDone);
  EXPECT_EQ(answering.bytes().read(9), "farewell");  // and then the end
}

TEST_P(RelayTest, RefusesByName) {
  const auto answer_to = [&](RelayVerb verb, int to, const MemberOptions& from) {
    Client client(relay, from);
    client.ask(verb, to);
    return client.news().kind;
  };
  EXPECT_EQ(answer_to(RelayVerb::kDial, 1, options(2)), RelayWordKind::kNobody);
  EXPECT_EQ(answer_to(RelayVerb::kDial, kMembers, options(2)), RelayWordKind::kPlace);
  EXPECT_EQ(answer_to(RelayVerb::kAccept, 1, options(1)), RelayWordKind::kNoAnswer);
  MemberOptions stranger = options(1);
  stranger.identity.run = {};
  EXPECT_EQ(answer_to(RelayVerb::kListen, 1, stranger), RelayWordKind::kRun);
  Client listening(relay, options(1));
  listening.ask(RelayVerb::kListen, 1);
  ASSERT_EQ(listening.hear().kind, RelayWordKind::kDone);
  EXPECT_EQ(answer_to(RelayVerb::kListen, 1, options(1)), RelayWordKind::kTaken);
  if (GetParam()) {
    MemberOptions thief = options(2);
    thief.keys = keys[1];
    EXPECT_EQ(answer_to(RelayVerb::kListen, 2, thief), RelayWordKind::kKey);
  }
}

TEST_P(RelayTest, AMemberThatIsSilentListensNoLonger) {
  Client frozen(relay, options(1));
  frozen.ask(RelayVerb::kListen, 1);
  ASSERT_EQ(frozen.hear().kind, RelayWordKind::kDone);
  EXPECT_EQ(frozen.news().kind, RelayWordKind::kMalformed);  // hung up on
  Client another(relay, options(1));
  another.ask(RelayVerb::kListen, 1);
  EXPECT_EQ(another.hear().kind, RelayWordKind::kDone);
}

TEST_P(RelayTest, ManyWhoSayNothingKeepNobodyOut) {
  std::vector<std::unique_ptr<Client>> idle;
  for (int i = 0; i < 200; ++i) idle.push_back(std::make_unique<Client>(relay, options(2)));
  Client listening(relay, options(1));
  listening.ask(RelayVerb::kListen, 1);
  EXPECT_EQ(listening.hear().kind, RelayWordKind::kDone);
}

/// Doors of member 2 to member 1.
class RelayedLinksTest : public RelayTest {
 protected:
  RelayedLinks links_by(const std::vector<RelayPlace>& relays) {
    return {runtime, options(2), {.relays = relays, .hidden = {WorkerId(1)}, .own_port = 0}};
  }
  /// A relay's machine that hangs: takes connections and says nothing.
  const TcpSocket silent = TcpSocket::listen_at("127.0.0.1", 0);
};

TEST_P(RelayedLinksTest, ASilentRelayIsLeftForAnotherOneBeforeAHandshakeEnds) {
  Client listening(relay, options(1)), answering(relay, options(1));
  listening.ask(RelayVerb::kListen, 1);
  ASSERT_EQ(listening.hear().kind, RelayWordKind::kDone);
  const auto called = runtime.spawn(
      "called", [&] { answering.ask(RelayVerb::kAccept, 1, listening.news().token); });
  const RelayedLinks links =
      links_by({{.member = WorkerId(0), .host = "127.0.0.1", .port = silent.port()},
                {.member = WorkerId(0), .host = "127.0.0.1", .port = relay.port()}});
  const TimePoint begin = runtime.clock().now();
  RawPeer calling(links.endpoint(WorkerId(1)));
  EXPECT_TRUE(calling.send("hello"));
  ASSERT_EQ(answering.hear().kind, RelayWordKind::kDone);
  EXPECT_EQ(answering.bytes().read(5), "hello");
  EXPECT_LT(runtime.clock().now() - begin, 4s);  // of ZeroMQ's 5 s
}

TEST_P(RelayedLinksTest, NobodyWaitsForANameThatIsLookedUp) {
  Client listening(relay, options(1)), answering(relay, options(1));
  listening.ask(RelayVerb::kListen, 1);
  ASSERT_EQ(listening.hear().kind, RelayWordKind::kDone);
  const auto called = runtime.spawn(
      "called", [&] { answering.ask(RelayVerb::kAccept, 1, listening.news().token); });
  const std::unique_ptr<WaitQueue> server = runtime.make_wait_queue();
  bool answers = false;
  RelayedLinks links(
      runtime, options(2),
      {.relays = {{.member = WorkerId(0), .host = "slow.example.org", .port = 1},
                  {.member = WorkerId(0), .host = "127.0.0.1", .port = relay.port()}},
       .hidden = {WorkerId(1)},
       .own_port = 0,
       .look_up = [&](const std::string& host, int port) {
         if (host == "127.0.0.1") return resolve_tcp(host, port);
         (void)server->wait([&] { return answers; }, kNever);
         return NameLookup::Found(Unexpected<std::string>("no such name"));
       }});
  RawPeer calling(links.endpoint(WorkerId(1)));
  EXPECT_TRUE(calling.send("hello"));
  EXPECT_EQ(answering.hear().kind, RelayWordKind::kDone);
  EXPECT_EQ(answering.bytes().read(5), "hello");
  server->update([&] { answers = true; });
}

TEST_P(RelayedLinksTest, ANameThatIsFoundInTimeIsTheRelayThatIsCalled) {
  Client listening(relay, options(1)), answering(relay, options(1));
  listening.ask(RelayVerb::kListen, 1);
  ASSERT_EQ(listening.hear().kind, RelayWordKind::kDone);
  const auto called = runtime.spawn(
      "called", [&] { answering.ask(RelayVerb::kAccept, 1, listening.news().token); });
  TcpSocket other = TcpSocket::listen_at("127.0.0.1", 0);
  const std::unique_ptr<WaitQueue> server = runtime.make_wait_queue();
  bool asked = false, answers = false;
  const RelayedLinks links(
      runtime, options(2),
      {.relays = {{.member = WorkerId(0), .host = "relay.example.org", .port = relay.port()},
                  {.member = WorkerId(0), .host = "127.0.0.1", .port = other.port()}},
       .hidden = {WorkerId(1)},
       .own_port = 0,
       .look_up = [&](const std::string&, int port) {
         server->update([&] { asked = true; });
         (void)server->wait([&] { return answers; }, kNever);
         return resolve_tcp("127.0.0.1", port);
       }});
  RawPeer calling(links.endpoint(WorkerId(1)));
  EXPECT_TRUE(calling.send("hello"));
  EXPECT_TRUE(server->wait([&] { return asked; }, runtime.clock().now() + 30s));
  server->update([&] { answers = true; });
  EXPECT_EQ(answering.hear().kind, RelayWordKind::kDone);
  EXPECT_EQ(answering.bytes().read(5), "hello");
  bool failed = false;
  EXPECT_FALSE(other.accept(failed)) << "the second one was not needed";
}

TEST_P(RelayedLinksTest, WhoSaysTooMuchUnansweredIsHungUpOn) {
  const RelayedLinks links =
      links_by({{.member = WorkerId(0), .host = "127.0.0.1", .port = silent.port()}});
  RawPeer calling(links.endpoint(WorkerId(1)));
  (void)calling.send(std::string(5000, 'x'));
  EXPECT_EQ(calling.read(1), "");
  RawPeer another(links.endpoint(WorkerId(1)));
  const TimePoint begin = runtime.clock().now();
  EXPECT_EQ(another.read(1), "");  // and who is never answered
  EXPECT_GT(runtime.clock().now() - begin, 5s);
  EXPECT_LT(runtime.clock().now() - begin, 15s);
}

TEST_P(RelayTest, AKeyWithoutASharedSecretIsRefusedAtTheStart) {
  if (!GetParam()) GTEST_SKIP() << "no keys";
  MemberOptions bad = options(0);
  bad.member_keys[2] = std::string(40, '0');  // Z85 of nothing but zeros
  EXPECT_THROW(Relay(runtime, bad, "127.0.0.1", 0), ConfigError);
}

TEST_P(RelayTest, MembersThatNobodyCanDialExchangeFramesWithAll) {
  std::vector<std::unique_ptr<RelayedLinks>> links;
  std::vector<std::unique_ptr<NetworkTransport>> ends;
  for (int self = 0; self < kMembers; ++self) {
    ends.push_back(make_zmq_transport(runtime, options(self)));
    const std::string& own = ends.back()->endpoint();
    links.push_back(std::make_unique<RelayedLinks>(
        runtime, options(self),
        RelayedLinks::Routes{
            .relays = {{.member = WorkerId(0), .host = "127.0.0.1", .port = relay.port()}},
            .hidden = {WorkerId(1), WorkerId(2)},
            .own_port = std::stoi(own.substr(own.rfind(':') + 1))}));
  }
  for (int self = 0; self < kMembers; ++self) {
    std::vector<std::string> endpoints = {ends[0]->endpoint()};
    for (int to = 1; to < kMembers; ++to) {
      endpoints.push_back(to == self
                              ? ends[static_cast<std::size_t>(to)]->endpoint()
                              : links[static_cast<std::size_t>(self)]->endpoint(WorkerId(to)));
    }
    ends[static_cast<std::size_t>(self)]->join(endpoints);
  }
  for (const auto& end : ends) {
    const auto joined = end->await_members(runtime.clock().now() + 1min);
    ASSERT_TRUE(joined.has_value()) << joined.error().what;
  }
  for (int from = 0; from < kMembers; ++from) {
    for (int to = 0; to < kMembers; ++to) {
      if (from == to) continue;
      const auto frame = std::make_shared<const std::vector<std::byte>>(
          1000 + 10 * from + to, static_cast<std::byte>(from));
      ends[static_cast<std::size_t>(from)]->send(WorkerId(to), frame);
    }
  }
  for (int to = 0; to < kMembers; ++to) {
    for (int k = 0; k + 1 < kMembers; ++k) {
      const auto got = ends[static_cast<std::size_t>(to)]->receive(runtime.clock().now() + 1min);
      ASSERT_TRUE(got.has_value());
      EXPECT_EQ(got->bytes->size(), static_cast<std::size_t>(1000 + 10 * got->from.value() + to));
      EXPECT_EQ((*got->bytes)[0], static_cast<std::byte>(got->from.value()));
    }
  }
  ends.clear();  // before the ways they go
}

INSTANTIATE_TEST_SUITE_P(Keys, RelayedLinksTest, ::testing::Bool(), [](const auto& param) {
  return std::string(param.param ? "with_keys" : "plain");
});
INSTANTIATE_TEST_SUITE_P(Keys, RelayTest, ::testing::Bool(), [](const auto& param) {
  return std::string(param.param ? "with_keys" : "plain");
});

}  // namespace
}  // namespace isthmus::testing_support::this_file
