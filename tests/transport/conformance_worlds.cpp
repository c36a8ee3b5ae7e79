// SPDX-License-Identifier: Apache-2.0
#include "conformance_worlds.h"

#include "core/system_runtime.h"
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

}  // namespace

std::vector<WorldKind> all_worlds() {
  return {{"SystemInProcess", [] { return std::make_unique<RealWorld>(); }}};
}

}  // namespace isthmus::testing
