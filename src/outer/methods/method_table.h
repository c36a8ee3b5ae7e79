// SPDX-License-Identifier: Apache-2.0
// Table of this build's methods: description, and functions that make each for every placement.
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "isthmus/outer.h"
#include "kernels/cuda/resident_values.h"
#include "outer/place/device_fragment.h"
#include "outer/place/lane_fragment.h"

namespace isthmus::outer {

using Maker = std::unique_ptr<OuterStrategy> (*)(const MethodInfo&, const OuterOptions&, InnerLoop&,
                                                 Exchange&);
using DeviceMaker = std::unique_ptr<OuterStrategy> (*)(const MethodInfo&, const OuterOptions&,
                                                       InnerLoop&, Exchange&, cuda::ResidentValues&,
                                                       KeptIn);
using RanksMaker = std::unique_ptr<OuterStrategy> (*)(const MethodInfo&, const OuterOptions&,
                                                      InnerLoop&, Exchange&, RanksCall);

struct MethodRow {
  MethodInfo info;
  Maker make;
  DeviceMaker make_on_device = nullptr;      // null: its outer state is only on the host
  DeviceMaker make_beside_device = nullptr;  // null: its arithmetic is only on the host
  RanksMaker make_on_ranks = nullptr;        // null: its state is not sharded over ranks
};

[[nodiscard]] const std::vector<MethodRow>& method_table();
/// THROWS: ConfigError for an unknown method or invalid options.
[[nodiscard]] const MethodRow& checked_method(std::string_view name, const OuterOptions& options);

}  // namespace isthmus::outer
