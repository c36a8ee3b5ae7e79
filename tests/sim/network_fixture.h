// SPDX-License-Identifier: Apache-2.0
// Frames between the endpoints of a simulated network, and what arrives of them.
#pragma once

#include <algorithm>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "sim/network.h"

namespace isthmus::testing_support {

using std::chrono::milliseconds;
using std::chrono::seconds;

inline constexpr std::size_t kFrameBytes = 1000;
// A frame of 1000 bytes leaves in 1 ms and arrives 10 ms later.
inline constexpr DirectedLink kLink{.bits_per_s = 8'000'000, .one_way = milliseconds(10)};
inline constexpr Duration kSecondFrameArrives = milliseconds(12);

inline FrameBytes frame_of(std::uint8_t tag) {
  return std::make_shared<std::vector<std::byte>>(kFrameBytes, std::byte{tag});
}

class RecordingSink final : public EventSink {
 public:
  void record(const Event& event) override { events.push_back(event); }
  std::vector<Event> events;
};

/// What one receiver saw, in order: the frame's tag, or -1 - peer for the news that a peer is lost.
struct Seen {
  int what = 0;
  TimePoint when;
  bool intact = true;
};

inline std::vector<Seen> receive_until(Transport& transport, Runtime& runtime, TimePoint deadline) {
  std::vector<Seen> seen;
  while (true) {
    const auto received = transport.receive(deadline);
    if (!received && received.error().kind != TransportError::Kind::kPeerLost) return seen;
    Seen item{.what = 0, .when = runtime.clock().now()};
    if (received) {
      item.what = std::to_integer<int>((*received->bytes).back());
      item.intact =
          std::ranges::equal(*received->bytes, *frame_of(static_cast<std::uint8_t>(item.what)));
    } else {
      item.what = -1 - received.error().peer.value();
    }
    seen.push_back(item);
  }
}

inline std::vector<int> what_of(const std::vector<Seen>& seen) {
  std::vector<int> what;
  what.reserve(seen.size());
  for (const Seen& item : seen) what.push_back(item.what);
  return what;
}

/// Runs `body` in a world of `members` endpoints and returns what the faults counted.
using Body = std::function<void(std::vector<std::unique_ptr<Transport>>&, SimWorld&)>;
inline FaultCounts run(int members, NetworkOptions options, const Body& body,
                       std::uint64_t seed = 1) {
  SimWorld world(seed);
  SimNetwork network(world, members, uniform_links(members, kLink), std::move(options));
  world.run([&] {
    std::vector<std::unique_ptr<Transport>> ends = network.endpoints();
    body(ends, world);
  });
  return network.fault_counts();
}

/// Rank 0 sends `frames` frames to rank 1 at once; what arrives there.
inline std::vector<Seen> send_burst(int frames, const FaultPlan& faults,
                                    FaultCounts* counts = nullptr, std::uint64_t seed = 1) {
  std::vector<Seen> seen;
  NetworkOptions options;
  options.faults = faults;
  const FaultCounts counted = run(
      2, std::move(options),
      [&](auto& ends, SimWorld& world) {
        for (int i = 0; i < frames; ++i) {
          ends[0]->send(WorkerId(1), frame_of(static_cast<std::uint8_t>(i % 251)));
        }
        seen = receive_until(*ends[1], world, TimePoint(seconds(100)));
      },
      seed);
  if (counts != nullptr) *counts = counted;
  return seen;
}

}  // namespace isthmus::testing_support
