// SPDX-License-Identifier: Apache-2.0
// The flags of every command. The only includer of CLI11.
#include "app/cli.h"

#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <functional>
#include <map>
#include <memory>

#include "app/build_info.h"
#include "app/cli_errors.h"
#include "app/commands.h"
#include "core/log.h"
#include "core/suggest.h"

namespace isthmus::app {
namespace {

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
  DemoArguments demo;
  InitArguments init;
  InspectArguments inspect;
  ExplainArguments explain;
  DataArguments data;
  ImportArguments import;
  ExportArguments model_export;
  ReportArguments report;
  BenchCodecArguments bench_codec;
  BenchComputeArguments bench_compute;
  std::string shell;
};

template <typename Value>
CLI::Option* repeated(CLI::App& app, const std::string& name, std::vector<Value>& values,
                      const std::string& text) {
  return app.add_option(name, values, text)->allow_extra_args(false)->take_all();
}

void add_run_flags(CLI::App& command, TrainArguments& arguments, int& workers) {
  command.add_option("CONFIG", arguments.config, "TOML file that describes the run")->required();
  repeated(command, "--set", arguments.overrides, "override a key: --set outer.H=50")
      ->type_name("KEY=VALUE");
  command.add_option("--workers", workers, "as --set run.workers=N")->check(CLI::PositiveNumber);
  command.add_option("--out", arguments.out, "folder to write into (default: run.out)");
  command
      .add_option("--resume", arguments.resume,
                  "go on from the newest checkpoint of the folder (auto), from PATH, or never")
      ->expected(0, 1)
      ->type_name("[auto|PATH|never]");
  command.add_flag("--force", arguments.force, "replace the run that is in the folder");
  command.add_flag("--dry-run", arguments.dry_run,
                   "check everything, print memory, bytes and time, train nothing");
}

/// `--resume` alone means auto; `--resume run.toml` took the CONFIG for its value.
void settle_resume(const CLI::App& command, TrainArguments& arguments, int workers) {
  if (command.count("--resume") > 0 && arguments.resume.empty()) {
    arguments.resume = "auto";
  }
  if (workers > 0) {
    arguments.overrides.push_back(fmt::format("run.workers={}", workers));
  }
}

LinkConfig link_of_flag(const std::string& text) {
  try {
    return parse_link(text);
  } catch (const ConfigError& error) {
    throw UsageError(fmt::format("--link: {}", error.what()));
  }
}

CLI::App* subcommand(CLI::App& app, const std::string& name, const std::string& text) {
  CLI::App* command = app.add_subcommand(name, text);
  command->fallthrough();
  command->set_help_flag("-h,--help", "show this help");
  return command;
}

void add_run_commands(CLI::App& app, Parsed& parsed) {
  CLI::App* demo =
      subcommand(app, "demo", "train a small model in two pretend datacentres, with a report");
  demo->add_option("--out", parsed.demo.out, "folder to write into");
  demo->add_option("--seed", parsed.demo.seed, "seed of everything random");
  demo->callback([&parsed] {
    parsed.action = [&parsed](Session& session) { return command_demo(parsed.demo, session); };
  });

  CLI::App* init = subcommand(app, "init", "write a commented configuration");
  init->add_option("DIR", parsed.init.directory, "folder to write into");
  init->add_option("--template", parsed.init.name, "which one: " + join(template_names()));
  init->add_flag("--force", parsed.init.force, "replace a file that is there");
  init->callback([&parsed] {
    parsed.action = [&parsed](Session& session) { return command_init(parsed.init, session); };
  });

  CLI::App* train = subcommand(app, "train", "train on this machine");
  add_run_flags(*train, parsed.train, parsed.workers);
  train->callback([&parsed, train] {
    settle_resume(*train, parsed.train, parsed.workers);
    parsed.action = [&parsed](Session& session) { return command_train(parsed.train, session); };
  });

  CLI::App* simulate =
      subcommand(app, "simulate", "train as `train` does, bit for bit, over simulated links");
  add_run_flags(*simulate, parsed.simulate, parsed.workers);
  repeated(*simulate, "--link", parsed.links, "link between all sites, instead of the file's")
      ->type_name("RATE,RTT[,LOSS]");
  simulate->callback([&parsed, simulate] {
    settle_resume(*simulate, parsed.simulate, parsed.workers);
    for (const std::string& text : parsed.links) {
      parsed.simulate.links.push_back(link_of_flag(text));
    }
    parsed.action = [&parsed](Session& session) {
      return command_simulate(parsed.simulate, session);
    };
  });

  CLI::App* report = subcommand(app, "report", "make an HTML page of one or more runs");
  report->add_option("RUN", parsed.report.runs, "run folders; the first is the baseline")
      ->required();
  report->add_option("--out", parsed.report.out, "page to write (default: RUN/report.html)");
  report->add_option("--csv", parsed.report.csv, "folder for tables as CSV, instead of the page");
  report->add_option("--title", parsed.report.title, "heading of the page");
  report->callback([&parsed] {
    parsed.action = [&parsed](Session& session) { return command_report(parsed.report, session); };
  });
}

void add_data_command(CLI::App& app, Parsed& parsed) {
  CLI::App* data = subcommand(app, "data", "look at, make or check training data");
  data->require_subcommand(1);
  const auto set_action = [&parsed](DataArguments::Action action) {
    return [&parsed, action] {
      parsed.data.action = action;
      parsed.action = [&parsed](Session& session) { return command_data(parsed.data, session); };
    };
  };
  CLI::App* inspect = subcommand(*data, "inspect", "tokens, bytes and a sample of a source");
  inspect->add_option("SOURCE", parsed.data.source, "a file, text:GLOB, tokens:GLOB or synth:NAME")
      ->required();
  inspect->callback(set_action(DataArguments::Action::kInspect));
  CLI::App* verify = subcommand(*data, "verify", "read every token and check it");
  verify->add_option("SOURCE", parsed.data.source, "as for inspect")->required();
  verify->callback(set_action(DataArguments::Action::kVerify));
  CLI::App* synth = subcommand(*data, "synth", "write synthetic tokens of known entropy");
  synth->add_option("NAME", parsed.data.source, "synth:NAME")->required();
  synth->add_option("OUT", parsed.data.out, "token file to write (llm.c layout)")->required();
  synth->add_option("--tokens", parsed.data.tokens, "how many")->check(CLI::PositiveNumber);
  synth->add_option("--seed", parsed.data.seed, "seed");
  synth->callback(set_action(DataArguments::Action::kSynth));
}

void add_file_commands(CLI::App& app, Parsed& parsed) {
  CLI::App* inspect = subcommand(
      app, "inspect", "show a configuration, run, checkpoint, model folder, tensor or token file");
  inspect->add_option("PATH", parsed.inspect.path, "what to look at")->required();
  repeated(*inspect, "--set", parsed.inspect.overrides, "override a key of a configuration")
      ->type_name("KEY=VALUE");
  inspect->add_flag("--tensors", parsed.inspect.tensors, "list every tensor");
  inspect->callback([&parsed] {
    parsed.action = [&parsed](Session& session) {
      return command_inspect(parsed.inspect, session);
    };
  });

  CLI::App* import = subcommand(app, "import", "check a Hugging Face model folder and copy it in");
  import->add_option("HF_DIR", parsed.import.from, "folder with config.json")->required();
  import->add_option("OUT", parsed.import.to, "folder to write")->required();
  import->callback([&parsed] {
    parsed.action = [&parsed](Session& session) { return command_import(parsed.import, session);
};
}  // namespace
);

CLI::App* exporting = subcommand(app, "export", "write a trained model for other tools");
exporting->add_option("FROM", parsed.model_export.from, "run folder or checkpoint")->required();
exporting->add_option("--to", parsed.model_export.format, "hf: as transformers loads it")
    ->check(CLI::IsMember({"hf"}))
    ->required();
exporting->add_option("DIR", parsed.model_export.to, "folder to write")->required();
exporting->callback([&parsed] {
  parsed.action = [&parsed](Session& session) {
    return command_export(parsed.model_export, session);
  };
});
add_data_command(app, parsed);
}  // namespace isthmus::app

void add_bench_command(CLI::App& app, Parsed& parsed) {
  CLI::App* bench = subcommand(app, "bench", "measure this machine; prints JSON lines");
  bench->require_subcommand(1);
  CLI::App* codec = subcommand(*bench, "codec", "speed, size and error of the codecs");
  codec->add_option("--codec", parsed.bench_codec.codec, "one codec (default: all)");
  CLI::Option* in =
      codec->add_option("--in", parsed.bench_codec.in, "raw little-endian fp32 file to encode");
  codec->add_option("--out", parsed.bench_codec.out, "where to write it decoded")->needs(in);
  codec->add_option("--bytes", parsed.bench_codec.bytes, "where to write it encoded")->needs(in);
  codec->callback([&parsed] {
    parsed.action = [&parsed](Session& session) {
      return command_bench_codec(parsed.bench_codec, session);
    };
  });
  CLI::App* compute = subcommand(*bench, "compute", "training step of reference models");
  repeated(*compute, "--config", parsed.bench_compute.workloads, "one workload (default: four)");
  compute->add_option("--threads", parsed.bench_compute.threads, "default: all cores");
  compute->add_option("--seconds", parsed.bench_compute.seconds, "of timed steps, each");
  compute->add_option("--batch", parsed.bench_compute.sequences, "sequences in a step");
  compute->callback([&parsed] {
    parsed.action = [&parsed](Session& session) {
      return command_bench_compute(parsed.bench_compute, session);
    };
  });
  subcommand(*bench, "sim", "scheduler switches a second")->callback([&parsed] {
    parsed.action = command_bench_sim;
  });
}

/// Every command with its flags, nested ones as "data inspect".
void gather(const CLI::App& app, const std::string& prefix, std::vector<CommandFlags>& commands) {
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; })) {
    CommandFlags flags;
    flags.name = prefix.empty() ? command->get_name() : prefix + " " + command->get_name();
    flags.summary = command->get_description();
    for (const CLI::Option* option : command->get_options()) {
      for (const std::string& name : option->get_lnames()) {
        flags.flags.push_back("--" + name);
      }
    }
    commands.push_back(flags);
    gather(*command, flags.name, commands);
  }
}

void add_word_commands(CLI::App& app, Parsed& parsed) {
  subcommand(app, "doctor", "what this machine and this build can do")->callback([&parsed] {
    parsed.action = command_doctor;
  });
  CLI::App* explain = subcommand(app, "explain", "explain a key, section, error, method or codec");
  explain->add_option("TOPIC", parsed.explain.topic, "outer.alpha, E-RANGE, diloco, int8, ...")
      ->required();
  explain->callback([&parsed] {
    parsed.action = [&parsed](Session& session) {
      return command_explain(parsed.explain, session);
    };
  });
  subcommand(app, "methods", "the outer methods of this build")->callback([&parsed] {
    parsed.action = command_methods;
  });
  CLI::App* completion = subcommand(app, "completion", "print a completion script for a shell");
  completion->add_option("SHELL", parsed.shell, "bash, zsh or fish")->required();
  completion->callback([&parsed, &app] {
    parsed.action = [&parsed, &app](Session& session) {
      std::vector<CommandFlags> commands;
      gather(app, "", commands);
      session.out.write(completion_script(parsed.shell, commands));
      return 0;
    };
  });
}

void add_global_flags(CLI::App& app, Parsed& parsed) {
  app.add_flag("-q,--quiet", parsed.quiet, "warnings and errors only");
  app.add_flag("-v,--verbose", parsed.verbose, "more words");
  app.add_flag("--json", parsed.json, "machine-readable output on stdout");
  app.add_option("--color", parsed.color, "auto, always or never")
      ->transform(CLI::Transformer(std::map<std::string, ColorMode>{{"auto", ColorMode::kAuto},
                                                                    {"always", ColorMode::kAlways},
                                                                    {"never", ColorMode::kNever}}))
      ->type_name("WHEN");
  app.add_option("--progress", parsed.progress, "auto, plain, none or json")
      ->transform(
          CLI::Transformer(std::map<std::string, ProgressMode>{{"auto", ProgressMode::kAuto},
                                                               {"plain", ProgressMode::kPlain},
                                                               {"none", ProgressMode::kNone},
                                                               {"json", ProgressMode::kJson}}))
      ->type_name("HOW");
}

std::unique_ptr<CLI::App> make_parser(Parsed& parsed) {
  auto app = std::make_unique<CLI::App>(
      "isthmus: one model, trained by clusters that are joined only by thin links", "isthmus");
  const BuildInfo build = build_info();
  app->set_version_flag("--version", fmt::format("isthmus {} ({})", build.version, build.git));
  app->set_help_flag("-h,--help", "show this help");
  app->get_formatter()->column_width(28);
  app->require_subcommand(1);
  add_global_flags(*app, parsed);
  add_run_commands(*app, parsed);
  add_file_commands(*app, parsed);
  add_word_commands(*app, parsed);
  add_bench_command(*app, parsed);
  return app;
}

/// What was misspelt, for a parse that failed. THROWS: UsageError, always.
[[noreturn]] void explain_parse_error(const CLI::App& app, const CLI::ParseError& error) {
  std::vector<std::string> flags;
  std::string command = "isthmus";
  std::vector<std::string> unknown = app.remaining();
  const auto add_flags = [&flags](const CLI::App& from) {
    for (const CLI::Option* option : from.get_options()) {
      for (const std::string& name : option->get_lnames()) {
        flags.push_back("--" + name);
      }
    }
  };
  add_flags(app);
  const CLI::App* at = &app;
  while (!at->get_subcommands().empty()) {
    at = at->get_subcommands().front();
    command += " " + at->get_name();
    add_flags(*at);
    const auto more = at->remaining();
    unknown.insert(unknown.end(), more.begin(), more.end());
  }
  const std::string see = fmt::format("see `{} --help`", command);
  for (const std::string& word : unknown) {
    if (word.starts_with("-") && word.size() > 1) {
      const std::string name = word.substr(0, word.find('='));
      const auto near = closest(name, flags);
      throw UsageError(fmt::format("{}: unknown flag '{}'; {}{}", command, name,
                                   near ? fmt::format("did you mean '{}'? ", *near) : "", see));
    }
  }
  std::vector<std::string> names;
  for (const CLI::App* each : at->get_subcommands([](const CLI::App*) { return true; })) {
    names.push_back(each->get_name());
  }
  if (!unknown.empty() && !names.empty()) {
    const auto near = closest(unknown.front(), names);
    throw UsageError(fmt::format("{}: no command '{}'; {}there are {}", command, unknown.front(),
                                 near ? fmt::format("did you mean '{}'? ", *near) : "",
                                 join(names)));
  }
  if (!unknown.empty()) {
    throw UsageError(
        fmt::format("{}: unexpected argument '{}'; {}", command, unknown.front(), see));
  }
  throw UsageError(fmt::format("{}: {}; {}", command, error.what(), see));
}

int parse_and_run(const std::vector<std::string>& arguments, Parsed& parsed) {
  refuse_later_command(arguments);
  const auto app = make_parser(parsed);
  try {
    // CLI11 takes the words in reverse order.
    std::vector<std::string> reversed(arguments.rbegin(), arguments.rend());
    app->parse(std::move(reversed));
  } catch (const CLI::Success& wish) {
    return app->exit(wish);  // --help, --version
  } catch (const CLI::ParseError& error) {
    explain_parse_error(*app, error);
  }
  Terminal out(STDOUT_FILENO, parsed.color);
  Terminal err(STDERR_FILENO, parsed.color);
  set_log_level(parsed.quiet         ? LogLevel::kWarning
                : parsed.verbose > 0 ? LogLevel::kDebug
                                     : LogLevel::kInfo);
  Session session{.out = out,
                  .err = err,
                  .argv = arguments,
                  .quiet = parsed.quiet,
                  .verbose = parsed.verbose,
                  .json = parsed.json,
                  .progress = parsed.quiet ? ProgressMode::kNone : parsed.progress};
  const int code = parsed.action(session);
  require_written(out);
  return code;
}

}  // namespace

int run_command_line(const std::vector<std::string>& arguments) {
  Parsed parsed;
  // Known before the parse, so that even a parse error is told in the form asked for.
  const bool json = std::find(arguments.begin(), arguments.end(), "--json") != arguments.end();
  return report_errors(json, [&] { return parse_and_run(arguments, parsed); });
}

}  // namespace isthmus::app
