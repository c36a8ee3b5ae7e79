// SPDX-License-Identifier: Apache-2.0
// Checks by an outer method before the first step: the tensors of the inner loop, and that all
// workers start with equal settings and parameters. Pure except for the exchange; called on the
// worker's thread.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "isthmus/inner_loop.h"
#include "isthmus/outer.h"
#include "isthmus/transport.h"

namespace isthmus::outer {

/// The error text for an invalid layer: its number and the rule.
[[nodiscard]] std::string layer_rule(int layer);

/// THROWS: ConfigError unless the parameter's layer is kNoLayer, or from 0 to kLayerLimit - 1.
/// `place`: the parameter's index in InnerLoop::parameters().
void check_layer(std::size_t place, const Parameter& parameter);

/// Checks the canonical flat layout of isthmus/inner_loop.h: names are present and unique; layers
/// are kNoLayer or below kLayerLimit; `elements` are consecutive and match the shape; `values`
/// match too and do not overlap. THROWS: ConfigError naming the first tensor that breaks the
/// layout, its value and the expected one.
void check_parameters(std::span<const Parameter> parameters);

/// REQUIRES: the values have been read. A run that starts with a NaN or infinity would end with it.
/// THROWS: ConfigError naming the first tensor with a value that is not finite, and its index.
void check_finite_start(std::span<const Parameter> parameters);

/// Compares a digest of every tensor with the other workers' (Exchange::agree_on_start). Every
/// method calls this before step 1 (the 1-bit methods through `ddp`, which takes their first step)
/// and only then: in a resumed run the parameters differ between workers. THROWS: ConfigError
/// naming the first tensor that differs, or as check_finite_start.
void agree_on_parameters(InnerLoop& inner, Exchange& exchange);

}  // namespace isthmus::outer
