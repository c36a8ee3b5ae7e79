// SPDX-License-Identifier: Apache-2.0
// Measures the speed of a codec on the device, and of a copy within device memory in the same run.
// Used by `isthmus bench codec --device cuda`. Blocks.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace isthmus::cuda {

struct DeviceCodecTimingOptions {
  std::size_t values = std::size_t{1} << 28;  // normally distributed values; 1 to 2^32
  int repetitions = 9;                        // >= 1; figures are medians over them
};

/// GB/s = 1e9 bytes of fp32 per second. Shares: bytes read and written per second, relative to the
/// copy.
struct DeviceCodecTiming {
  std::string codec;
  std::string device;
  std::size_t values = 0;
  std::size_t bytes = 0;  // encoded
  double bits_per_value = 0;
  double copy_gb_s = 0;  // of fp32; read and written: twice as many bytes
  double encode_gb_s = 0;
  double decode_gb_s = 0;
  double decode_add_gb_s = 0;
  double encode_spread = 0;  // (slowest - fastest) / median time
  double encode_of_copy = 0;
  double decode_of_copy = 0;
  double decode_add_of_copy = 0;  // 0 for sparse codecs, which access few of the values
};

/// THROWS: ConfigError and SystemError as make_device_codec, before memory is allocated;
/// OutOfDeviceMemory for too many values.
[[nodiscard]] DeviceCodecTiming time_device_codec(std::string_view spelling,
                                                  const DeviceCodecTimingOptions& options);

}  // namespace isthmus::cuda
