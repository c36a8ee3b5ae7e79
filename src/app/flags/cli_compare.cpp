// SPDX-License-Identifier: Apache-2.0
// Flags of `compare`.
#include <fmt/format.h>

#include <algorithm>

#include "app/flags/cli_parser.h"

namespace isthmus::app {
namespace {

constexpr int kFirstSeedBesideReference = 1'000'000;

/// "a,b" as words; empty ones are left out.
std::vector<std::string> words_in_list(const std::string& list) {
  std::vector<std::string> words;
  for (std::size_t begin = 0; begin < list.size();) {
    const std::size_t end = std::min(list.find(',', begin), list.size());
    if (end > begin) {
      words.push_back(list.substr(begin, end - begin));
    }
    begin = end + 1;
  }
  return words;
}

/// Seeds that no reference has.
std::string seeds_beside_reference(int asked) {
  constexpr int kDefault = 3;
  std::string list;
  for (int i = 1; i <= (asked > 0 ? asked : kDefault); ++i) {
    list += fmt::format("{}{}", list.empty() ? "" : ", ", kFirstSeedBesideReference + i);
  }
  return fmt::format("compare.seeds=[{}]", list);
}

/// `asked` is 0 where the flag is not given.
Override seeds_flag(std::string text, int asked) {
  if (asked == 0) return {.text = std::move(text), .flag = "--against"};
  return {.text = std::move(text), .flag = "--seeds", .given = std::to_string(asked)};
}

}  // namespace

void add_compare_command(CLI::App& app, Parsed& parsed) {
  CompareArguments& arguments = parsed.compare;
  CLI::App* compare =
      subcommand(app, "compare", "tune variants alike, train each on the same seeds, judge them");
  option(*compare, "FILE", "", arguments.config, "TOML file: a run, [variant.NAME], [compare]");
  repeated(*compare, "--set", "KEY=VALUE", arguments.overrides,
           "override a key: --set compare.margin=2%, --set variant.diloco.outer.H=50");
  option(*compare, "--only", "NAME,...", parsed.only, "these variants and the baseline");
  option(*compare, "--seeds", "N", parsed.seeds, "as --set compare.seeds=N")
      ->check(CLI::PositiveNumber);
  option(*compare, "--out", "DIR", arguments.out, "folder to write into (default: run.out)");
  option(*compare, "--jobs", "N", arguments.jobs,
         "runs at a time (default: as many as cores and memory take)")
      ->check(CLI::PositiveNumber);
  option(*compare, "--program", "COMMAND", arguments.program.command,
         "trains each run in the place of the built-in trainer: a command that calls "
         "isthmus.run or isthmus.simulate (docs/python.md)");
  compare->add_flag("--each-site", arguments.program.each_site,
                    "start the program once for each site of a run, and it joins");
  compare->add_flag("--quick", arguments.quick,
                    "three seeds at a quarter of the length: a look, not a result");
  compare->add_flag("--resume", arguments.resume,
                    "keep what the folder has; run what is missing or has changed");
  compare->add_flag("--force", arguments.force, "replace the comparison that is in the folder");
  option(*compare, "--judge", "CELLS", arguments.judge,
         "judge the finished runs in this cells.jsonl again: opens no data, trains "
         "nothing, writes nothing");
  option(*compare, "--against", "ref:NAME", arguments.against,
         "instead of FILE: ref:NAME, runs whose losses are known; exit 1 when this build "
         "does not train as they say");
  compare->add_flag("--dry-run", arguments.dry_run,
                    "check everything, list the runs and what they cost, train nothing");
  // A flag, so that it never takes FILE for its value.
  compare->add_flag("--require{all}", parsed.require,
                    "exit 6 unless every run of these variants (--require=NAME,...; default: all) "
                    "reaches the target");
  compare->callback([&parsed] {
    CompareArguments& given = parsed.compare;
    if (given.config.empty() == given.against.empty()) {
      throw CLI::RequiredError("FILE, or --against ref:NAME in its place");
    }
    if (!given.against.empty()) {
      given.seeds = seeds_flag(seeds_beside_reference(parsed.seeds), parsed.seeds);
    } else if (parsed.seeds > 0) {
      given.seeds = seeds_flag(fmt::format("compare.seeds={}", parsed.seeds), parsed.seeds);
    }
    if (given.program.each_site && !given.program.given()) {
      throw CLI::RequiresError("--each-site", "--program");
    }
    given.only = words_in_list(parsed.only);
    given.require = words_in_list(parsed.require);
    parsed.action = [&parsed](Session& session) {
      return command_compare(parsed.compare, session);
    };
  });
}

}  // namespace isthmus::app
