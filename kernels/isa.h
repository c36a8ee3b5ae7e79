// SPDX-License-Identifier: Apache-2.0
// Which instruction set the float kernels use: the best one this machine has, found once. Tests and
// benchmarks may ask for another; that is not for use while kernels run.
#pragma once

#include <string_view>
#include <vector>

namespace isthmus::kernels {

enum class Isa { kPortable, kAvx2, kAvx512, kAvx512Bf16 };

[[nodiscard]] std::string_view name_of(Isa isa);
/// Those that this build holds and this machine runs, slowest first; never empty.
[[nodiscard]] std::vector<Isa> available_isas();
[[nodiscard]] Isa active_isa();
/// REQUIRES: `isa` is available; no kernel is running.
void use_isa(Isa isa);

}  // namespace isthmus::kernels
