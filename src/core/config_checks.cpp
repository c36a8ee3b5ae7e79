// SPDX-License-Identifier: Apache-2.0
// Rules across keys: what must be given together, what excludes what, what must divide what.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>
#include <numeric>
#include <set>

#include "core/config_loader.h"
#include "core/suggest.h"

namespace isthmus::config {
namespace {

/// Methods of the family that later versions bring.
constexpr std::array<std::string_view, 5> kLaterMethods = {"demo", "muloco", "sparta", "noloco",
                                                           "decoupled"};

bool contains(const std::vector<std::string>& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

bool plain_name(std::string_view name) {
  return !name.empty() && name.size() <= 64 && name.front() != '.' && name.front() != '-' &&
         std::all_of(name.begin(), name.end(), [](char c) {
           return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                  c == '-' || c == '_' || c == '.';
         });
}

}  // namespace

void Loader::check() {
  check_outer_method();
  check_unused();
  check_run();
  check_train();
  check_inner();
  check_model();
  check_outer();
  check_mesh();
  check_device();
  check_attention();
  check_sites();
}

void Loader::check_outer_method() {
  if (context.methods.empty() || method() != nullptr) {
    return;
  }
  std::vector<std::string> names;
  for (const MethodInfo& info : context.methods) {
    names.push_back(info.name);
  }
  if (std::find(kLaterMethods.begin(), kLaterMethods.end(), config.method) != kLaterMethods.end()) {
    refuse("E-NOT-YET", "outer.method",
           fmt::format("method '{}' is not available in this version", config.method),
           fmt::format("methods: {}", join(names)));
    return;
  }
  const auto near = closest(config.method, names);
  refuse("E-VALUE", "outer.method", fmt::format("unknown method '{}'", config.method),
         (near ? fmt::format("did you mean '{}'?   ", *near) : std::string()) +
             fmt::format("methods: {}", join(names)));
}

void Loader::check_unused() {
  for (const auto& row : config_rows()) {
    const auto found = keys.find(row.name);
    if (found != keys.end() && row.used != nullptr && !row.used(config)) {
      diagnostics.add("E-KEY-UNUSED", found->second.key,
                      fmt::format("'{}' is not used here", row.name),
                      fmt::format("it needs {}; remove it", row.used_by));
    }
  }
  const MethodInfo* info = method();
  if (info == nullptr) {
    return;
  }
  for (const auto& [name, where] : keys) {
    if (!name.starts_with("outer.") || name == "outer.method" || name == "outer.placement") {
      continue;
    }
    if (!info->takes(std::string_view(name).substr(6))) {
      const bool commits = name == "outer.commit" && info->commits_rounds;
      diagnostics.add(
          "E-KEY-UNUSED", where.key,
          fmt::format("'{}' is not used by method '{}'{}", name, info->name,
                      commits ? ", whose rounds commit one by one" : ""),
          fmt::format("remove it   (keys of method '{}': {})", info->name, join(info->keys)));
    }
  }
}

void Loader::check_run() {
  if (!config.run.deterministic) {
    refuse("E-VALUE", "run.deterministic",
           fmt::format("{}: runs are always deterministic", quoted("run.deterministic")),
           "remove the key; there is no faster mode that it would forbid");
  }
}

void Loader::check_inner() {
  const InnerConfig& inner = config.inner;
  if (inner.optimizer != "adamw" && inner.nesterov && inner.momentum == 0) {
    refuse("E-CONFLICT", "inner.nesterov",
           fmt::format("{} without 'inner.momentum'", quoted("inner.nesterov")),
           fmt::format("momentum = {} in [inner], or remove nesterov",
                       inner.optimizer == "muon" ? 0.95 : 0.9));
  }
}

void Loader::check_train() {
  if (config.data.source.empty()) {
    refuse("E-KEY-MISSING", "data.source", "'data.source' is missing",
           "source = \"text:FILE\", \"tokens:GLOB\" or \"synth:NAME\" in [data]");
  } else {
    const std::vector<std::string> kinds = {"text:", "tokens:", "synth:"};
    const bool known = std::any_of(kinds.begin(), kinds.end(), [&](const std::string& kind) {
      return config.data.source.starts_with(kind) && config.data.source.size() > kind.size();
    });
    if (!known) {
      const std::string& source = config.data.source;
      const auto near = closest(source.substr(0, source.find(':') + 1), kinds);
      refuse(
          "E-VALUE", "data.source",
          fmt::format("{}: must begin with text:, tokens: or synth: and name something",
                      quoted("data.source")),
          near ? fmt::format("did you mean \"{}...\"?", *near) : "for example \"text:input.txt\"");
    }
  }
  const bool steps = given("train.steps");
  const bool tokens = given("train.tokens");
  if (steps && tokens) {
    refuse("E-CONFLICT", "train.tokens", "'train.steps' together with 'train.tokens'",
           "give one of them; the other follows");
  } else if (!steps && !tokens) {
    refuse("E-KEY-MISSING", "train.steps", "neither 'train.steps' nor 'train.tokens' is given",
           "steps = 2000 in [train]");
  }
  if (!given("train.global_batch")) {
    refuse("E-KEY-MISSING", "train.global_batch", "'train.global_batch' is missing",
           "global_batch = \"16k tok\" in [train]: tokens of all workers in one inner step");
    return;
  }
  const std::int64_t batch = config.train.global_batch_tokens;
  if (batch <= 0) {
    return;  // refused already
  }
  std::int64_t dp = 1;                       // that all sites' samples can be divided by
  constexpr std::int64_t kMost = 1'000'000;  // more divides no batch, and products stay small
  for (const SiteConfig& site : config.sites)
    dp = std::min(std::lcm(dp, std::int64_t{site.dp}), kMost);
  const std::int64_t unit = config.train.context * config.workers() * dp;
  if (batch % unit != 0) {
    const std::int64_t below = batch / unit * unit;
    const std::int64_t nearest =
        below > 0 && batch - below <= below + unit - batch ? below : below + unit;
    const std::int64_t other = nearest == below ? below + unit : below;
    refuse(
        "E-DIVISIBLE", "train.global_batch",
        fmt::format("{}: must be a multiple of context x workers x dp = {} x {} x {} = {} tokens; "
                    "the nearest working value is \"{} tok\"",
                    quoted("train.global_batch"), config.train.context, config.workers(), dp, unit,
                    nearest),
        other > 0 ? fmt::format("\"{} tok\" or \"{} tok\"", nearest, other)
                  : fmt::format("\"{} tok\"", nearest));
    return;
  }
  if (config.train.tokens && *config.train.tokens < batch) {
    refuse(
        "E-RANGE", "train.tokens",
        fmt::format("{}: less than one global batch of {} tokens", quoted("train.tokens"), batch));
  }
  const std::int64_t samples = batch / unit;
  if (config.micro_batches && samples % *config.micro_batches != 0) {
    refuse("E-DIVISIBLE", "parallel.micro_batches",
           fmt::format("{}: must divide the {} samples of one rank",
                       quoted("parallel.micro_batches"), samples));
  }
}

void Loader::check_model() {
  const ModelConfig& model = config.model;
  if (model.head_dim == 0 && model.d_model % model.heads != 0) {
    refuse("E-DIVISIBLE", given("model.n_heads") ? "model.n_heads" : "model.d_model",
           fmt::format("model.d_model = {} is not a multiple of model.n_heads = {}", model.d_model,
                       model.heads));
    return;
  }
  if (model.arch == "llama") {
    if (model.kv_heads > 0 && model.heads % model.kv_heads != 0) {
      refuse("E-DIVISIBLE", "model.n_kv_heads",
             fmt::format("{}: must divide model.n_heads = {}", quoted("model.n_kv_heads"),
                         model.heads));
    }
    const std::int64_t head = model.head_dim > 0 ? model.head_dim : model.d_model / model.heads;
    if (head % 2 != 0) {
      refuse("E-DIVISIBLE", given("model.head_dim") ? "model.head_dim" : "model.n_heads",
             fmt::format("a head of {} values: rotary positions need an even width", head));
    }
  }
  if (model.context > 0 && config.train.context > model.context) {
    refuse("E-RANGE", given("train.context") ? "train.context" : "model.context",
           fmt::format("train.context = {} is longer than the model's {} positions",
                       config.train.context, model.context));
  }
  const bool windows_fit = config.eval.all || config.eval.tokens >= config.train.context;
  if (!windows_fit && given("eval.tokens")) {
    refuse("E-RANGE", "eval.tokens",
           fmt::format("{}: less than one window of train.context = {} tokens",
                       quoted("eval.tokens"), config.train.context));
  }
}

void Loader::check_outer() {
  const OuterOptions& outer = config.outer;
  const MethodInfo* info = method();
  const bool overlaps = info == nullptr || info->takes("overlap");
  if (overlaps && outer.overlap > 0 && outer.overlap >= outer.H) {
    refuse(
        "E-RANGE", given("outer.overlap") ? "outer.overlap" : "outer.H",
        fmt::format("outer.overlap = {}: must be less than outer.H = {}", outer.overlap, outer.H));
  }
  if (outer.late == LateRound::kSlip && info != nullptr && info->takes("late") &&
      outer.overlap == 0) {
    refuse("E-CONFLICT", "outer.late",
           fmt::format("{} without 'outer.overlap': results are due in the step that sends",
                       quoted("outer.late")),
           "give results some steps, for example overlap = 1, or remove late");
  }
  if (const auto* offsets = std::get_if<std::vector<std::int64_t>>(&outer.offsets)) {
    for (const std::int64_t offset : *offsets) {
      if (offset >= outer.H) {
        refuse(
            "E-RANGE", "outer.offsets",
            fmt::format("outer.offsets holds {}: must be less than outer.H = {}", offset, outer.H));
        break;
      }
    }
  }
  if (outer.outlier > 0 && outer.outlier <= 1) {
    refuse("E-RANGE", "outer.outlier",
           fmt::format("{}: must be 0 (never) or > 1", quoted("outer.outlier")));
  }
  if (info != nullptr && info->round_behind && outer.carry == LostContribution::kStay) {
    refuse("E-VALUE", "outer.carry",
           fmt::format("{}: method '{}' has left the local values of a round when it learns that "
                       "they were lost",
                       quoted("outer.carry"), info->name),
           "use \"carry\" or \"rollback\"");
  }
  if (outer.fragments > config.model.layers) {
    refuse("E-RANGE", "outer.fragments",
           fmt::format("{}: more fragments than the model's {} layers", quoted("outer.fragments"),
                       config.model.layers));
  }
  if (std::abs(outer.spsa.scale_log2) > 64) {
    refuse("E-RANGE", "outer.code_scale",
           fmt::format("{}: must be a power of two from 2^-64 to 2^64", quoted("outer.code_scale")),
           "code_scale = 1 covers slopes from 0.0043 to 234; 8 those from 0.034 to 1872");
  }
  const bool divides = config.workers() > 0 && config.train.context > 0;
  const std::int64_t sequences =
      divides ? config.train.global_batch_tokens / config.train.context / config.workers() : 0;
  if (given("outer.samples") && sequences > 0 && sequences % outer.spsa.samples != 0) {
    refuse("E-DIVISIBLE", "outer.samples",
           fmt::format("{}: must divide the {} sequences of one worker and step, each sample reads "
                       "its share of them",
                       quoted("outer.samples"), sequences));
  }
  const auto takes = [&](const char* key) {
    return info == nullptr ? given(fmt::format("outer.{}", key)) : info->takes(key);
  };
  const auto check_codec = [&](std::string_view name, const std::string& spelling, bool asked) {
    if (!context.check_codec || !asked) {
      return;
    }
    try {
      context.check_codec(spelling);
    } catch (const Error& error) {
      std::vector<std::string> names;
      for (const CodecInfo& codec : context.codecs) {
        names.push_back(codec.name);
      }
      const std::string word = spelling.substr(0, spelling.find(':'));
      const auto near = contains(names, word) ? std::nullopt : closest(word, names);
      refuse("E-VALUE", name, fmt::format("{}: {}", quoted(name), error.what()),
             (near ? fmt::format("did you mean '{}'?   ", *near) : std::string()) +
                 fmt::format("codecs: {}", join(names)));
    }
  };
  check_codec("outer.codec", outer.codec, takes("codec"));
  check_codec("outer.warmup_codec", outer.one_bit_adam.warmup_codec, takes("warmup_codec"));
  for (const auto& [name, spelling] : {std::pair{"parallel.codec_data", config.rank_codecs.data},
                                       {"parallel.codec_pipeline", config.rank_codecs.pipeline},
                                       {"parallel.codec_tensor", config.rank_codecs.tensor},
                                       {"parallel.codec_state", config.rank_codecs.state}}) {
    check_codec(name, spelling, given(name));
  }
  const bool half_surrogate = given("surrogate.params") != given("surrogate.step_time");
  if (half_surrogate) {
    const std::string_view absent =
        given("surrogate.params") ? "surrogate.step_time" : "surrogate.params";
    refuse("E-KEY-MISSING", given("surrogate.params") ? "surrogate.params" : "surrogate.step_time",
           fmt::format("[surrogate] without '{}'", absent),
           "it needs both, for example params = \"1B\" and step_time = \"0.9s\"");
  }
}

void Loader::check_sites() {
  if (!plain_name(config.run.name)) {
    refuse("E-VALUE", "run.name",
           fmt::format("{}: must be 1 to 64 letters, digits, '-', '_' or '.'", quoted("run.name")));
  }
  std::vector<std::string> names;
  for (std::size_t i = 0; i < config.sites.size(); ++i) {
    const std::string& name = config.sites[i].name;
    const bool from_file = i < site_places.size();
    if (from_file && !plain_name(name)) {
      diagnostics.add(name.empty() ? "E-KEY-MISSING" : "E-VALUE", site_places[i],
                      name.empty() ? "[[site]] without a 'name'"
                                   : fmt::format("site.name = \"{}\": must be 1 to 64 letters, "
                                                 "digits, '-', '_' or '.'",
                                                 name));
    } else if (contains(names, name)) {
      diagnostics.add("E-CONFLICT", site_places[i], fmt::format("two sites are named '{}'", name));
    }
    names.push_back(name);
  }
  check_paces();
  check_net();
  constexpr std::size_t kMostSites = 4096;
  if (names.size() > kMostSites) {
    diagnostics.add("E-RANGE", site_places.front(), fmt::format("more than {} sites", kMostSites));
  }
  check_links(names);
  check_faults(names);
}

void Loader::check_links(const std::vector<std::string>& names) {
  std::set<std::pair<std::string, std::string>> joined;
  for (std::size_t i = 0; i < config.links.size(); ++i) {
    const LinkConfig& link = config.links[i];
    const GivenKeys& given_keys = link_keys[i];
    const auto between = given_keys.find("link.between");
    if (between == given_keys.end()) {
      diagnostics.add("E-KEY-MISSING", link_places[i], "[[link]] without 'between'",
                      "between = [\"east\", \"west\"]");
    } else if (!link.a.empty()) {
      for (const std::string& end : {link.a, link.b}) {
        if (end != "*" && !contains(names, end)) {
          const auto near = closest(end, names);
          diagnostics.add("E-VALUE", between->second.value,
                          fmt::format("link.between names '{}', which is no site", end),
                          near ? fmt::format("did you mean '{}'?", *near)
                               : fmt::format("sites: {}", join(names)));
        }
      }
      if (link.a == link.b && link.a != "*") {
        diagnostics.add("E-CONFLICT", between->second.value,
                        fmt::format("a link between '{}' and itself", link.a));
      } else if (!joined.insert(std::minmax(link.a, link.b)).second) {
        diagnostics.add("E-CONFLICT", between->second.value,
                        fmt::format("two links between '{}' and '{}'", link.a, link.b));
      }
    }
    const bool both = given_keys.contains("link.rate");
    const bool up = given_keys.contains("link.rate_up");
    const bool down = given_keys.contains("link.rate_down");
    const auto trace = given_keys.find("link.trace");
    if (trace != given_keys.end()) {
      if (both || up || down) {
        diagnostics.add("E-CONFLICT", trace->second.key, "'link.trace' together with a rate",
                        "the trace says the rates; give one of them");
      }
    } else if (both && (up || down)) {
      diagnostics.add("E-CONFLICT", given_keys.find("link.rate")->second.key,
                      "'link.rate' together with 'link.rate_up' or 'link.rate_down'",
                      "rate is for both directions");
    } else if (!both && !(up && down)) {
      diagnostics.add("E-KEY-MISSING", link_places[i], "[[link]] without a rate",
                      "rate = \"100Mbit/s\", both rate_up and rate_down, or trace = \"day.csv\"");
    }
  }
  take_link_traces();
}

}  // namespace isthmus::config
