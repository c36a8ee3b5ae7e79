// SPDX-License-Identifier: Apache-2.0
// Names that are looked up by a task of their own.
#include "transport/links/name_lookup.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "core/base/system_runtime.h"
#include "transport/links/link_names.h"

namespace isthmus::this_file {
namespace {

using namespace std::chrono_literals;
using ::testing::ElementsAre;

TEST(NameLookup, TellsOnceWhatItHasFound) {
  SystemRuntime runtime;
  const std::unique_ptr<WaitQueue> server = runtime.make_wait_queue();
  bool answers = false;
  std::vector<std::string> asked;  // under the lock of `server`
  NameLookup names(runtime, [&](const std::string& host, int port) {
    if (host == "::1") return resolve_tcp(host, port);
    (void)server->wait([&] { return answers; }, kNever);
    server->update([&] { asked.push_back(host); });
    return host == "a.example.org" ? resolve_tcp("127.0.0.1", port)
                                   : NameLookup::Found(Unexpected<std::string>("none"));
  });
  names.ask(0, "a.example.org", 1);
  names.ask(1, "b.example.org", 2);
  names.ask(0, "a.example.org", 1);
  names.ask(2, "::1", 3);
  EXPECT_FALSE(names.take(0));
  EXPECT_TRUE(names.under_way(0));
  EXPECT_TRUE(names.under_way(1));
  EXPECT_TRUE(names.take(2)->has_value());
  server->update([&] { answers = true; });
  const TimePoint deadline = runtime.clock().now() + 30s;
  while (names.under_way(1) && runtime.clock().now() < deadline) {
    (void)server->wait([] { return false; }, runtime.clock().now() + 1ms);
  }
  EXPECT_TRUE(names.take(0)->has_value());
  EXPECT_EQ(names.take(1)->error(), "none");
  EXPECT_FALSE(names.take(0));
  server->update([&] { EXPECT_THAT(asked, ElementsAre("a.example.org", "b.example.org")); });
}

// A name that is unknown at first is told of once, with who and why, asked for again, and told of
// when it has an address; a name that is known says nothing.
TEST(LinkNames, TellsWhoseNameHasNoAddressAndWhenItHasOne) {
  SystemRuntime runtime;
  std::atomic<bool> known = false;
  std::atomic<int> asked = 0;
  std::vector<std::string> said;
  MemberOptions options{.self = WorkerId(0), .members = 4};
  options.expected_names = {"east", "west", "north", "south"};
  LinkNames names(
      runtime, options, [&](const LinkEvent& event) { said.push_back(event.text); },
      [&](const std::string& host, int port) {
        ++asked;
        return host == "west.example.org" && !known
                   ? NameLookup::Found(Unexpected<std::string>("Name or service not known"))
                   : resolve_tcp("127.0.0.1", port);
      });
  names.begin(std::vector<std::string>{"tcp://east.example.org:1", "tcp://west.example.org:2",
                                       "tcp://north.example.org:3", "tcp://[::1]:4"});
  const std::vector<WorkerId> others = {WorkerId(1), WorkerId(2), WorkerId(3)};
  TimePoint now{};
  const TimePoint deadline = runtime.clock().now() + 30s;
  const auto look_until = [&](const std::function<bool()>& ready) {
    const std::unique_ptr<WaitQueue> pause = runtime.make_wait_queue();
    while (!ready() && runtime.clock().now() < deadline) {
      names.look(now += 1s);
      (void)pause->wait([] { return false; }, runtime.clock().now() + 1ms);
    }
  };
  look_until([&] { return !said.empty(); });
  ASSERT_EQ(said.size(), 1U);
  EXPECT_NE(said[0].find("west cannot be dialled: west.example.org: Name or service not known"),
            std::string::npos)
      << said[0];
  EXPECT_EQ(names.troubles(others), "; west.example.org: Name or service not known");
  EXPECT_EQ(names.troubles(std::vector<WorkerId>{WorkerId(2)}), "");
  look_until([&] { return asked >= 4; });  // told of once, asked for on and on
  EXPECT_EQ(said.size(), 1U);
  known = true;
  look_until([&] { return said.size() == 2; });
  EXPECT_THAT(said, ElementsAre(said[0], "west.example.org has an address now"));
  EXPECT_EQ(names.troubles(others), "");
}

}  // namespace
}  // namespace isthmus::this_file
