// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <vector>

#include "core/base/check.h"
#include "core/base/rng.h"
#include "quant/cuda/cuda_codec.h"
#include "quant/cuda/cuda_codec_timing.h"

namespace isthmus::cuda {
namespace {

class Seconds {
 public:
  void add(double milliseconds) { samples_.push_back(std::max(milliseconds * 1e-3, 1e-9)); }
  [[nodiscard]] double median() {
    std::ranges::sort(samples_);
    return samples_[samples_.size() / 2];
  }
  [[nodiscard]] double spread() { return (samples_.back() - samples_.front()) / median(); }

 private:
  std::vector<double> samples_;
};

/// Normal values in device memory; the first million over and over.
DeviceArray<float> normal_values(Stream& stream, std::size_t n) {
  constexpr std::size_t kPeriod = std::size_t{1} << 20;
  const Rng rng(0, isthmus::Stream::kTestData);
  std::vector<float> x(std::min(n, kPeriod));
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(rng.normal(i));
  DeviceArray<float> values(n);
  for (std::size_t begin = 0; begin < n; begin += x.size()) {
    copy(stream, values.data() + begin, x.data(), std::min(x.size(), n - begin));
  }
  stream.synchronize();
  return values;
}

}  // namespace

DeviceCodecTiming time_device_codec(std::string_view spelling,
                                    const DeviceCodecTimingOptions& options) {
  const std::size_t n = options.values;
  ISTHMUS_CHECK(n >= 1, n);
  ISTHMUS_CHECK(options.repetitions >= 1, options.repetitions);
  const std::unique_ptr<const DeviceCodec> codec = make_device_codec(spelling);
  Stream stream;
  const DeviceArray<float> x = normal_values(stream, n);
  const DeviceArray<float> y(n);
  const DeviceArray<std::byte> bytes(encoded_bytes(codec->codec(), n));
  FirstBadTile bad;
  Event begin(Event::Timing::kOn), end(Event::Timing::kOn);
  const auto timed = [&](Seconds& seconds, const auto& queue) {
    begin.record(stream);
    queue();
    end.record(stream);
    end.synchronize();
    seconds.add(end.milliseconds_since(begin));
  };
  Seconds copied, encoded, decoded, added;
  // Every repetition runs all four in turn; the first one, which warms the device up, is left out.
  for (int i = 0; i <= options.repetitions; ++i) {
    Seconds first;
    timed(i == 0 ? first : copied, [&] { copy(stream, y.data(), x.data(), n); });
    timed(i == 0 ? first : encoded, [&] { codec->encode(stream, x.data(), n, bytes.data()); });
    timed(i == 0 ? first : added,
          [&] { codec->decode_add(stream, bytes.data(), n, y.data(), bad); });
    timed(i == 0 ? first : decoded, [&] { codec->decode(stream, bytes.data(), n, y.data(), bad); });
  }
  const auto checked = codec->check_decoded(stream, bytes.data(), n, bad);
  ISTHMUS_CHECK(checked.has_value(), codec->codec().name());  // normal values are finite

  DeviceCodecTiming timing{.codec = codec->codec().name(),
                           .device = devices().front().name,
                           .values = n,
                           .bytes = bytes.size()};
  const auto values_bytes = static_cast<double>(x.bytes());
  const auto code_bytes = static_cast<double>(bytes.size());
  const auto gb_s = [&](Seconds& seconds) { return values_bytes / seconds.median() / 1e9; };
  timing.bits_per_value = 8 * code_bytes / static_cast<double>(n);
  timing.copy_gb_s = gb_s(copied);
  timing.encode_gb_s = gb_s(encoded);
  timing.decode_gb_s = gb_s(decoded);
  timing.decode_add_gb_s = gb_s(added);
  timing.encode_spread = encoded.spread();
  const double copy_rate = 2 * values_bytes / copied.median();
  const double once = values_bytes + code_bytes;
  timing.encode_of_copy = once / encoded.median() / copy_rate;
  timing.decode_of_copy = once / decoded.median() / copy_rate;
  timing.decode_add_of_copy =
      codec->codec().sparse() ? 0 : (once + values_bytes) / added.median() / copy_rate;
  return timing;
}

}  // namespace isthmus::cuda
