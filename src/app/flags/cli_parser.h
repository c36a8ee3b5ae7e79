// SPDX-License-Identifier: Apache-2.0
// The parser of the command line: every command, every flag. Internal to cli*.cpp, the only users
// of CLI11.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "app/commands/bench/link_commands.h"
#include "app/commands/command_replay.h"
#include "app/commands/command_runs.h"
#include "app/commands/inference_commands.h"
#include "app/commands/plan/command_plan.h"
#include "app/commands/tokenize_commands.h"
#include "app/common/commands.h"

namespace isthmus::app {

using Action = std::function<int(Session&)>;

/// Values of the global flags, and the action of the chosen command.
struct Parsed {
  bool quiet = false;
  int verbose = 0;
  bool json = false;
  ColorMode color = ColorMode::kAuto;
  ProgressMode progress = ProgressMode::kAuto;
  Action action;
  // Arguments of the commands. They must live as long as the parser that fills them.
  TrainArguments train;
  SimulateArguments simulate;
  bool simulate_kernel = false;
  std::vector<std::string> links;
  std::filesystem::path simulate_links_file, plan_links_file;
  int workers = 0;
  LaunchArguments launch;
  HubArguments hub;
  CompareArguments compare;
  int seeds = 0;
  std::string only, require;
  DemoArguments demo;
  InitArguments init;
  KeygenArguments keygen;
  InspectArguments inspect;
  ExplainArguments explain;
  DataArguments data;
  TokenizeArguments tokenize;
  TrainTokenizerArguments train_tokenizer;
  EvalArguments eval;
  GenerateArguments generate;
  ImportArguments model_import;
  ExportArguments model_export;
  ReplayArguments replay;
  RunsArguments runs;
  std::filesystem::path run;
  MergeArguments merge;
  ReportArguments report;
  StatusArguments status;
  BenchCodecArguments bench_codec;
  BenchComputeArguments bench_compute;
  BenchLinkArguments bench_link;
  DoctorSiteArguments doctor_site;
  PlanUtilisationArguments plan_utilisation;
  PlanMeshArguments plan_mesh;
  PlanPipelineArguments plan_pipeline;
  std::string shell;
};

/// A command under `app` that also takes the global flags. help: what `--help` says below the
/// flags.
CLI::App* subcommand(CLI::App& app, const std::string& name, const std::string& text,
                     std::string_view help = {});

/// `action` is what a parse that names `command` comes to.
void set_action(CLI::App& command, Parsed& parsed, Action action);
/// The same: `run` with `arguments`, which must outlive the parse.
template <typename Arguments>
void set_action(CLI::App& command, Parsed& parsed, int (*run)(const Arguments&, Session&),
                const Arguments& arguments) {
  set_action(command, parsed,
             [run, &arguments](Session& session) { return run(arguments, session); });
}
/// The same with arguments that the flags fill and the action keeps.
template <typename Arguments>
void set_action(CLI::App& command, Parsed& parsed, int (*run)(const Arguments&, Session&),
                std::shared_ptr<Arguments> arguments) {
  set_action(command, parsed,
             [run, arguments](Session& session) { return run(*arguments, session); });
}

/// A flag, or an argument, with one value, which the help calls `type` ("": it has no word for it).
template <typename Value>
CLI::Option* option(CLI::App& app, const std::string& name, const std::string& type, Value& value,
                    const std::string& text) {
  return app.add_option(name, value, text)->type_name(type);
}
/// A flag that may be given several times, one value each.
template <typename Value>
CLI::Option* repeated(CLI::App& app, const std::string& name, const std::string& type,
                      std::vector<Value>& values, const std::string& text) {
  return option(app, name, type, values, text)->allow_extra_args(false)->take_all();
}

/// --recompute [none|selective|full] into `target`; without a value: full (cli_bench.cpp).
void add_recompute(CLI::App& command, std::string& target, const std::string& text);
/// `arguments` with --recompute=full for a flag without a value: CLI11 would take the next word,
/// such as CONFIG, as its value.
[[nodiscard]] std::vector<std::string> recompute_alone_is_full(std::vector<std::string> arguments);

/// CONFIG, --set, --out, --resume, --force (cli_parser.cpp).
void add_configuration_flags(CLI::App& command, TrainArguments& arguments);
/// --http, for commands that run (cli_status.cpp).
void add_http_flag(CLI::App& command, TrainArguments& arguments);
/// --device, for commands that train for real (cli_launch.cpp).
void add_device_flag(CLI::App& command, TrainArguments& arguments);
/// `status` (cli_status.cpp).
void add_status_command(CLI::App& app, Parsed& parsed);
/// `launch` (cli_launch.cpp).
void add_launch_command(CLI::App& app, Parsed& parsed);
/// `hub` (cli_hub.cpp).
void add_hub_command(CLI::App& app, Parsed& parsed);
/// `compare` (cli_compare.cpp).
void add_compare_command(CLI::App& app, Parsed& parsed);
/// `keygen` (cli_keygen.cpp).
void add_keygen_command(CLI::App& app, Parsed& parsed);
/// `data tokenize` and `data train-tokenizer` (cli_tokenize.cpp).
void add_tokenize_commands(CLI::App& data, Parsed& parsed);
/// `eval` and `generate` (cli_inference.cpp).
void add_inference_commands(CLI::App& app, Parsed& parsed);
/// `replay` (cli_replay.cpp).
void add_replay_command(CLI::App& app, Parsed& parsed);
/// `runs` with its subcommands, `merge` (cli_runs.cpp).
void add_runs_commands(CLI::App& app, Parsed& parsed);
/// `bench` with its subcommands (cli_bench.cpp).
void add_bench_command(CLI::App& app, Parsed& parsed);
/// `doctor` (cli_bench.cpp).
void add_doctor_command(CLI::App& app, Parsed& parsed);
/// `plan` with its subcommands (cli_plan.cpp).
void add_plan_command(CLI::App& app, Parsed& parsed);
/// `plan mesh` and `plan pipeline` (cli_plan_mesh.cpp).
void add_plan_mesh_command(CLI::App& plan, Parsed& parsed);
void add_plan_pipeline_command(CLI::App& plan, Parsed& parsed);

/// A parser that fills `parsed`, which must outlive it.
[[nodiscard]] std::unique_ptr<CLI::App> make_parser(Parsed& parsed);

}  // namespace isthmus::app
