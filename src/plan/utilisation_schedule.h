// SPDX-License-Identifier: Apache-2.0
// The traffic of a method's schedule, for the utilisation simulator. The method's properties (H,
// fragments, overlap, a round behind, its own codec) come from the table of methods; a row's
// choices fill it. Pure functions; any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "isthmus/inner_loop.h"
#include "isthmus/outer.h"
#include "plan/utilisation.h"

namespace isthmus {

/// A method and its settings. Absent ones are those of the published tables: H = 100 (a method with
/// its own default, muloco and sparseloco: that), 3 layers a fragment (2 or 1 if 3 does not divide
/// them), strided, overlap 0 (a method one round behind: H), 16 bits (a method with its own codec:
/// that codec's).
struct UtilisationChoice {
  std::string method;
  std::optional<std::int64_t> H;
  std::optional<int> fragment_layers;
  std::optional<FragmentPattern> pattern;
  std::optional<std::int64_t> overlap;
  std::optional<double> bits;
  /// A turn without a due layer follows those of the fragments, as if embeddings were a fragment
  /// without size. Absent: off.
  std::optional<bool> embedding_turn;
};

/// Whether `method` uses the setting. THROWS: ConfigError as `utilisation_row`.
[[nodiscard]] bool method_uses(std::string_view method, std::string_view setting);

/// "streaming-diloco" or "streaming-diloco:H=50,overlap=1,bits=4".
/// THROWS: ConfigError naming an unreadable part, or a setting that the method does not use.
[[nodiscard]] UtilisationChoice parse_utilisation_choice(std::string_view spelling);

/// `choice` with absent settings that the method uses taken from `common`. THROWS: ConfigError as
/// `method_uses`.
[[nodiscard]] UtilisationChoice completed(UtilisationChoice choice,
                                          const UtilisationChoice& common);

/// A choice without absent settings.
struct UtilisationRow {
  std::string method;
  std::int64_t H = 1;
  int fragments = 1;
  std::int64_t overlap = 0;
  UtilisationSchedule schedule;
};

/// Layers of equal size, fragments in turn every floor(H / turns) steps, as in the published
/// simulator. THROWS: ConfigError naming the setting, its value and its range; or the method, if it
/// is unknown or has no fixed schedule.
[[nodiscard]] UtilisationRow utilisation_row(const UtilisationChoice& choice, int layers);

/// A configured run: its fragments, offsets, overlap and codec; shares from the sizes of
/// `parameters`, of which there must be one at least. Parameters outside the layers belong to the
/// first one. THROWS: ConfigError as for the method; or naming a setting of `options` that the
/// method refuses.
[[nodiscard]] UtilisationRow utilisation_row(std::string_view method, const OuterOptions& options,
                                             std::span<const Parameter> parameters);

/// The default comparison: the rows of the published table, and the methods that are one round
/// behind or have their own codec.
[[nodiscard]] std::span<const std::string_view> default_utilisation_rows();

}  // namespace isthmus
