// SPDX-License-Identifier: Apache-2.0
// Selects the kernels: by default the best instruction set of this machine, found once; another one
// on request (train.kernels, tests, benchmarks), but not while kernels run. "onednn" is the best
// set with matrix products by oneDNN, if the build has it.
#pragma once

#include <string_view>
#include <vector>

namespace isthmus::kernels {

enum class Isa { kPortable, kOneDnn, kAvx2, kAvx512, kAvx512Bf16, kAvx512Amx };

[[nodiscard]] std::string_view name_of(Isa isa);
/// The sets that this build has and this machine supports, in the order of the enumeration, the
/// best one last; never empty.
[[nodiscard]] std::vector<Isa> available_isas();
[[nodiscard]] Isa active_isa();
/// The set of that name, or the best for "auto". THROWS: ConfigError listing the available sets.
[[nodiscard]] Isa isa_named(std::string_view name);
/// REQUIRES: `isa` is available; no kernel is running.
void use_isa(Isa isa);

}  // namespace isthmus::kernels
