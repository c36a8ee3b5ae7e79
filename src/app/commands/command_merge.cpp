// SPDX-License-Identifier: Apache-2.0
// `merge`: one model that is the weighted mean of several, of sites, seeds or the last checkpoints.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "app/commands/command_runs.h"
#include "app/inference/model_folder.h"
#include "app/train/config_to_options.h"
#include "app/train/hf_model.h"
#include "app/train/model_steps.h"
#include "core/base/log.h"
#include "core/base/units.h"
#include "core/state/checkpoint.h"
#include "inner/hf/hf_companions.h"
#include "inner/hf/hf_config.h"
#include "inner/hf/hf_weights.h"
#include "inner/model/model_shape.h"
#include "record/json_line.h"
#include "record/run_lock.h"

namespace isthmus::app {
namespace {

namespace fs = std::filesystem;

/// Their shares of the mean. THROWS: UsageError.
std::vector<double> shares(const MergeArguments& arguments) {
  std::vector<double> weights = arguments.weights;
  if (weights.empty()) weights.assign(arguments.from.size(), 1.0);
  if (weights.size() != arguments.from.size()) {
    throw UsageError(
        fmt::format("--weights: {} given for {} models", weights.size(), arguments.from.size()));
  }
  const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
  const bool sound = std::ranges::all_of(weights, [](double w) { return w >= 0; });
  if (!sound || !(sum > 0) || !std::isfinite(sum)) {
    throw UsageError("--weights: must be finite, none below 0, and not all 0");
  }
  for (double& weight : weights) weight /= sum;
  return weights;
}

/// The difference in the computation of two models of one layout, if there is one.
const char* unlike(const ModelShape& a, const ModelShape& b) {
  if (a.heads != b.heads || a.kv_heads != b.kv_heads || a.head_dim != b.head_dim) return "heads";
  if (a.tied != b.tied) return "heads' weights (one is tied)";
  if (a.qk_norm != b.qk_norm) return "norms of queries and keys";
  if (a.rope_theta != b.rope_theta) return "rope_theta";
  if (a.norm_eps != b.norm_eps) return "norm_eps";
  if (a.family != b.family) return "layers (families, rotary scaling or windows)";
  return nullptr;
}

/// The settings and companions of a mean are those of the first model: names the companions that
/// differ in the others.
void add_unlike_companions(std::vector<std::string>& left_out, const Storage& storage,
                           const ModelShape& shape, const std::vector<fs::path>& models) {
  const auto companions = [&](const fs::path& from) {
    return hf_companions(storage, shape, weights_folder(storage, from), false).files;
  };
  const auto first = companions(models.front());
  for (std::size_t m = 1; m < models.size(); ++m) {
    for (const auto& file : companions(models[m])) {
      if (std::ranges::find(first, file) != first.end()) continue;
      left_out.push_back(fmt::format("{} of {} (it is not that of {})", file.first,
                                     models[m].string(), models.front().string()));
    }
  }
}

void merge_models(const MergeArguments& arguments, const std::vector<double>& weights,
                  SystemStorage& storage, Session& session) {
  const fs::path first = weights_folder(storage, arguments.from.front());
  const HfConfig config = read_hf_config(storage, first);
  HfModel model(model_shape(config.model, config.model.context));
  std::vector<double> mean(model.values.size(), 0.0);
  std::vector<std::string> not_read;  // tensors of the first
  for (std::size_t m = 0; m < arguments.from.size(); ++m) {
    const fs::path folder = weights_folder(storage, arguments.from[m]);
    const HfConfig its = read_hf_config(storage, folder);
    const ModelShape shape = model_shape(its.model, its.model.context);
    if (const HfModel other(shape); its.model.arch != config.model.arch ||
                                    layout_digest(other.layout) != layout_digest(model.layout)) {
      throw ConfigError(fmt::format(
          "'{}' and '{}' have different shapes: {} with {} parameters and {} with {}; give models "
          "of one shape",
          first.string(), folder.string(), config.model.arch, with_commas(model.layout.elements()),
          its.model.arch, with_commas(other.layout.elements())));
    }
    if (const char* what = unlike(model.layout.shape(), shape)) {
      throw ConfigError(fmt::format(
          "'{}' and '{}' have different {}, so the mean of their weights is no model; give models "
          "that agree in it",
          first.string(), folder.string(), what));
    }
    if (storage.kind(folder / "state.json") == FileKind::kFile) {
      const Checkpoint checkpoint = Checkpoint::open(storage, folder);  // every byte verified
      if (const auto missing = unapplied_steps_of(checkpoint)) {
        log_warning("{}: {}", folder.string(), outer::unapplied_text(*missing));
      }
    }
    std::vector<std::string> its_left = load_hf_weights(storage, folder, model.parameters());
    if (m == 0) not_read = std::move(its_left);
    for (std::size_t i = 0; i < mean.size(); ++i) {
      mean[i] += weights[m] * static_cast<double>(model.values[i]);
    }
  }
  std::ranges::transform(mean, model.values.begin(),
                         [](double v) { return static_cast<float>(v); });
  ModelNotes notes = model.write(storage, arguments.out, first, std::move(not_read));
  add_unlike_companions(notes.left_out, storage, model.layout.shape(), arguments.from);
  session.wrote(arguments.out);
  if (session.json) {
    session.answer(JsonLine()
                       .add("folder", arguments.out.string())
                       .add("models", arguments.from.size())
                       .add("arch", config.model.arch)
                       .add("parameters", model.layout.elements())
                       .add("left_out", std::span<const std::string>(notes.left_out))
                       .add("notes", std::span<const std::string>(notes.odd)));
  } else {
    session.out.write(fmt::format("wrote {}: the mean of {} models, {}, {} parameters\n",
                                  arguments.out.string(), arguments.from.size(), config.model.arch,
                                  with_commas(model.layout.elements())));
    notes.tell(session);
  }
}

}  // namespace

int command_merge(const MergeArguments& arguments, Session& session) {
  if (arguments.from.size() < 2) {
    throw UsageError("merge: two models at least; `isthmus export` copies one");
  }
  const std::vector<double> weights = shares(arguments);
  SystemStorage storage;
  check_outside_runs(arguments.out);
  if (storage.kind(arguments.out) != FileKind::kAbsent) {
    throw ConfigError(
        fmt::format("--out {}: is there already; name a new folder", arguments.out.string()));
  }
  const auto folders = [&] {
    std::vector<fs::path> each;
    for (const fs::path& from : arguments.from) each.push_back(weights_folder(storage, from));
    return each;
  };
  read_newest(folders, [&] { merge_models(arguments, weights, storage, session); });
  return 0;
}

}  // namespace isthmus::app
