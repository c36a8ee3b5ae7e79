// SPDX-License-Identifier: Apache-2.0
// A relay and its callers where a hub says whose keys count.
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/base/system_runtime.h"
#include "relay_client.h"
#include "transport/links/relay/relayed_links.h"

namespace isthmus::testing_support::this_file {
namespace {

using namespace std::chrono_literals;

class RelayKeysTest : public ::testing::Test {
 protected:
  [[nodiscard]] MemberOptions options(int self) const {
    MemberOptions made{
        .self = WorkerId(self), .members = 3, .streams = 2, .relayed = {WorkerId(1), WorkerId(2)}};
    made.identity.run = xxh3_128(std::as_bytes(std::span("run", 3)));
    made.keys = keys[static_cast<std::size_t>(self)];
    for (const LinkKeys& each : keys) made.member_keys.push_back(each.public_key);
    return made;
  }
  const std::vector<LinkKeys> keys = {make_link_keys(), make_link_keys(), make_link_keys()};
  SystemRuntime runtime;
};

// As with invitations: a member's key comes, is replaced, and counts no more.
TEST_F(RelayKeysTest, KeysThatAHubTellsOfCountFromThenOn) {
  MemberOptions told = options(0);
  told.member_keys[1].clear();
  const auto said = std::make_shared<AnnouncedKeys>(runtime);
  Relay with_hub(runtime, told, "127.0.0.1", 0, said);
  const auto say_keys = [&](const std::string& of_1) {
    said->set({keys[0].public_key, of_1, keys[2].public_key});
  };
  const auto answer_to = [&](const MemberOptions& from) {
    Client client(with_hub, from);
    client.ask(RelayVerb::kListen, from.self.value());
    return client.news().kind;
  };
  const auto until = [&](const MemberOptions& from, RelayWordKind kind) {
    const TimePoint end = runtime.clock().now() + 1min;
    while (answer_to(from) != kind && runtime.clock().now() < end) {
    }
    return runtime.clock().now() < end;
  };
  EXPECT_EQ(answer_to(options(1)), RelayWordKind::kNotYet);
  EXPECT_EQ(answer_to(options(2)), RelayWordKind::kDone) << "its key is in the file";
  say_keys(keys[1].public_key);
  EXPECT_TRUE(until(options(1), RelayWordKind::kDone));

  // Listening and joined connections end with the key that opened them.
  Client listening(with_hub, options(1)), calling(with_hub, options(2)),
      answering(with_hub, options(1));
  listening.ask(RelayVerb::kListen, 1);
  ASSERT_EQ(listening.hear().kind, RelayWordKind::kDone);
  calling.ask(RelayVerb::kDial, 1);
  answering.ask(RelayVerb::kAccept, 1, listening.news().token);
  ASSERT_EQ(calling.hear().kind, RelayWordKind::kDone);
  ASSERT_EQ(answering.hear().kind, RelayWordKind::kDone);
  const LinkKeys second = make_link_keys();
  say_keys(second.public_key);
  EXPECT_EQ(listening.news().kind, RelayWordKind::kMalformed);  // hung up on
  EXPECT_EQ(calling.bytes().read(1), "");
  EXPECT_TRUE(until(options(1), RelayWordKind::kKey));
  MemberOptions successor = options(1);
  successor.keys = second;
  EXPECT_TRUE(until(successor, RelayWordKind::kDone));
  say_keys("");
  EXPECT_TRUE(until(successor, RelayWordKind::kNotYet));
  say_keys(std::string(40, '0'));  // Z85 of nothing but zeros: nobody can prove to have it
  EXPECT_TRUE(until(options(2), RelayWordKind::kDone)) << "the relay is gone";
}

// A hub that begins anew has another transport, which is told the keys again.
TEST_F(RelayKeysTest, WhatPassesGoesOnWhereAnotherTransportIsToldTheKeys) {
  const auto said = std::make_shared<AnnouncedKeys>(runtime);
  said->set({keys[0].public_key, keys[1].public_key, keys[2].public_key});
  Relay relay(runtime, options(0), "127.0.0.1", 0, said);
  Client listening(relay, options(1)), calling(relay, options(2)), answering(relay, options(1));
  listening.ask(RelayVerb::kListen, 1);
  ASSERT_EQ(listening.hear().kind, RelayWordKind::kDone);
  calling.ask(RelayVerb::kDial, 1);
  answering.ask(RelayVerb::kAccept, 1, listening.news().token);
  ASSERT_EQ(calling.hear().kind, RelayWordKind::kDone);
  ASSERT_EQ(answering.hear().kind, RelayWordKind::kDone);

  const auto next = std::make_shared<AnnouncedKeys>(runtime);
  relay.listen_to(next);
  EXPECT_TRUE(calling.bytes().send("before"));
  EXPECT_EQ(answering.bytes().read(6), "before");
  next->set({keys[0].public_key, keys[1].public_key, keys[2].public_key});
  EXPECT_TRUE(calling.bytes().send("after"));
  EXPECT_EQ(answering.bytes().read(5), "after");
  EXPECT_TRUE(calling.bytes().send("later"));  // in a turn that has looked at what was told
  EXPECT_EQ(answering.bytes().read(5), "later");
  next->set({keys[0].public_key, "", keys[2].public_key});
  EXPECT_EQ(listening.news().kind, RelayWordKind::kMalformed);  // hung up on
  EXPECT_EQ(calling.bytes().read(1), "");
}

// What a hub has barred for good is not on its way.
TEST_F(RelayKeysTest, ABarredKeyOfTheFileIsRefusedAsAnotherKey) {
  const auto said = std::make_shared<AnnouncedKeys>(runtime);
  said->set({keys[0].public_key, "", keys[2].public_key});
  Relay relay(runtime, options(0), "127.0.0.1", 0, said);
  Client client(relay, options(1));
  client.ask(RelayVerb::kListen, 1);
  EXPECT_EQ(client.news().kind, RelayWordKind::kKey);
}

// A member by invitation calls where the hub has told it the relay's key, and not before.
TEST_F(RelayKeysTest, WhoIsToldTheRelaysKeyIsReachedByWayOfIt) {
  MemberOptions waits = options(1);
  waits.member_keys[0].clear();
  const auto said = std::make_shared<AnnouncedKeys>(runtime);
  Relay relay(runtime, options(0), "127.0.0.1", 0);
  RelayedLinks links(
      runtime, waits,
      {.relays = {{.member = WorkerId(0), .host = "127.0.0.1", .port = relay.port()}},
       .hidden = {WorkerId(1), WorkerId(2)},
       .own_port = 1},
      said);
  const auto until = [&](const std::function<bool()>& holds) {
    const TimePoint end = runtime.clock().now() + 1min;
    while (!holds() && runtime.clock().now() < end)
      runtime.sleep_until(runtime.clock().now() + 5ms);
    return holds();
  };
  EXPECT_TRUE(until([&] {
    return links.trouble(WorkerId(1)).find("which key the relay's site has") != std::string::npos;
  })) << links.trouble(WorkerId(1));
  said->set(options(1).member_keys);
  EXPECT_TRUE(until([&] { return links.trouble(WorkerId(1)).empty(); }))
      << links.trouble(WorkerId(1));
}

}  // namespace
}  // namespace isthmus::testing_support::this_file
