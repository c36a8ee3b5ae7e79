// SPDX-License-Identifier: Apache-2.0
// `bench codec`: a file through one codec, or all codecs on normal values, in a cache and in
// memory.
#include <fmt/format.h>

#include <array>
#include <bit>
#include <cstring>

#include "app/common/commands.h"
#include "app/common/text_table.h"
#include "core/base/rng.h"
#include "core/base/storage.h"
#include "core/base/system_runtime.h"
#include "isthmus/codec.h"
#include "quant/codecs/codec_timing.h"
#include "record/json_line.h"

namespace isthmus::app {
namespace {

static_assert(std::endian::native == std::endian::little, "fp32 files are little-endian");

std::vector<float> read_floats(const Storage& storage, const std::filesystem::path& file) {
  const MappedFile mapped = storage.map(file);
  const std::span<const std::byte> bytes = mapped.bytes();
  if (bytes.empty() || bytes.size() % sizeof(float) != 0) {
    throw SystemError(fmt::format("{}: {} bytes are no fp32 file (4 bytes a value, at least one)",
                                  file.string(), bytes.size()));
  }
  std::vector<float> values(bytes.size() / sizeof(float));
  std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

/// The timing under the spelling that was asked for.
CodecTiming timed(const std::string& spelling, std::span<const float> x, std::span<float> y,
                  const std::string& label, const CodecTimingOptions& options = {}) {
  const auto codec = make_codec(spelling);
  const SystemRuntime runtime;
  auto timing = time_codec(*codec, x, y, options, runtime.clock());
  if (!timing) {
    throw SystemError(
        fmt::format("{}: codec {} refuses it: {}", label, spelling, timing.error().what));
  }
  timing->codec = spelling;
  return *timing;
}

std::string json_of(const CodecTiming& timing) {
  return JsonLine()
      .add("codec", timing.codec)
      .add("n", timing.values)
      .add("bytes", timing.bytes)
      .add("bits_per_value", timing.bits_per_value)
      .add("nmse", timing.nmse)
      .add("encode_gb_s", timing.encode_gb_s)
      .add("decode_gb_s", timing.decode_gb_s)
      .str();
}

void print(const std::vector<CodecTiming>& timings, Session& session) {
  if (session.json) {
    for (const CodecTiming& timing : timings) {
      session.out.write(json_of(timing) + "\n");
    }
    return;
  }
  TextTable table({"codec", "bits", "nmse", "encode GB/s", "decode GB/s", "of memory bound"});
  for (const CodecTiming& timing : timings) {
    table.add({timing.codec, fmt::format("{:.4g}", timing.bits_per_value),
               fmt::format("{:.3g}", timing.nmse), fmt::format("{:.2f}", timing.encode_gb_s),
               fmt::format("{:.2f}", timing.decode_gb_s),
               fmt::format("{:.0f}% {:.0f}%", timing.encode_of_bound * 100,
                           timing.decode_of_bound * 100)});
  }
  session.out.write(table.text(session.out));
}

int bench_file(const BenchCodecArguments& arguments, Session& session) {
  if (arguments.codec.empty()) {
    throw UsageError("bench codec: --in needs --codec NAME");
  }
  const auto codec = make_codec(arguments.codec);
  SystemStorage storage;
  const std::vector<float> x = read_floats(storage, arguments.in);
  std::vector<float> y(x.size());
  const CodecTiming timing = timed(arguments.codec, x, y, arguments.in.string());
  if (!arguments.out.empty()) {
    write_atomically(storage, arguments.out, std::as_bytes(std::span<const float>(y)));
  }
  if (!arguments.bytes.empty()) {
    write_atomically(storage, arguments.bytes, encode(*codec, x).bytes);
  }
  print({timing}, session);
  return 0;
}

/// The memory that holds the vector. A pass over a small vector is short, so several passes make a
/// piece.
struct Place {
  std::string_view name;
  std::size_t values;
  std::size_t sparse_values;  // sparse codecs are slower by far
  CodecTimingOptions options;
};
constexpr std::array kPlaces = {
    Place{"cache", std::size_t{1} << 17, std::size_t{1} << 17, {.repetitions = 7, .passes = 20}},
    Place{"dram", std::size_t{1} << 26, std::size_t{1} << 23, {.repetitions = 5, .passes = 1}},
};

/// Normal values; the first million over and over.
std::vector<float> normal_values(std::size_t n) {
  constexpr std::size_t kPeriod = std::size_t{1} << 20;
  const Rng rng(0, Stream::kTestData);
  std::vector<float> x(n);
  for (std::size_t i = 0; i < n; ++i) {
    x[i] = i < kPeriod ? static_cast<float>(rng.normal(i)) : x[i - kPeriod];
  }
  return x;
}

void bench_place(const Place& place, const std::vector<std::string>& spellings, Session& session) {
  const std::vector<float> x = normal_values(place.values);
  std::vector<float> y(x.size());
  TextTable table({std::string(place.name), "bits", "nmse", "encode GB/s", "decode GB/s",
                   "decode+add GB/s", "of the bound", "copy GB/s", "read GB/s"});
  for (const std::string& spelling : spellings) {
    const std::size_t n = make_codec(spelling)->sparse() ? place.sparse_values : place.values;
    const CodecTiming t = timed(spelling, std::span(x).first(n), std::span(y).first(n),
                                "normal values", place.options);
    if (session.json) {
      session.out.write(to_json(t, place.name) + "\n");
      continue;
    }
    table.add({spelling, fmt::format("{:.4g}", t.bits_per_value), fmt::format("{:.3g}", t.nmse),
               fmt::format("{:.2f}", t.encode_gb_s), fmt::format("{:.2f}", t.decode_gb_s),
               fmt::format("{:.2f}", t.decode_add_gb_s),
               fmt::format("{:.0f}% {:.0f}% {:.0f}%", t.encode_of_bound * 100,
                           t.decode_of_bound * 100, t.decode_add_of_bound * 100),
               fmt::format("{:.1f}", t.copy_gb_s), fmt::format("{:.1f}", t.read_gb_s)});
  }
  if (!session.json) {
    session.out.write(table.text(session.out) + "\n");
  }
}

}  // namespace

int command_bench_codec(const BenchCodecArguments& arguments, Session& session) {
  if (!arguments.in.empty()) {
    return bench_file(arguments, session);
  }
  std::vector<std::string> spellings;
  for (const CodecInfo& info : codecs()) {
    if (arguments.codec.empty()) {
      spellings.push_back(info.name);
    }
  }
  if (!arguments.codec.empty()) {
    spellings.push_back(make_codec(arguments.codec)->name());
  }
  for (const Place& place : kPlaces) {
    bench_place(place, spellings, session);
  }
  return 0;
}

}  // namespace isthmus::app
