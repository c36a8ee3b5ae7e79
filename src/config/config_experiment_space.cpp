// SPDX-License-Identifier: Apache-2.0
// A tuning grid as it is written: { "inner.lr" = [1e-3, 2e-3] }, or with nested tables for the
// dots.
#include <fmt/format.h>

#include <algorithm>

#include "config/config_experiment.h"
#include "config/schema/config_schema_values.h"
#include "core/base/suggest.h"
#include "core/base/units.h"

namespace isthmus::config {
namespace {

/// Whether tuning may change a key: not the model, the data or the length, which every variant
/// shares.
bool can_be_tuned(std::string_view name) {
  return name.starts_with("inner.") || name == "train.global_batch" ||
         (name.starts_with("outer.") && name != "outer.method");
}

std::vector<std::string> tunable_names() {
  std::vector<std::string> names;
  for (const auto& row : config_rows()) {
    if (can_be_tuned(row.name)) {
      names.emplace_back(row.name);
    }
  }
  return names;
}

/// A value as TOML; nothing for a value that no key takes.
std::optional<std::string> toml_of(const SourceValue& value) {
  if (const auto* flag = std::get_if<bool>(&value.data)) {
    return *flag ? "true" : "false";
  }
  if (const auto* integer = std::get_if<std::int64_t>(&value.data)) {
    return fmt::format("{}", *integer);
  }
  if (const auto* real = std::get_if<double>(&value.data)) {
    return real_text(*real);
  }
  if (const auto* text = std::get_if<std::string>(&value.data)) {
    return toml_quote(*text);
  }
  const auto* array = std::get_if<SourceArray>(&value.data);
  if (array == nullptr) {
    return std::nullopt;
  }
  std::vector<std::string> parts;
  for (const SourceValue& element : *array) {
    const auto part = toml_of(element);
    if (!part) {
      return std::nullopt;
    }
    parts.push_back(*part);
  }
  return fmt::format("[{}]", join(parts));
}

class SpaceReader {
 public:
  explicit SpaceReader(Diagnostics& diagnostics) : diagnostics_(diagnostics) {}

  void read(const std::string& prefix, const SourceTable& table) {
    for (const SourceEntry& entry : table) {
      const std::string name(canonical_name(prefix + entry.key));
      if (const auto* nested = std::get_if<SourceTable>(&entry.value.data)) {
        read(name + ".", *nested);
      } else if (check_name(name, entry.place)) {
        read_axis(name, entry);
      }
    }
  }
  /// In the order of the file, which the parser does not keep.
  [[nodiscard]] std::vector<TuneAxis> take() {
    std::sort(axes_.begin(), axes_.end(), [](const TuneAxis& a, const TuneAxis& b) {
      const auto place = [](const TuneAxis& axis) {
        return std::pair(axis.values.front().line, axis.values.front().column);
      };
      return place(a) < place(b);
    });
    return std::move(axes_);
  }

 private:
  bool check_name(const std::string& name, const Place& place) {
    if (can_be_tuned(name) && contains(name)) {
      return true;
    }
    const auto rows = config_rows();
    const bool known =
        std::any_of(rows.begin(), rows.end(), [&](const auto& row) { return row.name == name; });
    if (known) {
      diagnostics_.add("E-VALUE", place, fmt::format("'{}' cannot be tuned", name),
                       "keys of [inner] and [outer] (but for the method) and train.global_batch; "
                       "what else differs makes a variant");
    } else {
      const auto near = closest(name, tunable_names());
      diagnostics_.add("E-KEY-UNKNOWN", place, fmt::format("unknown key '{}' in a space", name),
                       near ? fmt::format("did you mean \"{}\"?", *near)
                            : "write keys whole: \"inner.lr\" = [1e-3, 2e-3]");
    }
    return false;
  }

  static bool contains(const std::string& name) {
    const std::vector<std::string> names = tunable_names();
    return std::find(names.begin(), names.end(), name) != names.end();
  }

  void read_axis(const std::string& name, const SourceEntry& entry) {
    const auto* array = std::get_if<SourceArray>(&entry.value.data);
    constexpr std::size_t kMostValues = 1000;
    if (array == nullptr || array->empty() || array->size() > kMostValues) {
      diagnostics_.add("E-TYPE", entry.value.place,
                       fmt::format("'{}' in a space must be an array of 1 to {} values to try",
                                   name, kMostValues),
                       fmt::format("\"{}\" = [1e-3, 2e-3]", name));
      return;
    }
    TuneAxis axis{.key = name};
    for (const SourceValue& element : *array) {
      const auto text = toml_of(element);
      if (!text) {
        diagnostics_.add("E-TYPE", element.place,
                         fmt::format("'{}' cannot be {}", name, type_name(element)));
        continue;
      }
      const bool twice = std::any_of(axis.values.begin(), axis.values.end(),
                                     [&](const Setting& each) { return each.value == *text; });
      if (twice) {
        diagnostics_.add("E-CONFLICT", element.place,
                         fmt::format("'{}' in a space holds {} twice", name, *text));
      }
      axis.values.push_back({.key = name,
                             .value = *text,
                             .line = element.place.line,
                             .column = element.place.column,
                             .width = element.place.width});
    }
    if (!axis.values.empty()) {
      axes_.push_back(std::move(axis));
    }
  }

  Diagnostics& diagnostics_;
  std::vector<TuneAxis> axes_;
};

}  // namespace

std::vector<TuneAxis> read_space(const SourceValue& space, Diagnostics& diagnostics) {
  const auto* table = std::get_if<SourceTable>(&space.data);
  if (table == nullptr) {
    diagnostics.add("E-TYPE", space.place,
                    fmt::format("a space must be a table, not {}", type_name(space)),
                    "space = { \"inner.lr\" = [1e-3, 2e-3] }");
    return {};
  }
  SpaceReader reader(diagnostics);
  reader.read("", *table);
  return reader.take();
}

}  // namespace isthmus::config
