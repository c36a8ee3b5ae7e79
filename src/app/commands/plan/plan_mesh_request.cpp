// SPDX-License-Identifier: Apache-2.0
#include "app/commands/plan/plan_mesh_request.h"

#include <fmt/format.h>

#include <array>
#include <charconv>

#include "app/commands/plan/flag_quantity.h"
#include "app/train/site_lanes.h"
#include "config/schema/device_request.h"
#include "config/schema/recompute.h"
#include "core/base/suggest.h"
#include "core/base/units.h"
#include "inner/model/presets.h"

namespace isthmus::app {
namespace {

constexpr std::int64_t kMostRanks = 65'536;
constexpr double kMost = 1e21;  // of a rate, FLOP/s, bytes

/// Models that are not run here but asked about. Sizes as published in their config.json.
struct KnownModel {
  std::string_view name, arch;
  std::int64_t layers, d_model, heads, kv_heads, d_ff, vocab;
  bool tied;
};
constexpr std::array<KnownModel, 5> kModels = {{
    {"gpt2-xl", "gpt2", 48, 1600, 25, 25, 6400, 50257, true},
    {"llama-1b", "llama", 16, 2048, 32, 8, 8192, 128256, true},
    {"llama-8b", "llama", 32, 4096, 32, 8, 14336, 128256, false},
    {"llama-70b", "llama", 80, 8192, 64, 8, 28672, 128256, false},
    {"llama-405b", "llama", 126, 16384, 128, 8, 53248, 128256, false},
}};

/// The sizes as --model has them.
constexpr SizeNames kSizesOfFlag = {.layers = "layers",
                                    .d_model = "d_model",
                                    .heads = "heads",
                                    .kv_heads = "kv_heads",
                                    .head_dim = "head_dim",
                                    .d_ff = "d_ff",
                                    .vocab = "vocab",
                                    .context = "--context"};

void set_size(ModelConfig& model, std::string_view spec, std::string_view setting) {
  const std::size_t equals = setting.find('=');
  const std::string key(setting.substr(0, equals));
  const std::string_view value =
      equals == std::string_view::npos ? std::string_view{} : setting.substr(equals + 1);
  std::int64_t number = 0;
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
  if (error != std::errc{} || end != value.data() + value.size() || number < 0) {
    throw UsageError(fmt::format("--model {}: '{}': must be KEY=INTEGER", spec, setting));
  }
  const std::pair<std::string_view, std::int64_t*> kSizes[] = {
      {"layers", &model.layers},     {"d_model", &model.d_model},   {"heads", &model.heads},
      {"kv_heads", &model.kv_heads}, {"head_dim", &model.head_dim}, {"d_ff", &model.d_ff},
      {"vocab", &model.vocab}};
  std::vector<std::string> names;
  for (const auto& [name, target] : kSizes) {
    if (name == key) {
      *target = number;
      return;
    }
    names.emplace_back(name);
  }
  if (key == "tied") {
    model.tied = number != 0;
    return;
  }
  names.emplace_back("tied");
  const auto near = closest(key, names);
  throw UsageError(fmt::format("--model {}: unknown size '{}'{}; sizes: {}", spec, key,
                               near ? fmt::format("; did you mean '{}'?", *near) : "",
                               join(names)));
}

/// A name of a known model, or "llama:layers=32,d_model=4096,...".
ModelConfig model_of(const std::string& spec) {
  ModelConfig model;
  std::vector<std::string> names;
  for (const KnownModel& known : kModels) {
    names.emplace_back(known.name);
    if (known.name != spec) continue;
    model = model_of_row(known);
    model.tied = known.tied;
    return model;
  }
  for (const Workload& workload : workloads()) {
    names.push_back(workload.name);
    if (workload.name == spec) {
      model = workload.model;
      model.context = 0;
      return model;
    }
  }
  const std::size_t colon = spec.find(':');
  const std::string arch = spec.substr(0, colon);
  if (arch != "gpt2" && arch != "llama") {
    const auto near = closest(spec, names);
    throw UsageError(fmt::format(
        "--model {}: no such model{}; models: {}; or sizes: llama:layers=32,d_model=4096,heads=32",
        spec, near ? fmt::format("; did you mean '{}'?", *near) : "", join(names)));
  }
  model.arch = arch;
  std::string_view rest =
      colon == std::string::npos ? std::string_view{} : std::string_view(spec).substr(colon + 1);
  while (!rest.empty()) {
    const std::size_t comma = std::min(rest.find(','), rest.size());
    set_size(model, spec, rest.substr(0, comma));
    rest.remove_prefix(std::min(comma + 1, rest.size()));
  }
  return model;
}

/// THROWS: ConfigError for a method whose steps have no backward pass.
plan::OuterDemand outer_demand(const Config& config, const ModelShape& shape) {
  if (forward_only(config)) {
    throw ConfigError(fmt::format(
        "plan mesh {}: outer.method = \"{}\" trains by forward passes alone, and what "
        "is predicted here are steps with a backward pass: `isthmus train {} --dry-run` "
        "shows what such a run takes; or choose another outer.method",
        config.file.string(), config.method, config.file.string()));
  }
  return {.method = config.method,
          .adam_moments = takes_adam_moments(config),
          .whole_gradients = takes_gradients(config),
          .state_values = outer_state_values(config.method, config.outer),
          .lanes = lanes_of(config, ModelLayout(shape))};
}

void read_config(const PlanMeshArguments& a, PlanMeshRequest& question) {
  if (!a.model.empty() || a.context || !a.batch.empty()) {
    throw UsageError(fmt::format(
        "plan mesh: {} says model, context and batch; change them by --set train.context=4096, or "
        "leave the file out",
        a.config.string()));
  }
  const Config config = load_config(a.config, a.overrides, schema_context());
  question.name = config.model.preset.empty() ? config.model.arch : config.model.preset;
  question.workload.shape = model_shape(config.model, config.train.context);
  question.workload.inner = config.inner;
  question.workload.context = config.train.context;
  question.workload.sequences =
      config.train.global_batch_tokens / config.train.context / config.workers();
  question.workload.outer = outer_demand(config, question.workload.shape);
  question.search.bf16 = config.train.precision == "bf16";
  question.search.codec_state = config.rank_codecs.state;
  if (!by_default(config, "parallel.zero")) question.search.zero = config.zero;
  if (!by_default(config, "parallel.sequence_parallel")) {
    question.search.sequence_parallel = config.sequence_parallel;
  }
  if (config.sites.front().compute_flops > 0) {
    question.machine.flops_per_s = config.sites.front().compute_flops;
  }
}

void read_flags(const PlanMeshArguments& a, PlanMeshRequest& question) {
  if (a.model.empty()) {
    throw UsageError(
        "plan mesh: give a CONFIG, or the model by --model llama-8b --context 4096 --batch \"4M "
        "tok\"; see `isthmus plan mesh --help`");
  }
  if (!a.overrides.empty()) throw UsageError("plan mesh: --set needs a CONFIG to override");
  constexpr std::int64_t kContext = 4096, kLongest = std::int64_t{1} << 24;
  const std::int64_t context = a.context.value_or(kContext);
  if (context < 1 || context > kLongest) {
    throw UsageError(fmt::format("--context {}: must be in 1 .. {}", context, kLongest));
  }
  question.name = a.model;
  try {
    question.workload.shape = model_shape(model_of(a.model), context, kSizesOfFlag);
  } catch (const ConfigError& error) {
    throw UsageError(fmt::format("--model {}: {}", a.model, error.what()));
  }
  question.workload.context = context;
  const double tokens =
      flag_quantity("--batch", a.batch.empty() ? "4Mi tok" : a.batch, Dimension::kTokens, 1e12);
  const auto whole = static_cast<std::int64_t>(tokens);
  if (whole % context != 0) {
    const std::int64_t below = whole / context * context;
    throw UsageError(fmt::format(
        "--batch {}: must be a multiple of the context of {} tokens; the "
        "nearest is \"{} tok\"",
        a.batch, context, 2 * (whole - below) <= context && below > 0 ? below : below + context));
  }
  question.workload.sequences = whole / context;
  question.search.bf16 = true;
}

void read_machine(const PlanMeshArguments& a, PlanMeshRequest& question) {
  if (a.nodes < 1 || a.ranks % a.nodes != 0) {
    throw UsageError(fmt::format("--nodes {}: must divide the {} ranks", a.nodes, a.ranks));
  }
  constexpr double kBits = 8;
  plan::MeshMachine& machine = question.machine;
  if (machine.flops_per_s == 0) {
    machine.flops_per_s = flag_quantity("--compute", a.compute, Dimension::kFlops, kMost);
  }
  if (!a.attention.empty()) {
    machine.attention_flops_per_s =
        flag_quantity("--attention", a.attention, Dimension::kFlops, kMost);
  }
  if (!a.memory_rate.empty()) {
    machine.memory_bytes_per_s =
        flag_quantity("--memory-rate", a.memory_rate, Dimension::kRate, kMost) / kBits;
  }
  if (!a.memory.empty()) {
    machine.memory_bytes =
        static_cast<std::int64_t>(flag_quantity("--memory", a.memory, Dimension::kBytes, 1e18));
  }
  const auto link = [&](std::string name, std::int64_t ranks, const char* rate_flag,
                        const std::string& rate, const char* latency_flag,
                        const std::string& latency) {
    plan::LinkClass link_class;
    link_class.name = std::move(name);
    link_class.ranks = ranks;
    link_class.bytes_per_s = flag_quantity(rate_flag, rate, Dimension::kRate, kMost) / kBits;
    link_class.latency_s = flag_quantity(latency_flag, latency, Dimension::kTime, 1e3);
    machine.links.push_back(link_class);
  };
  link("the node", a.nodes > 1 ? a.ranks / a.nodes : 0, "--node-link", a.node_rate,
       "--node-latency", a.node_latency);
  if (a.nodes > 1) {
    link("the network", 0, "--network", a.network_rate, "--network-latency", a.network_latency);
  }
}

}  // namespace

PlanMeshRequest plan_mesh_request(const PlanMeshArguments& a) {
  if (a.ranks < 1 || a.ranks > kMostRanks) {
    throw UsageError(fmt::format("--ranks {}: must be in 1 .. {}", a.ranks, kMostRanks));
  }
  PlanMeshRequest question;
  question.nodes = a.nodes;
  if (a.config.empty()) {
    read_flags(a, question);
  } else {
    read_config(a, question);
  }
  read_machine(a, question);
  if (!a.precision.empty()) question.search.bf16 = a.precision == "bf16";
  if (!a.optimizer.empty()) question.workload.inner.optimizer = a.optimizer;
  plan::MeshSearch& search = question.search;
  search.ranks = a.ranks;
  search.tp = a.tp;
  search.pp = a.pp;
  search.dp = a.dp;
  if (a.zero) search.zero = a.zero;
  search.virtual_stages = a.virtual_stages;
  search.micro_batches = a.micro_batches;
  if (!a.schedule.empty()) search.schedule = parse_pipeline_kind(a.schedule);
  if (!a.recompute.empty()) search.recompute = parse_recompute(a.recompute);
  if (a.sequence_parallel) search.sequence_parallel = a.sequence_parallel;
  for (const auto& [flag, value] :
       {std::pair{"--tp", a.tp}, std::pair{"--pp", a.pp}, std::pair{"--dp", a.dp}}) {
    if (value && (*value < 1 || a.ranks % *value != 0)) {
      throw UsageError(fmt::format("{} {}: must divide the {} ranks", flag, *value, a.ranks));
    }
  }
  return question;
}

}  // namespace isthmus::app
