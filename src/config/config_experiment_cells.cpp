// SPDX-License-Identifier: Apache-2.0
// The run files of a comparison's cells: layers laid over one another, loaded and checked.
#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <tuple>

#include "config/check/config_check.h"
#include "config/config_experiment_reader.h"
#include "config/load/config_load_defaults.h"
#include "config/load/config_load_reader.h"
#include "config/load/config_load_toml.h"
#include "core/base/suggest.h"

namespace isthmus {
namespace config {
namespace {

const SourceEntry* find_entry(const SourceTable& table, std::string_view key) {
  const auto found = std::find_if(table.begin(), table.end(),
                                  [key](const SourceEntry& entry) { return entry.key == key; });
  return found == table.end() ? nullptr : &*found;
}

/// Keys of one section; other spellings of a key count as the same.
SourceTable section_over(std::string_view section, const SourceTable& base,
                         const SourceTable& overlay) {
  const auto name_of = [&](const SourceEntry& entry) {
    return std::string(canonical_name(fmt::format("{}.{}", section, entry.key)));
  };
  SourceTable laid;
  for (const SourceEntry& entry : base) {
    const bool replaced = std::any_of(overlay.begin(), overlay.end(), [&](const SourceEntry& own) {
      return name_of(own) == name_of(entry);
    });
    if (!replaced) {
      laid.push_back(entry);
    }
  }
  laid.insert(laid.end(), overlay.begin(), overlay.end());
  return laid;
}

void place_all(SourceValue& value, const Place& place) {
  value.place = place;
  if (auto* array = std::get_if<SourceArray>(&value.data)) {
    for (SourceValue& element : *array) {
      place_all(element, place);
    }
  }
}

/// Errors of several loads, each told once; one that not all variants share names those it is of.
class Findings {
 public:
  void add(const std::vector<Diagnostic>& diagnostics, const std::string& variant) {
    for (const Diagnostic& each : diagnostics) {
      const auto same = std::find_if(found_.begin(), found_.end(), [&](const Found& other) {
        return other.diagnostic.where == each.where && other.diagnostic.message == each.message;
      });
      Found& found = same == found_.end() ? found_.emplace_back(Found{each, {}}) : *same;
      if (found.variants.empty() || found.variants.back() != variant) {
        found.variants.push_back(variant);
      }
    }
  }
  [[nodiscard]] std::vector<Diagnostic> take(std::size_t variants) {
    std::stable_sort(found_.begin(), found_.end(), [](const Found& a, const Found& b) {
      const auto place = [](const Diagnostic& each) {
        return std::tuple(each.line == 0, each.line, each.column);
      };
      return place(a.diagnostic) < place(b.diagnostic);
    });
    std::vector<Diagnostic> all;
    for (Found& each : found_) {
      if (each.variants.size() < variants) {
        each.diagnostic.message += fmt::format(" (in variant {})", join(each.variants));
      }
      all.push_back(std::move(each.diagnostic));
    }
    return all;
  }

 private:
  struct Found {
    Diagnostic diagnostic;
    std::vector<std::string> variants;
  };
  std::vector<Found> found_;
};

std::int64_t points_of(const ExperimentVariant& variant) {
  std::int64_t points = 1;
  for (const TuneAxis& axis : variant.space) {
    points *= static_cast<std::int64_t>(axis.values.size());
    points = std::min<std::int64_t>(points, 1'000'000);
  }
  return points;
}

Place place_of(const Setting& setting) { return {0, setting.line, setting.column, setting.width}; }

/// Equal budgets: all grids have as many points, or nothing is tuned.
void check_budgets(const Experiment::Parts& parts, Diagnostics& diagnostics) {
  const ExperimentVariant* first = nullptr;  // the first that is tuned
  for (const ExperimentVariant& variant : parts.variants) {
    if (first == nullptr && !variant.space.empty()) {
      first = &variant;
    }
  }
  if (first == nullptr) {
    if (parts.settings.tune_trials > 0) {
      diagnostics.add("E-KEY-MISSING", {}, "'compare.tune.trials' without 'compare.tune.space'",
                      "space = { \"inner.lr\" = [1e-3, 2e-3] } in [compare.tune]");
    }
    return;
  }
  const std::int64_t asked = parts.settings.tune_trials;
  const std::int64_t trials = asked > 0 ? asked : points_of(*first);
  constexpr std::int64_t kMostTrials = 1000;
  if (trials > kMostTrials) {
    diagnostics.add("E-RANGE", place_of(first->space.front().values.front()),
                    fmt::format("a grid of more than {} points", kMostTrials));
  }
  std::vector<std::string> without;
  for (const ExperimentVariant& variant : parts.variants) {
    if (variant.space.empty()) {
      without.push_back(variant.name);
    } else if (points_of(variant) != trials) {
      diagnostics.add("E-CONFLICT", place_of(variant.space.front().values.front()),
                      fmt::format("the grid of variant '{}' has {} points, {} {}", variant.name,
                                  points_of(variant),
                                  asked > 0 ? "compare.tune.trials says" : "others have", trials),
                      "every variant gets the same number of trials");
    }
  }
  if (!without.empty()) {
    diagnostics.add("E-CONFLICT", {},
                    fmt::format("no space for {} while {} is tuned", join(without), first->name),
                    "every variant gets the same number of trials: [variant.NAME.tune], or one "
                    "space for all in [compare.tune]");
  }
}

/// The points of a grid, the last key's values changing fastest.
void for_each_point(const ExperimentVariant& variant, std::vector<Setting>& point,
                    const std::function<void(const std::vector<Setting>&)>& visit) {
  if (point.size() == variant.space.size()) {
    visit(point);
    return;
  }
  for (const Setting& value : variant.space[point.size()].values) {
    point.push_back(value);
    for_each_point(variant, point, visit);
    point.pop_back();
  }
}

constexpr std::string_view kGivenByCompare[][2] = {
    {"run.seed", "the seeds are compare.seeds"},
    {"eval.part", "`compare` tunes on the second half and reports on the first"}};

/// Keys that a variant's run file may not have, because the comparison sets them.
void check_reserved(Draft& draft, const ExperimentVariant& variant) {
  for (const auto& [key, why] : kGivenByCompare) {
    const auto found = draft.keys.find(key);
    if (found != draft.keys.end()) {
      draft.diagnostics.add("E-KEY-UNUSED", found->second.key,
                            fmt::format("'{}' is not used in a comparison", key),
                            fmt::format("remove it: {}", why));
    }
  }
  for (const TuneAxis& axis : variant.space) {
    const auto found = draft.keys.find(axis.key);
    if (found != draft.keys.end() && found->second.key.source > 0) {
      draft.diagnostics.add("E-CONFLICT", found->second.key, fmt::format("'{}' is tuned", axis.key),
                            "take it out of the space, or leave it to the tuning");
    }
  }
}

}  // namespace

SourceTable laid_over(const SourceTable& base, const SourceTable& overlay) {
  SourceTable laid;
  for (const SourceEntry& entry : base) {
    if (find_entry(overlay, entry.key) == nullptr) {
      laid.push_back(entry);
    }
  }
  for (const SourceEntry& entry : overlay) {
    const SourceEntry* below = find_entry(base, entry.key);
    const auto* own = std::get_if<SourceTable>(&entry.value.data);
    const auto* theirs = below == nullptr ? nullptr : std::get_if<SourceTable>(&below->value.data);
    const bool another_method =
        entry.key == "outer" && own != nullptr && find_entry(*own, "method") != nullptr;
    laid.push_back(entry);
    if (own != nullptr && theirs != nullptr && !another_method) {
      laid.back().value.data = section_over(entry.key, *theirs, *own);
    }
  }
  return laid;
}

std::vector<Diagnostic> check_cells(const Experiment::Parts& parts) {
  Diagnostics budgets(parts.text, parts.file.string());
  check_budgets(parts, budgets);
  const bool bounded = budgets.empty();
  Findings findings;
  for (std::size_t v = 0; v < parts.variants.size(); ++v) {
    const ExperimentVariant& variant = parts.variants[v];
    Draft as_given = parts.load(v, {});
    check_reserved(as_given, variant);
    findings.add(as_given.diagnostics.take(), variant.name);
    std::vector<Setting> point;
    if (bounded && !variant.space.empty()) {
      for_each_point(variant, point, [&](const std::vector<Setting>& at) {
        findings.add(parts.load(v, at).diagnostics.take(), variant.name);
      });
    }
  }
  std::vector<Diagnostic> all = findings.take(parts.variants.size());
  for (Diagnostic& each : budgets.take()) {
    all.push_back(std::move(each));
  }
  return all;
}

}  // namespace config

config::Draft Experiment::Parts::load(std::size_t variant, std::span<const Setting> cell) const {
  config::Draft draft(text, file, context);
  config::Reader reader(draft);
  reader.read_table(laid[variant]);
  for (const OfVariant& each : overrides_of[variant]) {
    Override given = overrides.all()[each.index];
    const int source = draft.diagnostics.add_source(given.label());
    given.text = each.text;
    reader.read_override(given, source);
  }
  for (const Setting& setting : cell) {
    config::Place place = config::place_of(setting);
    if (setting.line == 0) {
      place = {draft.diagnostics.add_source(setting.origin), 0, 0, 1};
    }
    config::SourceValue value = config::parse_override_value(setting.value, place.source);
    config::place_all(value, place);
    reader.replace(setting.key, value);
  }
  reader.explain_unknown_keys();
  config::complete(draft);
  config::validate(draft);
  return draft;
}

}  // namespace isthmus
