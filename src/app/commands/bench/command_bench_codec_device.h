// SPDX-License-Identifier: Apache-2.0
// `bench codec --device cuda`: the codecs on the first CUDA device.
#pragma once

#include <cstdint>
#include <string>

#include "app/common/commands.h"

namespace isthmus::app {

struct BenchCodecDeviceArguments {
  std::string device = "cpu";  // or cuda
  std::int64_t values = std::int64_t{1} << 28;
};

/// THROWS: SystemError when there is no device or no kernels; ConfigError for a codec without
/// kernels.
[[nodiscard]] int command_bench_codec_device(const BenchCodecArguments& arguments,
                                             const BenchCodecDeviceArguments& device,
                                             Session& session);

}  // namespace isthmus::app
