// SPDX-License-Identifier: Apache-2.0
#include "app/command_bench_exchange.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>

#include "app/json_line.h"
#include "app/owner_shares.h"
#include "app/run_parts.h"
#include "app/run_worlds.h"
#include "app/text_table.h"
#include "core/links_file.h"
#include "core/units.h"
#include "inner/model_layout.h"
#include "plan/exchange_ways.h"
#include "plan/prediction.h"
#include "sim/run_simulated.h"
#include "sim/topology.h"
#include "transport/tree_exchange.h"

namespace isthmus::app {
namespace {

/// A way to make the mean. Ways of equal `bits` give the same result, to the bit.
struct Way {
  std::string name;
  std::string bits;
  ReductionKind kind = ReductionKind::kReduce;
  std::vector<std::uint32_t> shares = {};
  std::vector<std::uint32_t> groups = {};
  std::optional<TreeShape> along = {};  // a ring or tree, which no run takes
};

struct TimedWay {
  Way way;
  double predicted_s = 0;
  double simulated_s = 0;
  std::uint64_t thinnest_bytes = 0;  // one way over a slowest link, the most of those
  double shared_lines_s = 0;         // at least, were all links of a site one line
};

/// What is exchanged, and over what.
struct Question {
  std::vector<std::string> sites;
  PredictionInput round;    // of the largest fragment, or of so few values ...
  std::int64_t values = 0;  // ... that links count their bytes as if they were all
  std::uint64_t seed = 0;
};

Question question_of(const Config& config) {
  const ModelLayout layout(model_shape(config.model, config.train.context));
  Question question{
      .sites = {},
      .round = prediction_input(config.method, config.outer, parameters_without_values(layout),
                                config.workers(), 1),
      .seed = config.run.seed};
  for (const SiteConfig& site : config.sites) question.sites.push_back(site.name);
  PredictionInput& round = question.round;
  for (const PlannedFragment& fragment : round.fragments) {
    question.values = std::max(question.values, fragment.elements);
  }
  constexpr std::int64_t kMostPlayed = std::int64_t{1} << 24;  // times are of sizes, not of values
  const std::int64_t played = std::min(question.values, kMostPlayed);
  round.fragments = {{.elements = played}};
  round.H = 1;
  round.overlap = 0;
  round.round_behind = false;
  round.commit_every = 0;
  round.chunk_bytes = chunk_bytes(config);
  round.step_time = [](Rank, StepIndex) { return Duration(0); };
  round.links = link_matrix(config.links, question.sites);
  round.link = {.model = config.sim.link_model == "ideal" ? LinkModel::kPlain : LinkModel::kTcp,
                .byte_scale = surrogate_byte_scale(config, layout) *
                              static_cast<double>(question.values) / static_cast<double>(played)};
  return question;
}

/// "paris, lyon | tokyo"
std::string words_of(const std::vector<std::uint32_t>& groups,
                     const std::vector<std::string>& sites) {
  std::vector<std::string> words;
  for (std::size_t first = 0; first < sites.size(); ++first) {
    std::vector<std::string> names;
    for (std::size_t m = 0; m < sites.size(); ++m) {
      const bool leads = std::ranges::find(groups, groups[m]) - groups.begin() ==
                         static_cast<std::ptrdiff_t>(first);
      if (leads) names.push_back(sites[m]);
    }
    if (!names.empty()) words.push_back(fmt::format("{}", fmt::join(names, ", ")));
  }
  return fmt::format("{}", fmt::join(words, " | "));
}

std::vector<Way> ways_of(const Question& question, const Config& config) {
  const int members = config.workers();
  std::vector<Way> ways;
  const std::vector<std::uint32_t> even = even_shares(config);
  ways.push_back({"gather", "gather", ReductionKind::kGather});
  ways.push_back({"even shares", "reduce", ReductionKind::kReduce, even});
  const std::vector<std::uint32_t> shares = shares_by_links(question.round.links, members, even);
  if (!shares.empty()) {
    ways.push_back({fmt::format("shares by links ({})", words_of_shares(shares)), "reduce",
                    ReductionKind::kReduce, shares});
  }
  constexpr int kMostStars = 16;
  for (int center = 0; center < members && members <= kMostStars; ++center) {
    std::vector<std::uint32_t> one(question.sites.size());
    one[static_cast<std::size_t>(center)] = 1;
    ways.push_back({fmt::format("star of {}", question.sites[static_cast<std::size_t>(center)]),
                    "reduce", ReductionKind::kReduce, one});
  }
  std::vector<std::uint32_t> groups = named_groups(config);
  if (groups.empty()) groups = groups_by_links(question.round.links, members);
  if (!groups.empty()) {
    ways.push_back({fmt::format("groups ({})", words_of(groups, question.sites)), "groups",
                    ReductionKind::kReduce, even, groups});
  }
  if (question.round.codec->sparse()) return ways;  // its sums are not sparse
  const auto along = [&](const char* name, const char* bits, TreeKind kind,
                         std::vector<int> order) {
    std::vector<std::string> names;
    for (const int m : order) names.push_back(question.sites[static_cast<std::size_t>(m)]);
    ways.push_back({.name = fmt::format("{} ({})", name, fmt::join(names, ", ")),
                    .bits = bits,
                    .along = TreeShape{kind, std::move(order)}});
  };
  along("ring", "ring", TreeKind::kRing, ring_by_links(question.round.links, members));
  along("binary tree", "tree", TreeKind::kBinary, tree_by_links(question.round.links, members));
  return ways;
}

/// One round, nothing else on the links, until all know it committed.
TimedWay timed(const Question& question, const Way& way) {
  PredictionInput input = question.round;
  input.exchange = way.kind;
  input.shares = way.shares;
  input.groups = way.groups;
  const auto elements = static_cast<std::size_t>(input.fragments.front().elements);
  const std::shared_ptr<const Codec> codec = input.codec;
  TimedWay result{.way = way};
  SimulationOptions options{.workers = input.workers,
                            .links = input.links,
                            .seed = question.seed,
                            .network = {.link = input.link},
                            .exchange = {.retry_interval = kNothingIsLost,
                                         .shares = way.shares,
                                         .groups = way.groups,
                                         .chunk_bytes = input.chunk_bytes}};
  if (way.along) {
    result.predicted_s =
        predict_round_along(input, make_tree_plan(*codec, elements, input.workers, *way.along));
    options.make_exchange = [&](Transport& transport, Runtime& runtime) {
      return std::make_unique<TreeExchange>(transport, runtime, *way.along);
    };
  } else {
    result.predicted_s = predict(input).predicted_s;
  }
  const std::vector<float> values(elements, 1.0f);
  const SimulationResult run = run_simulated(options, [&](WorkerContext& context) {
    const SyncId id{FragmentId(0), StepIndex(1)};
    Contribution mine{.id = id,
                      .encoded = encode(*codec, values, context.exchange.key(id)),
                      .codec = codec,
                      .kind = way.kind};
    const auto mean = context.exchange.wait(context.exchange.begin(std::move(mine)),
                                            std::chrono::hours(24 * 365));
    if (!mean) throw PeerError(mean.error().what);
  });
  result.shared_lines_s = least_on_shared_lines(input.links, run.traffic);
  result.simulated_s = std::chrono::duration<double>(run.duration).count();
  std::optional<std::int64_t> slowest;
  const std::size_t sites = question.sites.size();
  for (std::size_t from = 0; from < sites; ++from) {
    for (std::size_t to = 0; to < sites; ++to) {
      const std::int64_t rate = input.links[from * sites + to].bits_per_s;
      if (from == to || rate == 0) continue;
      if (!slowest || rate < *slowest) {
        slowest = rate;
        result.thinnest_bytes = 0;
      }
      if (rate == *slowest) {
        result.thinnest_bytes = std::max(result.thinnest_bytes, run.traffic[from][to]);
      }
    }
  }
  return result;
}

/// What a run of this file would do.
const TimedWay& used_by(const std::vector<TimedWay>& ways, const Question& question,
                        const Config& config) {
  const ReductionKind kind =
      resolve_reduction(question.round.exchange, *question.round.codec, config.workers());
  const bool groups = config.net.reduction == "groups";
  const std::vector<std::uint32_t> shares =
      config.net.shares == "links" ? owner_shares(config) : even_shares(config);
  return *std::ranges::find_if(ways, [&](const TimedWay& each) {
    const bool as_they_go =
        !each.way.along && each.way.shares == shares && each.way.groups.empty() != groups;
    return each.way.kind == kind && (kind != ReductionKind::kReduce || as_they_go);
  });
}

/// What makes a run that goes as `used` take another way, as --set reads it; none: no key does.
std::vector<std::string> settings_of(const Way& way, const Way& used,
                                     const BenchExchangeArguments& arguments,
                                     const Config& config) {
  if (&way == &used || way.along || way.name.starts_with("star")) return {};
  std::vector<std::string> settings;
  if (way.kind != used.kind) {
    const bool gathers = way.kind == ReductionKind::kGather;
    settings.push_back(fmt::format("outer.exchange={}", gathers ? "gather" : "reduce"));
  }
  const bool by_links = way.name.starts_with("shares by links");
  if (by_links != (config.net.shares == "links")) {
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

void print(const std::vector<TimedWay>& ways, const TimedWay& used, const Question& question,
           const BenchExchangeArguments& arguments, const Config& config, Session& session) {
  if (session.json) {
    for (const TimedWay& each : ways) {
      JsonLine line;
      line.add("bench", "exchange").add("way", each.way.name).add("bits", each.way.bits);
      line.add("sites", question.round.workers).add("values", question.values);
      line.add("codec", question.round.codec->name());
      line.add("predicted_s", each.predicted_s).add("simulated_s", each.simulated_s);
      line.add("thinnest_link_bytes", each.thinnest_bytes);
      line.add("shared_lines_s", each.shared_lines_s).add("used", &each == &used);
      const std::vector<std::string> settings = settings_of(each.way, used.way, arguments, config);
      if (!settings.empty()) line.add("set", fmt::format("{}", fmt::join(settings, " ")));
      session.out.write(line.str() + "\n");
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
  if (std::ranges::any_of(ways, [](const TimedWay& each) { return each.way.along.has_value(); })) {
    session.err.write(
        "Ring and tree pass sums on, which each hop rounds once more: for comparison, no run goes "
        "so (docs/sites.md, Rings and trees).\n");
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
      how = "groups are those that the [[site]]s name, where the method has them (docs/sites.md)";
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
  const Question question = question_of(config);
  if (question.round.exchange == ReductionKind::kCollect) {
    throw ConfigError(fmt::format(
        "outer.method = \"{}\": all its bytes go to all, there is one way only", config.method));
  }
  std::vector<TimedWay> ways;
  for (const Way& way : ways_of(question, config)) ways.push_back(timed(question, way));
  print(ways, used_by(ways, question, config), question, arguments, config, session);
  return 0;
}

}  // namespace isthmus::app
