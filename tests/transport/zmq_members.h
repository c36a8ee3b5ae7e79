// SPDX-License-Identifier: Apache-2.0
// Members of one run on this machine, joined over loopback; ports come from the system.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "isthmus/runtime.h"
#include "transport/links/zmq/zmq_transport.h"

namespace isthmus::testing_support {

/// Events as they come; read under the runtime's wait queue.
class EventLog {
 public:
  explicit EventLog(Runtime& runtime) : queue_(runtime.make_wait_queue()), runtime_(runtime) {}
  void record(const LinkEvent& event) {
    queue_->update([&] { events_.push_back(event); });
  }
  /// Waits until there is one of this kind whose text has this in it.
  bool wait_for(LinkEvent::Kind kind, const std::string& text) {
    return queue_->wait([&] { return found(kind, text); },
                        runtime_.clock().now() + std::chrono::seconds(30));
  }
  bool has(LinkEvent::Kind kind, const std::string& text) {
    bool has = false;
    queue_->update([&] { has = found(kind, text); });
    return has;
  }
  /// How many have this in their text.
  int count(const std::string& text) {
    std::ptrdiff_t count = 0;
    queue_->update([&] {
      count = std::ranges::count_if(events_, [&](const LinkEvent& event) {
        return event.text.find(text) != std::string::npos;
      });
    });
    return static_cast<int>(count);
  }

 private:
  [[nodiscard]] bool found(LinkEvent::Kind kind, const std::string& text) const {
    return std::ranges::any_of(events_, [&](const LinkEvent& event) {
      return event.kind == kind && event.text.find(text) != std::string::npos;
    });
  }

  std::unique_ptr<WaitQueue> queue_;
  Runtime& runtime_;
  std::vector<LinkEvent> events_;
};

/// Changes the options of one member before it binds.
using Tweak = std::function<void(MemberOptions&)>;

inline std::vector<std::unique_ptr<NetworkTransport>> bind_members(Runtime& runtime, int members,
                                                                   const Tweak& tweak = {}) {
  std::vector<std::unique_ptr<NetworkTransport>> ends;
  for (int rank = 0; rank < members; ++rank) {
    MemberOptions options{.self = WorkerId(rank),
                          .members = members,
                          .streams = 2,
                          .dead_after = std::chrono::minutes(2),
                          .gone_after = std::chrono::minutes(2)};
    if (tweak) tweak(options);
    ends.push_back(make_zmq_transport(runtime, options));
  }
  return ends;
}

inline std::vector<std::string> endpoints_of(
    const std::vector<std::unique_ptr<NetworkTransport>>& ends) {
  std::vector<std::string> endpoints;
  for (const auto& end : ends) endpoints.push_back(end->endpoint());
  return endpoints;
}

/// Binds, joins, and waits until all have found one another.
inline std::vector<std::unique_ptr<NetworkTransport>> joined_members(Runtime& runtime, int members,
                                                                     const Tweak& tweak = {}) {
  auto ends = bind_members(runtime, members, tweak);
  const std::vector<std::string> endpoints = endpoints_of(ends);
  for (const auto& end : ends) end->join(endpoints);
  for (const auto& end : ends) {
    const auto joined = end->await_members(runtime.clock().now() + std::chrono::minutes(1));
    EXPECT_TRUE(joined.has_value()) << joined.error().what;
  }
  return ends;
}

}  // namespace isthmus::testing_support
