// SPDX-License-Identifier: Apache-2.0
// Three members over real sockets, of which two reach each other through a valve alone: while it is
// shut nothing passes, and nobody is told.
#include <gtest/gtest.h>

#include "core/base/system_runtime.h"
#include "transport/links/relay/relay.h"
#include "transport/links/relay/relayed_links.h"
#include "valve.h"
#include "zmq_members.h"

namespace isthmus::testing_support::this_file {
namespace {

using namespace std::chrono_literals;

/// Member 0 relays; 1 and 2 dial each other through valves. A way is given 3 s, half of dead_after,
/// and the direct one is taken back after 18 s.
class ZmqDetour : public ::testing::TestWithParam<bool> {
 protected:
  static constexpr int kMembers = 3;
  static constexpr std::size_t kRelay = 0, kOne = 1, kTwo = 2;

  void SetUp() override {
    if (zmq_version().empty()) GTEST_SKIP() << "this build has no ZeroMQ";
    for (int rank = 0; rank < kMembers; ++rank) {
      logs_.push_back(std::make_unique<EventLog>(runtime_));
      MemberOptions options{.self = WorkerId(rank),
                            .members = kMembers,
                            .streams = 2,
                            .heartbeat = 200ms,
                            .dead_after = 6s,
                            .gone_after = 1min,
                            .detours = true};
      if (GetParam()) {
        options.keys = keys_[static_cast<std::size_t>(rank)];
        for (const LinkKeys& each : keys_) options.member_keys.push_back(each.public_key);
      }
      options.on_event = [log = logs_.back().get()](const LinkEvent& event) { log->record(event); };
      options_.push_back(options);
      ends_.push_back(make_zmq_transport(runtime_, options));
    }
    relay_ = std::make_unique<Relay>(runtime_, options_[kRelay], "127.0.0.1", 0);
    to_one_ = std::make_unique<Valve>(runtime_, ends_[kOne]->endpoint());
    to_two_ = std::make_unique<Valve>(runtime_, ends_[kTwo]->endpoint());
  }
  void TearDown() override {
    for (auto& end : ends_) end.reset();  // before what they dial
  }

  void join() {
    for (std::size_t self = 0; self < kMembers; ++self) {
      std::vector<std::string> endpoints = endpoints_of(ends_);
      if (self == kOne) endpoints[kTwo] = to_two_->endpoint();
      if (self == kTwo) endpoints[kOne] = to_one_->endpoint();
      const std::string own = ends_[self]->endpoint();
      doors_.push_back(std::make_unique<RelayedLinks>(
          runtime_, options_[self],
          RelayedLinks::Routes{
              .relays = {{.member = WorkerId(0), .host = "127.0.0.1", .port = relay_->port()}},
              .hidden = {},
              .detours = {WorkerId(1), WorkerId(2)},
              .own_port = std::stoi(own.substr(own.rfind(':') + 1))}));
      std::vector<std::string> detours(kMembers);
      for (const std::size_t other : {kOne, kTwo}) {
        if (other != self)
          detours[other] = doors_.back()->endpoint(WorkerId(static_cast<int>(other)));
      }
      ends_[self]->join(endpoints, detours);
    }
    for (const auto& end : ends_) {
      const auto joined = end->await_members(runtime_.clock().now() + 1min);
      ASSERT_TRUE(joined.has_value()) << joined.error().what;
    }
  }
  void shut(bool is) {
    to_one_->shut(is);
    to_two_->shut(is);
  }
  /// Frames from one to the other, each with its number, all in flight at once.
  void pass(std::size_t from, std::size_t to, int frames) {
    for (int i = 0; i < frames; ++i, ++sent_) {
      ends_[from]->send(
          WorkerId(static_cast<int>(to)),
          std::make_shared<const std::vector<std::byte>>(1000, static_cast<std::byte>(sent_)));
    }
    for (int i = sent_ - frames; i < sent_; ++i) {
      const auto received = ends_[to]->receive(runtime_.clock().now() + 20s);
      ASSERT_TRUE(received) << "frame " << i << ": " << received.error().what;
      ASSERT_EQ((*received->bytes)[0], static_cast<std::byte>(i));
    }
  }
  [[nodiscard]] bool anybody_lost() {
    return std::ranges::any_of(
        logs_, [](const auto& log) { return log->has(LinkEvent::Kind::kLost, ""); });
  }

  SystemRuntime runtime_;
  const std::vector<LinkKeys> keys_ = {make_link_keys(), make_link_keys(), make_link_keys()};
  std::vector<std::unique_ptr<EventLog>> logs_;
  std::vector<MemberOptions> options_;
  std::unique_ptr<Relay> relay_;
  std::unique_ptr<Valve> to_one_, to_two_;
  std::vector<std::unique_ptr<RelayedLinks>> doors_;  // outlive the transports
  std::vector<std::unique_ptr<NetworkTransport>> ends_;
  int sent_ = 0;
};

TEST_P(ZmqDetour, TwoThatLoseEachOtherGoOnByWayOfAThirdAndBack) {
  join();
  pass(kOne, kTwo, 100);
  shut(true);
  pass(kOne, kTwo, 100);  // begun when nobody knows yet
  pass(kTwo, kOne, 100);
  const auto rerouted = LinkEvent::Kind::kRerouted;
  EXPECT_TRUE(logs_[kOne]->wait_for(rerouted, "by way of a relay"));
  EXPECT_TRUE(logs_[kTwo]->wait_for(rerouted, "by way of a relay"));
  shut(false);
  EXPECT_TRUE(logs_[kOne]->wait_for(rerouted, "directly again"));
  EXPECT_TRUE(logs_[kTwo]->wait_for(rerouted, "directly again"));
  pass(kOne, kTwo, 100);
  pass(kTwo, kOne, 100);
  EXPECT_FALSE(anybody_lost());
  EXPECT_FALSE(logs_[kRelay]->has(rerouted, ""));
}

TEST_P(ZmqDetour, TwoThatNeverMeetDirectlyMeetThere) {
  shut(true);
  join();
  pass(kOne, kTwo, 100);
  pass(kTwo, kOne, 100);
  EXPECT_FALSE(anybody_lost());
}

TEST_P(ZmqDetour, OneDirectionAloneGoesRound) {
  to_two_->shut(true);  // as a firewall that lets only the second dial
  join();
  pass(kOne, kTwo, 100);
  pass(kTwo, kOne, 100);
  EXPECT_TRUE(logs_[kOne]->has(LinkEvent::Kind::kRerouted, "by way of a relay"));
  EXPECT_FALSE(logs_[kTwo]->has(LinkEvent::Kind::kRerouted, ""));
  EXPECT_FALSE(anybody_lost());
}

INSTANTIATE_TEST_SUITE_P(Keys, ZmqDetour, ::testing::Bool(),
                         [](const auto& keys) { return keys.param ? "keys" : "plain"; });

}  // namespace
}  // namespace isthmus::testing_support::this_file
