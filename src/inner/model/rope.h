// SPDX-License-Identifier: Apache-2.0
// Rotary frequencies of a model and the tables of cosines and sines that its layers read. The
// formulas are those of transformers 5.24 (modeling_rope_utils.py). Pure functions.
#pragma once

#include <cstdint>
#include <vector>

#include "inner/model/model_shape.h"

namespace isthmus {

/// Rotation angle per position of each pair of a head's values, (rotary_dim / 2,): theta^(-2i /
/// rotary_dim) with the family's scaling. `local`: for layers with a local base.
[[nodiscard]] std::vector<double> rope_frequencies(const ModelShape& shape, bool local = false);

/// Number of values in the tables of all layers: cosine and sine of (longest, rotary_dim / 2),
/// twice if local layers have a separate base.
[[nodiscard]] std::int64_t rope_table_values(const ModelShape& shape);
/// Fills `tables` (rope_table_values,): cosine, sine, then those of local layers. Real: float,
/// double.
template <typename Real>
void fill_rope_tables(const ModelShape& shape, Real* tables);

/// Start of a layer's cosines in `tables`; its sines are rope_sine_offset() values later.
[[nodiscard]] std::int64_t rope_cosine_offset(const ModelShape& shape, std::int64_t layer);
[[nodiscard]] std::int64_t rope_sine_offset(const ModelShape& shape);

}  // namespace isthmus
