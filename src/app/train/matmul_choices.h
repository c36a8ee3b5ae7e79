// SPDX-License-Identifier: Apache-2.0
// The table of algorithms for matrix products on devices: a file next to the program, made by
// bench_cuda_matmul_table on such a device. Without it the library's default choices are used. It
// belongs to a machine, like the library, so it is no key of a run's file; a run's first line and
// its manifest name it with its digest.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "kernels/cuda/device.h"

namespace isthmus::app {

inline constexpr const char* kMatmulTable = "matmul-table.txt";

/// Reads the table at `path`, if there is a file, and makes later loops use it
/// (cuda::use_matmul_table). They use none if there is no file, or if the table is not for all
/// these devices and this version of cuBLASLt. RETURNS: why an existing table is not used, or
/// empty. THROWS: ConfigError naming file and line when the file is no table.
[[nodiscard]] std::string use_matmul_choices(const std::filesystem::path& path,
                                             const std::vector<cuda::DeviceInfo>& devices);

/// The same with the table of this process's program; logs a returned reason. THROWS: likewise.
void use_matmul_choices(const std::vector<cuda::DeviceInfo>& devices);

}  // namespace isthmus::app
