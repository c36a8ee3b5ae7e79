// SPDX-License-Identifier: Apache-2.0
// The table of algorithms for matrix products on devices: a file beside the program, which
// bench_cuda_matmul_table has made on such a device. Without it the library's first answers are
// taken. It belongs to a machine, as the library does, and so is no key of a run's file; a run's
// first line and its manifest name it with its digest.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "kernels/cuda/device.h"

namespace isthmus::app {

inline constexpr const char* kMatmulTable = "matmul-table.txt";

/// Reads the table at `path`, where there is a file, and has the loops made from now on use it
/// (cuda::use_matmul_table); where there is none, or it is not one of all these devices and of this
/// version of cuBLASLt, they use none. RETURNS: why a table that is there is not used, or empty.
/// THROWS: ConfigError naming file and line where the file is no table.
[[nodiscard]] std::string use_matmul_choices(const std::filesystem::path& path,
                                             const std::vector<cuda::DeviceInfo>& devices);

/// That beside this process's program, one line of the log for what is returned. THROWS: likewise.
void use_matmul_choices(const std::vector<cuda::DeviceInfo>& devices);

}  // namespace isthmus::app
