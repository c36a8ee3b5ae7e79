// SPDX-License-Identifier: Apache-2.0
// Numbers with units, as configuration files and flags spell them: "100Mbit/s", "80ms", "16k tok".
// k M G T P are powers of 1000, Ki Mi Gi Ti powers of 1024; bits and bytes are spelt, never
// guessed. Pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "isthmus/expected.h"
#include "isthmus/types.h"

namespace isthmus {

enum class Dimension {
  kTime,        // ns us ms s min h d
  kRate,        // bit/s, B/s with prefixes; value in bit/s
  kBytes,       // B with prefixes
  kTokens,      // tok; the unit may be left out, a suffix k M G Ki Mi Gi may stand alone
  kSteps,       // steps, or %; the unit may be left out
  kFraction,    // plain or %
  kFlops,       // FLOPS or FLOP/s with prefixes
  kParameters,  // k M B T (B = 10^9); no unit
};

struct UnitError {
  enum class Kind {
    kNumber,   // not a number
    kMissing,  // a number without the unit it needs
    kWrong,    // a unit of another dimension
    kRange,    // not finite, or too large to hold
  };
  Kind kind = Kind::kNumber;
  std::string text;  // the defect: "unknown unit 'Mbps'"
  std::string hint;  // the right spelling: "\"100Mbit/s\" (bits) or \"100MB/s\" (bytes)"
};

struct Quantity {
  double value = 0;      // in s, bit/s, bytes, tokens, steps, 1, FLOP/s, parameters
  bool percent = false;  // the text had a %, value is the fraction
  bool unit = false;     // the text had a unit, not only a number (and a suffix)
};

[[nodiscard]] Expected<Quantity, UnitError> parse_quantity(std::string_view text,
                                                           Dimension dimension);

/// Allowed spellings of a dimension's values: `"100Mbit/s" or "100MB/s"`.
[[nodiscard]] std::string_view unit_examples(Dimension dimension);

/// Time as a Duration, rounded to the nanosecond. RETURNS: kRange beyond 100 years.
[[nodiscard]] Expected<Duration, UnitError> to_duration(double seconds);

/// Exact spellings that parse back to the same value: "80ms", "100Mbit/s", "64Ki", "5%".
[[nodiscard]] std::string duration_text(Duration duration);
[[nodiscard]] std::string rate_text(double bits_per_s);
[[nodiscard]] std::string flops_text(double flops);
[[nodiscard]] std::string parameters_text(double parameters);
[[nodiscard]] std::string percent_text(double fraction);
/// Shortest decimal that reads back to the same double.
[[nodiscard]] std::string real_text(double value);

/// For people, rounded, in powers of 1000: "54.6 MB" ("–" for no number), "412 Mbit/s", "2 h 05
/// min", "118k".
[[nodiscard]] std::string human_bytes(double bytes);
[[nodiscard]] std::string human_rate(double bits_per_s);
[[nodiscard]] std::string human_time(double seconds);
[[nodiscard]] std::string human_count(double count);
/// 4210 as "4,210".
[[nodiscard]] std::string with_commas(std::int64_t value);

}  // namespace isthmus
