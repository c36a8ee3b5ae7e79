// SPDX-License-Identifier: Apache-2.0
#include "app/commands/bench/command_bench_exchange.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <optional>

#include "app/commands/bench/exchange_cost.h"
#include "app/commands/bench/simulated_algorithms.h"
#include "app/common/text_table.h"
#include "config/links_file.h"
#include "core/base/units.h"
#include "record/build_info.h"
#include "record/json_line.h"
#include "session/run/owner_shares.h"
#include "session/run/run_settings.h"
#include "transport/links/zmq/zmq_transport.h"

namespace isthmus::app {
namespace {

constexpr double kBitsOfGbit = 1e9;

/// The algorithm that a run of this file would use.
const TimedWay& used_by(const std::vector<TimedWay>& ways, const Question& question,
                        const Config& config) {
  const ReductionKind kind =
      resolve_reduction(question.round.exchange, *question.round.codec, config.workers());
  const bool groups = config.net.reduction == "groups";
  const std::vector<std::uint32_t> shares = first_shares(config);
  return *std::ranges::find_if(ways, [&](const TimedWay& each) {
    const bool as_they_go =
        each.way.ring.empty() && each.way.shares == shares && each.way.groups.empty() != groups;
    return each.way.kind == kind && (kind != ReductionKind::kReduce || as_they_go);
  });
}

/// The settings, as --set reads them, with which a run that uses `used` would use `way`; none: no
/// key does.
std::vector<std::string> settings_of(const Way& way, const Way& used,
                                     const BenchExchangeArguments& arguments,
                                     const Config& config) {
  if (&way == &used || way.compared_only) return {};
  std::vector<std::string> settings;
  if (way.kind != used.kind) {
    const bool gathers = way.kind == ReductionKind::kGather;
    settings.push_back(fmt::format("outer.exchange={}", gathers ? "gather" : "reduce"));
  }
  const bool by_links = way.name.starts_with("shares by links");
  if (by_links ? config.net.shares != "links" : config.net.shares != "auto") {
    settings.push_back(fmt::format("net.shares={}", by_links ? "links" : "auto"));
  }
  const std::string reduction = way.groups.empty() ? "direct" : "groups";
  if (config.net.reduction != reduction) settings.push_back("net.reduction=" + reduction);
  std::vector<std::string> overrides = arguments.overrides;
  overrides.insert(overrides.end(), settings.begin(), settings.end());
  try {
    Config changed = load_config(arguments.config, overrides, schema_context());
    if (!arguments.links.empty()) use_links_file(changed, arguments.links);
    static_cast<void>(owner_shares(changed));
  } catch (const ConfigError&) {
    return {};  // a run would be refused
  }
  return settings;
}

/// What a round of the file's kind takes a site's processor, were it this machine's.
struct ProcessorTime {
  ExchangeCost cost;  // of a round of fewer values and members, where there are many
  double round_s = 0;
  [[nodiscard]] const char* bound(double links_s) const {
    return round_s > links_s ? "processor" : "links";
  }
  /// Another kind has other work; a ring and groups have theirs in other places.
  [[nodiscard]] bool holds_for(const Way& way) const {
    return way.kind == cost.kind && way.ring.empty() && way.groups.empty();
  }
};

/// Nothing, and a note where something failed, when this machine could not measure it: the ways
/// are simulated and need no network.
std::optional<ProcessorTime> processor_time(const Question& question, ReductionKind kind,
                                            Session& session) {
  constexpr std::size_t kMostBytes = 128'000'000;  // of all members
  constexpr int kMostMembers = 4;
  constexpr Duration kBudget = std::chrono::milliseconds(500);
  if (zmq_version().empty() || question.values < 1) return std::nullopt;
  const auto whole = static_cast<double>(question.values) * sizeof(float);
  const int members = std::min(question.round.workers, kMostMembers);
  const double most = static_cast<double>(kMostBytes) / members;
  try {
    ProcessorTime time{
        .cost = measure_exchange({.codec = std::string(question.round.codec->name()),
                                  .kind = kind,
                                  .members = members,
                                  .bytes = static_cast<std::size_t>(std::min(whole, most)),
                                  .cores = machine_info().cores},
                                 kBudget)};
    time.round_s = time.cost.round_of(question.byte_scale * whole, question.round.workers);
    return time;
  } catch (const Error& error) {
    session.err.write(
        fmt::format("note: what the processor takes was not measured: {}\n", error.what()));
    return std::nullopt;
  }
}

std::string words_of(const ProcessorTime& time, double links_s) {
  return fmt::format(
      "{} members on this machine exchange {} of fp32 values each, encoded in {}: {} a core. A "
      "site like one of them needs {} for the round and the links {}, so the {} it.\n",
      time.cost.members, human_rate(time.cost.bits_per_s()), time.cost.codec,
      human_rate(time.cost.bits_a_core()), human_time(time.round_s), human_time(links_s),
      time.round_s > links_s ? "processor bounds" : "links bound");
}

void print(const std::vector<TimedWay>& ways, const TimedWay& used, const Question& question,
           const BenchExchangeArguments& arguments, const Config& config, Session& session) {
  const std::optional<ProcessorTime> processor = processor_time(question, used.way.kind, session);
  if (session.json) {
    for (const TimedWay& each : ways) {
      JsonLine line;
      line.add("bench", "exchange").add("way", each.way.name).add("bits", each.way.bits);
      line.add("sites", question.round.workers).add("values", question.values);
      line.add("codec", question.round.codec->name());
      line.add("predicted_s", each.predicted_s).add("simulated_s", each.simulated_s);
      line.add("thinnest_link_bytes", each.thinnest_bytes);
      line.add("shared_lines_s", each.shared_lines_s).add("used", &each == &used);
      if (processor && processor->holds_for(each.way)) {
        line.add("processor_s", processor->round_s)
            .add("bound", processor->bound(each.simulated_s));
        line.add("gbit_s_a_core", processor->cost.bits_a_core() / kBitsOfGbit);
      }
      const std::vector<std::string> settings = settings_of(each.way, used.way, arguments, config);
      if (!settings.empty()) line.add("set", fmt::format("{}", fmt::join(settings, " ")));
      session.answer(line);
    }
    return;
  }
  TextTable table({"way", "bits", "predicted", "simulated", "slowest link", "on shared lines", ""});
  for (const TimedWay& each : ways) {
    table.add({each.way.name, each.way.bits, human_time(each.predicted_s),
               human_time(each.simulated_s), human_bytes(static_cast<double>(each.thinnest_bytes)),
               ">= " + human_time(each.shared_lines_s),
               &each == &used ? "what this file does" : ""});
  }
  session.out.write(table.text(session.out));
  const auto least = [&](bool same_bits) {
    const TimedWay* best = &used;
    for (const TimedWay& each : ways) {
      const bool counts = !same_bits || each.way.bits == used.way.bits;
      if (counts && each.simulated_s < best->simulated_s) best = &each;
    }
    return best;
  };
  const TimedWay& fastest = *least(false);
  const TimedWay& alike = *least(true);
  session.err.write(fmt::format(
      "One round of {} values in {}. Fastest: {}; of those with the bits of what this file does: "
      "{}.\n",
      question.values, question.round.codec->name(), fastest.way.name, alike.way.name));
  if (processor && processor->holds_for(used.way)) {
    session.err.write(words_of(*processor, used.simulated_s));
  }
  if (std::ranges::any_of(ways, [](const TimedWay& each) { return !each.way.ring.empty(); })) {
    session.err.write(
        "A ring passes sums on, which each hop rounds once more: for comparison, no run goes so "
        "(docs/internals/exchange.md, A ring).\n");
  }
  std::vector<const TimedWay*> better = {&fastest};
  if (&alike != &fastest) better.push_back(&alike);
  std::erase(better, &used);
  const std::string links = arguments.links.empty() ? "" : " --links " + arguments.links.string();
  for (const TimedWay* each : better) {
    const std::vector<std::string> settings = settings_of(each->way, used.way, arguments, config);
    std::string how = "no key makes a run of this file do so";
    if (!settings.empty()) {
      how = fmt::format("train --set {}{}, at all sites, or these keys in the file",
                        fmt::join(settings, " --set "), links);
    } else if (!each->way.groups.empty() && named_groups(config).empty()) {
      how =
          "groups are those that the [[site]]s name, where the method has them "
          "(docs/how-to/unequal-links.md)";
    }
    session.err.write(fmt::format("{}: {}.\n", each->way.name, how));
  }
}

}  // namespace

int command_bench_exchange(const BenchExchangeArguments& arguments, Session& session) {
  Config config = load_config(arguments.config, arguments.overrides, schema_context());
  if (!arguments.links.empty()) use_links_file(config, arguments.links);
  if (config.workers() < 2 || config.links.empty()) {
    throw ConfigError(fmt::format(
        "{}: bench collectives needs two sites at least and a [[link]] between them, or --links",
        arguments.config.string()));
  }
  if (has_traces(config)) {
    session.err.write("note: a [[link]] has a trace; its mean rate is taken here\n");
  }
  const Question question = question_of(config, largest_exchanged(config));
  if (question.round.exchange == ReductionKind::kCollect) {
    throw ConfigError(
        fmt::format("outer.method = \"{}\": each site sends all its bytes to all others, so there "
                    "are no ways to compare; choose another outer.method",
                    config.method));
  }
  std::vector<TimedWay> ways;
  for (const Way& way : ways_of(question, config)) ways.push_back(timed(question, way));
  print(ways, used_by(ways, question, config), question, arguments, config, session);
  return 0;
}

}  // namespace isthmus::app
