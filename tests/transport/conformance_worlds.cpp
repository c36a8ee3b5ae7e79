// SPDX-License-Identifier: Apache-2.0
#include "conformance_worlds.h"

#include "core/system_runtime.h"
#include "sim/world.h"
#include "transport/in_process_transport.h"

namespace isthmus::testing {
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

}  // namespace

std::vector<WorldKind> all_worlds() {
  return {
      {"SystemInProcess", [] { return std::make_unique<RealWorld>(); }},
      {"SimInProcess", [] { return std::make_unique<VirtualWorld>(SimWorldOptions{}); }},
      {"SimInProcessShuffled",
       [] { return std::make_unique<VirtualWorld>(SimWorldOptions{.shuffle = true}); }},
  };
}

}  // namespace isthmus::testing
