// SPDX-License-Identifier: Apache-2.0
// `bench collectives CONFIG`: compares algorithms for the exchange of the sites' largest fragment
// over the [[link]]s.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "app/common/commands.h"

namespace isthmus::app {

struct BenchExchangeArguments {
  std::filesystem::path config;
  std::vector<std::string> overrides;
  std::filesystem::path links;  // replaces the file's links; empty: the file's links
};

[[nodiscard]] int command_bench_exchange(const BenchExchangeArguments& arguments, Session& session);

}  // namespace isthmus::app
