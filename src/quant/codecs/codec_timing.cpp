// SPDX-License-Identifier: Apache-2.0
#include "quant/codecs/codec_timing.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "core/base/check.h"
#include "quant/cpu/codec_kernels.h"

namespace isthmus {
namespace {

class Samples {
 public:
  void add(Duration time) { seconds_.push_back(in_seconds(time)); }
  [[nodiscard]] double median() {
    std::sort(seconds_.begin(), seconds_.end());
    return std::max(seconds_[seconds_.size() / 2], 1e-9);  // a clock may be too coarse
  }
  [[nodiscard]] double spread() { return (seconds_.back() - seconds_.front()) / median(); }

 private:
  std::vector<double> seconds_;
};

void encode_into(const Codec& codec, std::span<const float> x, std::span<std::byte> out) {
  for (std::size_t begin = 0, at = 0; begin < x.size(); begin += kTileValues) {
    const std::size_t n = std::min(kTileValues, x.size() - begin);
    const std::size_t size = codec.encoded_bytes(n);
    codec.encode(x.subspan(begin, n), out.subspan(at, size));
    at += size;
  }
}

double nmse(std::span<const float> x, std::span<const float> y) {
  double error = 0;
  double power = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double value = x[i];
    const double difference = value - static_cast<double>(y[i]);
    error += difference * difference;
    power += value * value;
  }
  return power > 0 ? error / power : 0;
}

struct Times {
  Samples copy, read, encode, decode, decode_add;
};

// Every repetition runs all five in turn, so that a neighbour on the machine slows all alike.
Expected<Times, DecodeError> measure(const Codec& codec, std::span<const float> x,
                                     std::span<float> y, const CodecTimingOptions& options,
                                     const Clock& clock) {
  Times times;
  std::vector<std::byte> bytes(encoded_bytes(codec, x.size()));
  volatile std::uint32_t kept = 0;
  const auto timed = [&](Samples& samples, const auto& work) {
    const TimePoint begin = clock.now();
    for (int pass = 0; pass < options.passes; ++pass) work();
    samples.add((clock.now() - begin) / options.passes);
  };
  Expected<void, DecodeError> decoded;
  for (int i = 0; i < options.repetitions; ++i) {
    timed(times.copy, [&] { std::memcpy(y.data(), x.data(), x.size_bytes()); });
    timed(times.read, [&] { kept = codec_kernels().largest_magnitude_bits(x.data(), x.size()); });
    timed(times.encode, [&] { encode_into(codec, x, bytes); });
    timed(times.decode_add, [&] { decoded = decode_add(codec, bytes, y); });
    if (decoded) timed(times.decode, [&] { decoded = decode(codec, bytes, y); });
    if (!decoded) return Unexpected<DecodeError>(decoded.error());
  }
  return times;
}

}  // namespace

Expected<CodecTiming, DecodeError> time_codec(const Codec& codec, std::span<const float> x,
                                              std::span<float> y, const CodecTimingOptions& options,
                                              const Clock& clock) {
  ISTHMUS_CHECK(!x.empty() && x.size() == y.size(), x.size(), y.size());
  ISTHMUS_CHECK(options.repetitions >= 1, options.repetitions);
  ISTHMUS_CHECK(options.passes >= 1, options.passes);
  auto measured = measure(codec, x, y, options, clock);
  if (!measured) return Unexpected<DecodeError>(measured.error());
  Times& times = *measured;

  CodecTiming result{.codec = codec.name(), .isa = codec_kernels().isa, .values = x.size()};
  const auto values_bytes = static_cast<double>(x.size_bytes());
  result.bytes = encoded_bytes(codec, x.size());
  const auto code_bytes = static_cast<double>(result.bytes);
  result.bits_per_value = 8 * code_bytes / static_cast<double>(x.size());
  result.nmse = nmse(x, y);

  const auto gb_s = [values_bytes](double seconds) { return values_bytes / seconds / 1e9; };
  result.copy_gb_s = gb_s(times.copy.median());
  result.read_gb_s = gb_s(times.read.median());
  result.encode_gb_s = gb_s(times.encode.median());
  result.decode_gb_s = gb_s(times.decode.median());
  result.decode_add_gb_s = gb_s(times.decode_add.median());
  result.encode_spread = times.encode.spread();
  result.decode_spread = times.decode.spread();

  const double read = times.read.median() / values_bytes;  // seconds a byte
  const double write = std::max(times.copy.median() / values_bytes - read, 0.0);
  result.encode_of_bound = (values_bytes * read + code_bytes * write) / times.encode.median();
  result.decode_of_bound = (code_bytes * read + values_bytes * write) / times.decode.median();
  result.decode_add_of_bound =
      ((code_bytes + values_bytes) * read + values_bytes * write) / times.decode_add.median();
  return result;
}

std::string to_json(const CodecTiming& t, std::string_view place) {
  return fmt::format(
      R"({{"bench":"codec","place":"{}","codec":"{}","isa":"{}","n":{},"bytes":{},"bits_per_value":{:.6g},)"
      R"("nmse":{:.6g},"encode_gb_s":{:.4g},"decode_gb_s":{:.4g},"decode_add_gb_s":{:.4g},)"
      R"("copy_gb_s":{:.4g},"read_gb_s":{:.4g},"encode_of_bound":{:.3g},"decode_of_bound":{:.3g},)"
      R"("decode_add_of_bound":{:.3g},"encode_spread":{:.3g},"decode_spread":{:.3g}}})",
      place, t.codec, t.isa, t.values, t.bytes, t.bits_per_value, t.nmse, t.encode_gb_s,
      t.decode_gb_s, t.decode_add_gb_s, t.copy_gb_s, t.read_gb_s, t.encode_of_bound,
      t.decode_of_bound, t.decode_add_of_bound, t.encode_spread, t.decode_spread);
}

}  // namespace isthmus
