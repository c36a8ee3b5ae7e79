// SPDX-License-Identifier: Apache-2.0
// The worlds in which the same test bodies run: a runtime, a way to run a body in it, and
// endpoints.
#pragma once

#include <functional>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "isthmus/runtime.h"
#include "transport/wire/transport.h"

namespace isthmus::testing_support {

/// One world, made fresh for each test.
class World {
 public:
  virtual ~World() = default;
  [[nodiscard]] virtual Runtime& runtime() = 0;
  /// Runs `body` as the world's first task.
  virtual void run(const std::function<void()>& body) = 0;
  [[nodiscard]] virtual std::vector<std::unique_ptr<Transport>> endpoints(int members) = 0;
};

struct WorldKind {
  std::string name;
  std::function<std::unique_ptr<World>()> make;
  std::string absent = {};  // why it cannot be made; its tests are skipped
};
inline void PrintTo(const WorldKind& kind, std::ostream* out) { *out << kind.name; }

[[nodiscard]] std::vector<WorldKind> all_worlds();
/// The same, and those whose only difference is the transport.
[[nodiscard]] std::vector<WorldKind> all_transport_worlds();

}  // namespace isthmus::testing_support
