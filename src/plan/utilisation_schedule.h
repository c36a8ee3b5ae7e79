// SPDX-License-Identifier: Apache-2.0
// From a method to what its schedule puts on the link, for the utilisation simulator. What a method
// has (H, fragments, overlap, a round behind, its own codec) is read from the table of methods; a
// row's choices fill it. Pure functions; any thread.
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

/// A method and what is chosen for it. What is absent is the published tables' setting: H = 100
/// (sparseloco: its own), 3 layers a fragment (2 or 1 where 3 does not divide them), strided,
/// overlap 0, 16 bits (a method with a codec of its own: that one's).
struct UtilisationChoice {
  std::string method;
  std::optional<std::int64_t> H;
  std::optional<int> fragment_layers;
  std::optional<FragmentPattern> pattern;
  std::optional<std::int64_t> overlap;
  std::optional<double> bits;
  /// A turn in which no layer is due follows those of the fragments, as if embeddings were a
  /// fragment of their own without size.
  std::optional<bool> embedding_turn;
};

/// Settings that a row may spell, "H" first.
[[nodiscard]] std::span<const std::string_view> utilisation_settings();
/// Whether `method` has a use for one of them. THROWS: ConfigError as `utilisation_row`.
[[nodiscard]] bool method_uses(std::string_view method, std::string_view setting);

/// "streaming-diloco" or "streaming-diloco:H=50,overlap=1,bits=4".
/// THROWS: ConfigError naming what cannot be read, or a setting that the method has no use for.
[[nodiscard]] UtilisationChoice parse_utilisation_choice(std::string_view spelling);

/// What `choice` leaves open and the method has a use for is taken from `common`.
[[nodiscard]] UtilisationChoice completed(UtilisationChoice choice,
                                          const UtilisationChoice& common);

/// A choice with nothing left open.
struct UtilisationRow {
  std::string method;
  std::int64_t H = 1;
  int fragments = 1;
  std::int64_t overlap = 0;
  UtilisationSchedule schedule;
};

/// Layers of equal size, fragments in turn every floor(H / turns) steps, as in the published
/// simulator. THROWS: ConfigError naming the setting, its value and its range; for a method that
/// is unknown or that no fixed schedule describes, which.
[[nodiscard]] UtilisationRow utilisation_row(const UtilisationChoice& choice, int layers);

/// A configured run as it would go: its fragments, offsets, overlap and codec; shares from the
/// sizes of `parameters`. What belongs to no layer goes with the first one. THROWS: the same.
[[nodiscard]] UtilisationRow utilisation_row(std::string_view method, const OuterOptions& options,
                                             std::span<const Parameter> parameters);

/// The rows of the published table, and the methods that are one round behind or have a codec of
/// their own: what is compared when nothing is asked for.
[[nodiscard]] std::span<const std::string_view> default_utilisation_rows();

}  // namespace isthmus
