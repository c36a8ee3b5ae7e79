// SPDX-License-Identifier: Apache-2.0
#include "app/commands/bench/simulated_algorithms.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <utility>

#include "app/common/commands.h"
#include "app/train/config_to_options.h"
#include "inner/model/model_layout.h"
#include "plan/exchange_ways.h"
#include "session/run/owner_shares.h"
#include "sim/run_simulated.h"
#include "sim/topology.h"
#include "transport/exchange/reduction.h"
#include "transport/exchange/ring/ring_exchange.h"

namespace isthmus::app {
namespace {

constexpr int kMostStars = 16;

PredictionInput input_of(const Config& config, const ModelLayout& layout) {
  return prediction_input(config.method, config.outer, parameters_without_values(layout),
                          config.workers(), 1);
}

ModelLayout layout_of(const Config& config) {
  return ModelLayout(model_shape(config.model, config.train.context));
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

}  // namespace

std::int64_t largest_exchanged(const Config& config) {
  std::int64_t largest = 0;
  for (const PlannedFragment& fragment : input_of(config, layout_of(config)).fragments) {
    largest = std::max(largest, fragment.elements);
  }
  return largest;
}

Question question_of(const Config& config, std::int64_t values) {
  const ModelLayout layout = layout_of(config);
  Question question{.sites = {},
                    .round = input_of(config, layout),
                    .values = values,
                    .byte_scale = surrogate_byte_scale(config, layout),
                    .seed = config.run.seed};
  for (const SiteConfig& site : config.sites) question.sites.push_back(site.name);
  PredictionInput& round = question.round;
  constexpr std::int64_t kMostPlayed = std::int64_t{1} << 24;  // times are of sizes, not of values
  const std::int64_t played = std::min(question.values, kMostPlayed);
  round.fragments = {{.elements = played}};
  round.H = 1;
  round.overlap = 0;
  round.round_behind = false;
  round.commit_every = 0;
  round.chunk_bytes = chunk_bytes(config);
  round.step_time = [](WorkerId, StepIndex) { return Duration(0); };
  round.links = link_matrix(config.links, question.sites);
  round.link = {.model = config.sim.link_model == "ideal" ? LinkModel::kPlain : LinkModel::kTcp,
                .byte_scale = question.byte_scale * static_cast<double>(question.values) /
                              static_cast<double>(played)};
  return question;
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
  for (int center = 0; center < members && members <= kMostStars; ++center) {
    std::vector<std::uint32_t> one(question.sites.size());
    one[static_cast<std::size_t>(center)] = 1;
    ways.push_back({fmt::format("star of {}", question.sites[static_cast<std::size_t>(center)]),
                    "reduce", ReductionKind::kReduce, one});
    ways.back().compared_only = true;
  }
  std::vector<std::uint32_t> groups = named_groups(config);
  if (groups.empty()) groups = groups_by_links(question.round.links, members);
  if (!groups.empty()) {
    ways.push_back({fmt::format("groups ({})", words_of(groups, question.sites)), "groups",
                    ReductionKind::kReduce, even, groups});
  }
  if (question.round.codec->sparse()) return ways;  // its sums are not sparse
  const std::vector<int> ring = ring_by_links(question.round.links, members);
  std::vector<std::string> names;
  for (const int m : ring) names.push_back(question.sites[static_cast<std::size_t>(m)]);
  ways.push_back({.name = fmt::format("ring ({})", fmt::join(names, ", ")),
                  .bits = "ring",
                  .ring = ring,
                  .compared_only = true});
  return ways;
}

namespace {

PredictionInput round_of(const Question& question, const Way& way) {
  PredictionInput input = question.round;
  input.exchange = way.kind;
  input.shares = way.shares;
  input.groups = way.groups;
  return input;
}

}  // namespace

double predicted_s(const Question& question, const Way& way) {
  const PredictionInput input = round_of(question, way);
  if (way.ring.empty()) return predict(input).predicted_s;
  const auto elements = static_cast<std::size_t>(input.fragments.front().elements);
  return predict_round_along(input,
                             make_ring_plan(*input.codec, elements, input.workers, way.ring));
}

TimedWay timed(const Question& question, const Way& way) {
  const PredictionInput input = round_of(question, way);
  const auto elements = static_cast<std::size_t>(input.fragments.front().elements);
  const std::shared_ptr<const Codec> codec = input.codec;
  TimedWay result{.way = way, .predicted_s = predicted_s(question, way)};
  SimulationOptions options{.workers = input.workers,
                            .links = input.links,
                            .seed = question.seed,
                            .network = {.link = input.link},
                            .exchange = {.retry_interval = kNothingIsLost,
                                         .shares = way.shares,
                                         .groups = way.groups,
                                         .chunk_bytes = input.chunk_bytes}};
  if (!way.ring.empty()) {
    options.make_exchange = [&](Transport& transport, Runtime& runtime) {
      return std::make_unique<RingExchange>(transport, runtime, way.ring);
    };
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
  result.simulated_s = in_seconds(run.duration);
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

}  // namespace isthmus::app
