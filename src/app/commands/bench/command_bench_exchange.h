// SPDX-License-Identifier: Apache-2.0
// `bench collectives CONFIG`: the ways in which its sites could exchange their largest fragment
// over its [[link]]s; with --out the fastest one for every size, as a table for net.table.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "app/common/commands.h"

namespace isthmus::app {

struct BenchExchangeArguments {
  std::filesystem::path config;
  std::vector<std::string> overrides;
  std::filesystem::path links;  // in the place of the file's; empty: those
  std::filesystem::path out;    // a table of ways to write instead (net.table); empty: none
};

[[nodiscard]] int command_bench_exchange(const BenchExchangeArguments& arguments, Session& session);

}  // namespace isthmus::app
