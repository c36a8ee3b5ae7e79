// SPDX-License-Identifier: Apache-2.0
// Which kernels compute: the best instruction set this machine has, found once, unless another is
// asked for (train.kernels, tests, benchmarks); that is not for use while kernels run. "onednn" is
// the best set with matrix products by oneDNN, where the build holds it.
#pragma once

#include <string_view>
#include <vector>

namespace isthmus::kernels {

enum class Isa { kPortable, kOneDnn, kAvx2, kAvx512, kAvx512Bf16 };

[[nodiscard]] std::string_view name_of(Isa isa);
/// Those that this build holds and this machine runs, in the order of the enumeration, the best one
/// last; never empty.
[[nodiscard]] std::vector<Isa> available_isas();
[[nodiscard]] Isa active_isa();
/// The one of that name, or the best for "auto". THROWS: ConfigError listing those available.
[[nodiscard]] Isa isa_named(std::string_view name);
/// REQUIRES: `isa` is available; no kernel is running.
void use_isa(Isa isa);

}  // namespace isthmus::kernels
