// SPDX-License-Identifier: Apache-2.0
#include "config/schema/experiment.h"

#include <algorithm>

#include "config/config_experiment_reader.h"
#include "config/load/config_load_origins.h"
#include "config/load/config_load_text.h"

namespace isthmus {

std::vector<std::int64_t> ExperimentSettings::seeds_of_trials(
    std::span<const std::int64_t> tried) const {
  constexpr std::int64_t kApart = 1'000'000;  // more than anybody reports of 1, 2, 3, ...
  std::vector<std::int64_t> found = {tune_seed};
  const auto add = [&](std::int64_t seed) {
    const bool taken = std::ranges::find(seeds, seed) != seeds.end() ||
                       std::ranges::find(found, seed) != found.end();
    if (!taken && std::ssize(found) < tune_seeds) found.push_back(seed);
  };
  std::vector<std::int64_t> before(tried.begin(), tried.end());
  std::ranges::sort(before);
  if (std::ranges::binary_search(before, tune_seed)) std::ranges::for_each(before, add);
  for (std::int64_t k = 1; std::ssize(found) < tune_seeds; ++k) add(tune_seed + k * kApart);
  return found;
}

Experiment::Experiment(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {}
Experiment::~Experiment() = default;
Experiment::Experiment(Experiment&&) noexcept = default;
Experiment& Experiment::operator=(Experiment&&) noexcept = default;

Experiment Experiment::load(const std::filesystem::path& file, const Overrides& overrides,
                            const SchemaContext& context) {
  return load_text(config::read_config_file(file), file, overrides, context);
}

Experiment Experiment::load_text(std::string_view text, const std::filesystem::path& name,
                                 const Overrides& overrides, const SchemaContext& context) {
  auto parts = std::make_unique<Parts>();
  parts->file = name;
  parts->text = text;
  parts->overrides = overrides;
  parts->context = context;
  config::Diagnostics diagnostics(text, name.string());
  std::vector<Diagnostic> of_cells;
  if (const auto table = config::parse_source(text, diagnostics)) {
    config::ExperimentReader(*parts, diagnostics).read(*table);
    if (parts->variants.size() > 1) {
      of_cells = config::check_cells(*parts);
    }
  }
  std::vector<Diagnostic> found = diagnostics.take();
  found.insert(found.end(), of_cells.begin(), of_cells.end());
  if (!found.empty()) {
    throw ConfigErrors(std::move(found));
  }
  return Experiment(std::move(parts));
}

const std::filesystem::path& Experiment::file() const { return parts_->file; }
const std::string& Experiment::text() const { return parts_->text; }
const ExperimentSettings& Experiment::settings() const { return parts_->settings; }
const std::vector<ExperimentVariant>& Experiment::variants() const { return parts_->variants; }
std::size_t Experiment::baseline() const { return parts_->baseline; }

Config Experiment::config(std::size_t variant, std::span<const Setting> settings) const {
  config::Draft draft = parts_->load(variant, settings);
  if (!draft.diagnostics.empty()) {
    throw ConfigErrors(draft.diagnostics.take());
  }
  config::note_origins(draft);
  draft.config.text = resolved_toml(draft.config);
  return std::move(draft.config);
}

}  // namespace isthmus
