// SPDX-License-Identifier: Apache-2.0
// Chosen by CMake when there is no CUDA: says so and computes nothing.
#include <fmt/format.h>

#include "isthmus/errors.h"
#include "quant/cuda/cuda_codec.h"
#include "quant/cuda/cuda_codec_timing.h"

namespace isthmus::cuda {
namespace {

[[noreturn]] void refuse(std::string_view spelling) {
  static_cast<void>(make_codec(spelling));  // a bad spelling is the first thing to say
  throw SystemError(fmt::format("codec = \"{}\" on a CUDA device: {}", spelling, unavailable()));
}

}  // namespace

std::unique_ptr<const DeviceCodec> make_device_codec(std::string_view spelling) {
  refuse(spelling);
}

DeviceCodecTiming time_device_codec(std::string_view spelling, const DeviceCodecTimingOptions&) {
  refuse(spelling);
}

}  // namespace isthmus::cuda
