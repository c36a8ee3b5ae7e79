// SPDX-License-Identifier: Apache-2.0
// What this build knows of each method: its description, and who makes it where.
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
  DeviceMaker make_on_device = nullptr;      // null: its outer state is on the host alone
  DeviceMaker make_beside_device = nullptr;  // null: so is its arithmetic
  RanksMaker make_on_ranks = nullptr;        // null: it is whole at one process
};

[[nodiscard]] const std::vector<MethodRow>& method_table();
/// THROWS: ConfigError, of the options too.
[[nodiscard]] const MethodRow& checked_method(std::string_view name, const OuterOptions& options);

}  // namespace isthmus::outer
