// SPDX-License-Identifier: Apache-2.0
// What an outer method checks of its caller before the first step: the tensors of the inner loop,
// and that all workers start with equal settings and parameters. Pure but for the exchange; the
// worker's thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "isthmus/inner_loop.h"
#include "isthmus/outer.h"
#include "isthmus/transport.h"

namespace isthmus::outer {

/// What a layer that cannot be is told: its number and the rule.
[[nodiscard]] std::string layer_rule(int layer);

/// What is wrong with a tensor's shape, or with its elements where `begin` values are before it;
/// else empty.
[[nodiscard]] std::string layout_fault(const Parameter& parameter, std::int64_t begin);

/// THROWS: ConfigError unless the parameter's layer is kNoLayer, or from 0 to kLayerLimit - 1.
/// `place`: of the parameter among those of the inner loop.
void check_layer(std::size_t place, const Parameter& parameter);

/// Checks the canonical flat layout that isthmus/inner_loop.h describes: names are there and
/// unique, layers are kNoLayer or a number below kLayerLimit, `elements` follow one another and
/// have the size of the shape, and `values` too, in memory of their own. THROWS: ConfigError naming
/// the first tensor that breaks the layout, its value and the right one.
void check_parameters(std::span<const Parameter> parameters);

/// REQUIRES: the values are read. A run that begins with NaN or infinity ends with it.
/// THROWS: ConfigError naming the first tensor that holds a value which is not finite, and its
/// place.
void check_finite_start(std::span<const Parameter> parameters);

/// Compares a digest of every tensor with the other workers' (Exchange::agree_on_start). Every
/// method calls this function before step 1, the 1-bit methods through `ddp`, whose step theirs
/// begin with, and only then: the parameters of a saved run differ from worker to worker. THROWS:
/// ConfigError naming the first tensor that differs, or as check_finite_start.
void agree_on_parameters(InnerLoop& inner, Exchange& exchange);

}  // namespace isthmus::outer
