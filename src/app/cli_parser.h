// SPDX-License-Identifier: Apache-2.0
// The parser of the command line: every command, every flag. Internal to cli*.cpp, which alone know
// CLI11.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "app/commands.h"

namespace isthmus::app {

using Action = std::function<int(Session&)>;

/// Values of the global flags, and the action that the chosen command sets.
struct Parsed {
  bool quiet = false;
  int verbose = 0;
  bool json = false;
  ColorMode color = ColorMode::kAuto;
  ProgressMode progress = ProgressMode::kAuto;
  Action action;
  // Arguments of the commands; alive as long as the parser that fills them.
  TrainArguments train;
  SimulateArguments simulate;
  std::vector<std::string> links;
  int workers = 0;
  CompareArguments compare;
  int seeds = 0;
  std::string only, require;
  DemoArguments demo;
  InitArguments init;
  InspectArguments inspect;
  ExplainArguments explain;
  DataArguments data;
  ImportArguments model_import;
  ExportArguments model_export;
  ReportArguments report;
  BenchCodecArguments bench_codec;
  BenchComputeArguments bench_compute;
  std::string shell;
};

/// A parser that fills `parsed`, which must outlive it.
[[nodiscard]] std::unique_ptr<CLI::App> make_parser(Parsed& parsed);

}  // namespace isthmus::app
