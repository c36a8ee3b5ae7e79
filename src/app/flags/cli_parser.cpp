// SPDX-License-Identifier: Apache-2.0
#include "app/flags/cli_parser.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "app/commands/command_frames.h"
#include "app/commands/kernel_emulation.h"
#include "app/commands/links_flag.h"
#include "app/common/text_table.h"
#include "app/flags/cli.h"
#include "core/base/suggest.h"
#include "record/build_info.h"

namespace isthmus::app {
namespace {

/// A flag that takes one of a few words.
template <typename Value>
void choice(CLI::App& app, const std::string& name, Value& value,
            const std::vector<std::pair<std::string, Value>>& words, const std::string& text) {
  std::vector<std::string> names;
  for (const auto& [word, meaning] : words) {
    names.push_back(word);
  }
  const auto take = [&value, words, names, name](const std::string& given) {
    const auto found = std::find_if(words.begin(), words.end(),
                                    [&](const auto& each) { return each.first == given; });
    if (found == words.end()) {
      throw CLI::ValidationError(name, fmt::format("'{}' is none of {}", given, join(names)));
    }
    value = found->second;
  };
  app.add_option_function<std::string>(name, take, text)->type_name(join(names, "|"));
}

void add_run_flags(CLI::App& command, TrainArguments& arguments, int& workers) {
  add_configuration_flags(command, arguments);
  option(command, "--workers", "N", workers, "as --set run.workers=N")->check(CLI::PositiveNumber);
  add_http_flag(command, arguments);
  command.add_flag("--dry-run", arguments.dry_run,
                   "check everything, print memory, bytes and time, train nothing");
}

void settle_workers(TrainArguments& arguments, int workers) {
  if (workers > 0) {
    arguments.from_flags.push_back({.text = fmt::format("run.workers={}", workers),
                                    .flag = "--workers",
                                    .given = std::to_string(workers)});
  }
}

LinkConfig link_of_flag(const std::string& text) {
  try {
    return parse_link(text);
  } catch (const ConfigError& error) {
    throw UsageError(fmt::format("--link: {}", error.what()));
  }
}

void add_run_commands(CLI::App& app, Parsed& parsed) {
  CLI::App* demo =
      subcommand(app, "demo", "train a small model on two simulated sites, with a report");
  option(*demo, "--out", "DIR", parsed.demo.out, "folder to write into");
  demo->add_option("--seed", parsed.demo.seed, "seed of everything random");
  set_action(*demo, parsed, command_demo, parsed.demo);

  CLI::App* init = subcommand(app, "init", "write a commented configuration");
  init->add_option("DIR", parsed.init.directory, "folder to write into");
  init->add_option("--template", parsed.init.name, "which one: " + join(template_names()));
  init->add_flag("--force", parsed.init.force, "replace a file that is there");
  set_action(*init, parsed, command_init, parsed.init);

  CLI::App* train =
      subcommand(app, "train", "train on this machine, or as one site of several (--site)");
  add_run_flags(*train, parsed.train, parsed.workers);
  add_device_flag(*train, parsed.train);
  SiteArguments& site = parsed.train.site;
  CLI::Option* name =
      option(*train, "--site", "NAME", site.name,
             "be this [[site]]; the others are other processes. auto: by the rank that Slurm, "
             "MPI, torchrun or Kubernetes gives");
  option(*train, "--listen", "HOST:PORT", site.listen,
         "where to listen (default: the port of the site's address, on all interfaces)")
      ->needs(name);
  option(*train, "--key", "FILE", site.key_file,
         "the site's secret key (default: keys/NAME.key beside CONFIG)")
      ->needs(name);
  // Shared by the flag, which fills it, and the action, which `parsed` keeps.
  const auto invitation = std::make_shared<std::string>();
  option(*train, "--invite", "STRING", *invitation,
         "what `isthmus hub invite` printed, of a site without a key in CONFIG (default: "
         "keys/NAME.invite beside it, if it is there)")
      ->needs(name);
  repeated(*train, "--address", "NAME=HOST:PORT", site.addresses,
           "where a site is reached, instead of the file's")
      ->needs(name);
  const auto record = std::make_shared<std::filesystem::path>();
  option(*train, "--record", "FILE", *record,
         "write down every frame that comes and goes, for `frames FILE`; the last 128 "
         "MiB of records are kept")
      ->needs(name);
  const auto links = add_links_flag(*train);
  train->callback([invitation, links, record, &parsed] {
    settle_workers(parsed.train, parsed.workers);
    parsed.action = [invitation, links, record, &parsed](Session& session) {
      return command_train(parsed.train, *invitation, *links, *record, session);
    };
  });

  CLI::App* simulate =
      subcommand(app, "simulate", "train as `train` does, bit for bit, over simulated links");
  add_run_flags(*simulate, parsed.simulate, parsed.workers);
  repeated(*simulate, "--link", "RATE,RTT[,LOSS]", parsed.links,
           "link between all sites, instead of the file's");
  option(*simulate, "--links", "FILE", parsed.simulate_links_file,
         "links file, as `bench link` writes it, instead of the file's links");
  simulate->add_flag("--emulate", parsed.simulate.emulate,
                     "in real time: threads and sockets of this machine behind the same links");
  simulate
      ->add_flag("--kernel", parsed.simulate_kernel,
                 "with a process and a network namespace a site, over the kernel's TCP; as root")
      ->needs("--emulate");
  simulate->callback([&parsed] {
    settle_workers(parsed.simulate, parsed.workers);
    for (const std::string& text : parsed.links) {
      parsed.simulate.links.push_back(link_of_flag(text));
    }
    parsed.action = [&parsed](Session& session) {
      return parsed.simulate_kernel
                 ? command_simulate_kernel(parsed.simulate, parsed.simulate_links_file, session)
                 : command_simulate(parsed.simulate, parsed.simulate_links_file, session);
    };
  });

  add_launch_command(app, parsed);
  add_compare_command(app, parsed);

  CLI::App* report =
      subcommand(app, "report", "make an HTML page of one or more runs, or of a comparison");
  report->add_option("RUN", parsed.report.runs, "run folders; the first is the baseline")
      ->required();
  report->add_option("--out", parsed.report.out, "page to write (default: RUN/report.html)");
  report->add_option("--csv", parsed.report.csv, "folder for tables as CSV, instead of the page");
  report->add_option("--title", parsed.report.title, "heading of the page");
  option(*report, "--links", "RATE,RTT ...", parsed.report.links,
         "simulated runs' time over other links, for example 1Gbit/s,30ms");
  set_action(*report, parsed, command_report, parsed.report);
}

void add_data_command(CLI::App& app, Parsed& parsed) {
  CLI::App* data = subcommand(app, "data", "look at, make or check training data");
  data->require_subcommand(1);
  const auto act = [&parsed](DataArguments::Action action) {
    return [&parsed, action] {
      parsed.data.action = action;
      parsed.action = [&parsed](Session& session) { return command_data(parsed.data, session); };
    };
  };
  CLI::App* inspect = subcommand(*data, "inspect", "tokens, bytes and a sample of a source");
  inspect->add_option("SOURCE", parsed.data.source, "a file, text:GLOB, tokens:GLOB or synth:NAME")
      ->required();
  inspect->callback(act(DataArguments::Action::kInspect));
  CLI::App* verify = subcommand(*data, "verify", "read every token and check it");
  verify->add_option("SOURCE", parsed.data.source, "as for inspect")->required();
  verify->callback(act(DataArguments::Action::kVerify));
  CLI::App* synth = subcommand(*data, "synth", "write synthetic tokens of known entropy");
  synth->add_option("NAME", parsed.data.source, "synth:NAME[:tokens=N,seed=S,...]")->required();
  synth->add_option("OUT", parsed.data.out, "token file to write (llm.c layout)")->required();
  synth
      ->add_option("--tokens", parsed.data.tokens,
                   "how many (default: what the spelling says, else 4Mi)")
      ->check(CLI::PositiveNumber);
  synth->add_option("--seed", parsed.data.seed, "seed (default: what the spelling says, else 0)");
  synth->callback(act(DataArguments::Action::kSynth));
  add_tokenize_commands(*data, parsed);
}

void add_file_commands(CLI::App& app, Parsed& parsed) {
  CLI::App* inspect = subcommand(
      app, "inspect", "show a configuration, run, checkpoint, model folder, tensor or token file");
  inspect->add_option("PATH", parsed.inspect.path, "what to look at")->required();
  repeated(*inspect, "--set", "KEY=VALUE", parsed.inspect.overrides,
           "override a key of a configuration");
  inspect->add_flag("--tensors", parsed.inspect.tensors, "list every tensor");
  set_action(*inspect, parsed, command_inspect, parsed.inspect);

  CLI::App* importing =
      subcommand(app, "import", "check a Hugging Face model folder and copy it in");
  importing->add_option("HF_DIR", parsed.model_import.from, "folder with config.json")->required();
  importing->add_option("OUT", parsed.model_import.to, "folder to write")->required();
  set_action(*importing, parsed, command_import, parsed.model_import);

  CLI::App* exporting = subcommand(app, "export", "write a model or records for other tools");
  exporting->add_option("FROM", parsed.model_export.from, "run, comparison or checkpoint")
      ->required();
  exporting
      ->add_option("--to", parsed.model_export.format,
                   "hf: the model, for transformers; peft: its adapters; a run's records: tb, csv, "
                   "chrome, mlperf")
      ->check(CLI::IsMember({"hf", "peft", "tb", "csv", "chrome", "mlperf"}))
      ->required();
  exporting->add_option("TO", parsed.model_export.to, "folder or file to write")->required();
  option(*exporting, "--base", "DIR", parsed.model_export.base,
         "with adapters: folder of the model that they stand beside (default: the run's "
         "model.init)");
  set_action(*exporting, parsed, [&parsed](Session& session) {
    const std::string& format = parsed.model_export.format;
    return format == "hf" || format == "peft" ? command_export(parsed.model_export, session)
                                              : command_export_run(parsed.model_export, session);
  });
  add_data_command(app, parsed);
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
  add_doctor_command(app, parsed);
  CLI::App* explain = subcommand(app, "explain", "explain a key, section, error, method or codec");
  explain->add_option("TOPIC", parsed.explain.topic, "outer.alpha, E-RANGE, diloco, int8, ...")
      ->required();
  set_action(*explain, parsed, command_explain, parsed.explain);
  set_action(*subcommand(app, "methods", "the outer methods of this build"), parsed,
             command_methods);
  CLI::App* completion = subcommand(app, "completion", "print a completion script for a shell");
  completion->add_option("SHELL", parsed.shell, "bash, zsh or fish")->required();
  set_action(*completion, parsed, [&parsed, &app](Session& session) {
    std::vector<CommandFlags> commands;
    gather(app, "", commands);
    session.out.write(completion_script(parsed.shell, commands));
    return 0;
  });
}

void add_global_flags(CLI::App& app, Parsed& parsed) {
  app.add_flag("-q,--quiet", parsed.quiet, "warnings and errors only");
  app.add_flag("-v,--verbose", parsed.verbose, "more messages");
  app.add_flag("--json", parsed.json, "machine-readable output on stdout");
  choice(app, "--color", parsed.color,
         {{"auto", ColorMode::kAuto}, {"always", ColorMode::kAlways}, {"never", ColorMode::kNever}},
         "colours on stdout and stderr");
  choice(app, "--progress", parsed.progress,
         {{"auto", ProgressMode::kAuto},
          {"plain", ProgressMode::kPlain},
          {"none", ProgressMode::kNone},
          {"json", ProgressMode::kJson}},
         "how far a run has come, on stderr");
}

/// Headings of the help.
void set_groups(CLI::App& app) {
  const std::pair<const char*, std::vector<const char*>> groups[] = {
      {"Runs",
       {"demo", "init", "train", "launch", "hub", "simulate", "status", "compare", "report",
        "runs"}},
      {"Files", {"inspect", "data", "import", "export", "merge", "replay", "keygen"}},
      {"Models", {"eval", "generate"}},
      {"Help and measurements",
       {"explain", "methods", "plan", "doctor", "bench", "frames", "completion"}}};
  for (const auto& [title, names] : groups) {
    for (const char* name : names) {
      app.get_subcommand(name)->group(title);
    }
  }
}

}  // namespace

void add_configuration_flags(CLI::App& command, TrainArguments& arguments) {
  CLI::Option* config =
      option(command, "CONFIG", "", arguments.config, "TOML file that describes the run")
          ->required();
  repeated(command, "--set", "KEY=VALUE", arguments.overrides, "override a key: --set outer.H=50");
  option(command, "--out", "DIR", arguments.out, "folder to write into (default: run.out)");
  // `--resume run.toml` takes the CONFIG for its value; a checkpoint is a folder, so the file is
  // given back. Runs before CLI11 looks for missing arguments.
  const auto take_resume = [&arguments, config](const std::string& value) {
    const bool swallowed = config->count() == 0 && value.ends_with(".toml");
    arguments.resume = value.empty() || swallowed ? "auto" : value;
    if (swallowed) {
      arguments.config = value;
      config->required(false);
    }
  };
  command
      .add_option_function<std::string>(
          "--resume", take_resume,
          "continue from the newest checkpoint of the folder (auto), from PATH, or never")
      ->expected(0, 1)
      ->type_name("[auto|PATH|never]");
  repeated(command, "--change", "KEY=VALUE", arguments.changes,
           "with --resume, change a key of the run from here on: --change train.steps=4000");
  command.add_flag("--force", arguments.force, "replace the run that is in the folder");
}

std::shared_ptr<std::filesystem::path> add_links_flag(CLI::App& command) {
  auto links = std::make_shared<std::filesystem::path>();  // the flag fills it, the action keeps it
  option(command, "--links", "FILE", *links,
         "links file, as `bench link` writes it, instead of the file's links: for "
         "net.shares and what is predicted; the same at all sites");
  return links;
}

void set_action(CLI::App& command, Parsed& parsed, Action action) {
  command.callback([&parsed, action = std::move(action)] { parsed.action = action; });
}

CLI::App* subcommand(CLI::App& app, const std::string& name, const std::string& text,
                     std::string_view help) {
  CLI::App* command = app.add_subcommand(name, text);
  command->fallthrough();
  if (!help.empty()) command->footer(std::string(help));  // else that of `app`, as CLI11 has it
  command->set_help_flag("-h,--help", "show this help");
  return command;
}

constexpr std::size_t kTextColumn = 29;  // of --help: the texts of flags begin here
constexpr std::size_t kHelpColumns = 100;

/// Wraps the text of each flag, so that no line of --help is longer than kHelpColumns.
class WrappedHelp : public CLI::Formatter {
 public:
  std::string make_option_desc(const CLI::Option* option) const override {
    std::string text = wrapped(option->get_description(), 0, kHelpColumns - kTextColumn);
    if (!text.empty()) text.pop_back();  // the newline behind the last line
    return text;
  }
};

std::unique_ptr<CLI::App> make_parser(Parsed& parsed) {
  auto app = std::make_unique<CLI::App>(
      "isthmus: one model, trained by clusters that are joined only by thin links", "isthmus");
  const BuildInfo build = build_info();
  app->set_version_flag("--version", fmt::format("isthmus {} ({})", build.version, build.git));
  app->set_help_flag("-h,--help", "show this help");
  const auto formatter = std::make_shared<WrappedHelp>();
  formatter->column_width(kTextColumn);
  app->formatter(formatter);  // the commands take over this one
  app->require_subcommand(1);
  add_global_flags(*app, parsed);
  add_run_commands(*app, parsed);
  add_file_commands(*app, parsed);
  add_inference_commands(*app, parsed);
  add_word_commands(*app, parsed);
  add_bench_command(*app, parsed);
  add_plan_command(*app, parsed);
  add_keygen_command(*app, parsed);
  add_hub_command(*app, parsed);
  add_status_command(*app, parsed);
  add_replay_command(*app, parsed);
  add_frames_command(*app, parsed);
  add_runs_commands(*app, parsed);
  set_groups(*app);
  return app;
}

}  // namespace isthmus::app
