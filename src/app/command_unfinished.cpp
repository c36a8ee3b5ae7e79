// SPDX-License-Identifier: Apache-2.0
// Commands whose parts are still being built: they refuse by name.
#include <fmt/format.h>

#include "app/commands.h"

namespace isthmus::app {
namespace {

[[noreturn]] void refuse(const char* name) {
  throw UsageError(fmt::format("'{}' is not in this version", name));
}

}  // namespace

int command_bench_compute(Session&) { refuse("bench compute"); }
int command_bench_sim(Session&) { refuse("bench sim"); }

}  // namespace isthmus::app
