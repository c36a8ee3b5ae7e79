// SPDX-License-Identifier: Apache-2.0
// Names that are looked up by a task of their own.
#include "transport/links/name_lookup.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <vector>

#include "core/base/system_runtime.h"

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

}  // namespace
}  // namespace isthmus::this_file
