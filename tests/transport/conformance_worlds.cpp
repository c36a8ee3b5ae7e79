// SPDX-License-Identifier: Apache-2.0
#include "conformance_worlds.h"

#include "core/base/system_runtime.h"
#include "sim/network.h"
#include "sim/world.h"
#include "transport/links/zmq/zmq_transport.h"
#include "transport/wire/in_process_transport.h"
#include "zmq_members.h"

namespace isthmus::testing_support {
namespace {

class RealWorld final : public World {
 public:
  [[nodiscard]] Runtime& runtime() override { return runtime_; }
  void run(const std::function<void()>& body) override { body(); }
  [[nodiscard]] std::vector<std::unique_ptr<Transport>> endpoints(int members) override {
    return make_in_process_transports(runtime_, members);
  }

 private:
  SystemRuntime runtime_;
};

class VirtualWorld final : public World {
 public:
  explicit VirtualWorld(const SimWorldOptions& options) : world_(kSeed, options) {}
  [[nodiscard]] Runtime& runtime() override { return world_; }
  void run(const std::function<void()>& body) override { world_.run(body); }
  [[nodiscard]] std::vector<std::unique_ptr<Transport>> endpoints(int members) override {
    return make_in_process_transports(world_, members);
  }

 private:
  static constexpr std::uint64_t kSeed = 7;
  SimWorld world_;
};

class ZmqWorld final : public World {
 public:
  [[nodiscard]] Runtime& runtime() override { return runtime_; }
  void run(const std::function<void()>& body) override { body(); }
  [[nodiscard]] std::vector<std::unique_ptr<Transport>> endpoints(int members) override {
    std::vector<std::unique_ptr<Transport>> ends;
    for (auto& end : joined_members(runtime_, members)) ends.push_back(std::move(end));
    return ends;
  }

 private:
  SystemRuntime runtime_;
};

/// Frames take time here, so what holds in the other worlds must hold although they are on the way.
class VirtualWorldWithLinks final : public World {
 public:
  explicit VirtualWorldWithLinks(LinkModel model) : world_(kSeed), model_(model) {}
  [[nodiscard]] Runtime& runtime() override { return world_; }
  void run(const std::function<void()>& body) override { world_.run(body); }
  [[nodiscard]] std::vector<std::unique_ptr<Transport>> endpoints(int members) override {
    const DirectedLink link{.bits_per_s = 100'000'000,
                            .one_way = std::chrono::milliseconds(25),
                            .jitter = std::chrono::milliseconds(5),
                            .loss = 0.001,
                            .streams = 4,
                            .congestion = Congestion::kCubic};
    network_ = std::make_unique<SimNetwork>(world_, members, uniform_links(members, link),
                                            NetworkOptions{.link = {.model = model_}});
    return network_->endpoints();
  }

 private:
  static constexpr std::uint64_t kSeed = 7;
  SimWorld world_;
  LinkModel model_;
  std::unique_ptr<SimNetwork> network_;
};

}  // namespace

std::vector<WorldKind> all_worlds() {
  return {
      {"SystemInProcess", [] { return std::make_unique<RealWorld>(); }},
      {"SimInProcess", [] { return std::make_unique<VirtualWorld>(SimWorldOptions{}); }},
      {"SimInProcessShuffled",
       [] { return std::make_unique<VirtualWorld>(SimWorldOptions{.shuffle = true}); }},
      {"SimPlainLinks", [] { return std::make_unique<VirtualWorldWithLinks>(LinkModel::kPlain); }},
      {"SimTcpLinks", [] { return std::make_unique<VirtualWorldWithLinks>(LinkModel::kTcp); }},
  };
}

std::vector<WorldKind> all_transport_worlds() {
  std::vector<WorldKind> worlds = all_worlds();
  worlds.push_back({"ZmqLoopback", [] { return std::make_unique<ZmqWorld>(); }});
  if (zmq_version().empty()) {
    worlds.back().absent = "this build has no ZeroMQ";
  }
  return worlds;
}

}  // namespace isthmus::testing_support
