// SPDX-License-Identifier: Apache-2.0
// Measures the speed of a codec on this machine, and the memory bound in the same run. Used by
// `isthmus bench codec`. One thread; blocks for repetitions of the whole vector.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "isthmus/codec.h"
#include "isthmus/runtime.h"

namespace isthmus {

struct CodecTimingOptions {
  int repetitions = 7;  // >= 1; figures are medians over them
  int passes = 1;       // >= 1; passes over the vector in one timing: more for a vector that fits a
                        // cache
};

/// GB/s = 1e9 bytes of fp32 per second, the codec's input (encode) or output (decode).
struct CodecTiming {
  std::string codec;
  std::string isa;
  std::size_t values = 0;
  std::size_t bytes = 0;  // encoded
  double bits_per_value = 0;
  double nmse = 0;       // sum (x - y)^2 / sum x^2; 0 for an all-zero x
  double copy_gb_s = 0;  // memcpy of the vector
  double read_gb_s = 0;  // one pass that only reads the vector
  double encode_gb_s = 0;
  double decode_gb_s = 0;
  double decode_add_gb_s = 0;
  double encode_spread = 0;  // (slowest - fastest) / median time
  double decode_spread = 0;
  double encode_of_bound = 0;  // share of the time that reading and writing these bytes needs at
                               // least
  double decode_of_bound = 0;
  double decode_add_of_bound = 0;
};

/// Encodes `x` and decodes it into `y` (same size, at least one value) repeatedly, tile by tile, in
/// the same memory. The bound charges 1/read for each byte read and 1/copy - 1/read for each byte
/// written. RETURNS: DecodeError when x cannot be encoded (a value that is not finite).
[[nodiscard]] Expected<CodecTiming, DecodeError> time_codec(const Codec& codec,
                                                            std::span<const float> x,
                                                            std::span<float> y,
                                                            const CodecTimingOptions& options,
                                                            const Clock& clock);

/// One JSON object without a line end. place: memory of the vector ("cache", "dram").
[[nodiscard]] std::string to_json(const CodecTiming& timing, std::string_view place);

}  // namespace isthmus
