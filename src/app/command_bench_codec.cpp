// SPDX-License-Identifier: Apache-2.0
// `bench codec`: a file through one codec, or all codecs on a vector of normal values.
#include <fmt/format.h>

#include <bit>
#include <cstring>

#include "app/commands.h"
#include "app/json_line.h"
#include "app/text_table.h"
#include "core/rng.h"
#include "core/storage.h"
#include "core/system_runtime.h"
#include "isthmus/codec.h"
#include "quant/codec_timing.h"

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
                  const std::string& label) {
  const auto codec = make_codec(spelling);
  const SystemRuntime runtime;
  auto timing = time_codec(*codec, x, y, {}, runtime.clock());
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

}  // namespace

int command_bench_codec(const BenchCodecArguments& arguments, Session& session) {
  if (!arguments.in.empty()) {
    return bench_file(arguments, session);
  }
  constexpr std::size_t kValues = std::size_t{1} << 22;
  const Rng rng(0, Stream::kTestData);
  std::vector<float> x(kValues);
  for (std::size_t i = 0; i < x.size(); ++i) {
    x[i] = static_cast<float>(rng.normal(i));
  }
  std::vector<float> y(kValues);
  std::vector<CodecTiming> timings;
  for (const CodecInfo& info : codecs()) {
    if (arguments.codec.empty() || arguments.codec == info.name) {
      timings.push_back(timed(info.name, x, y, "normal values"));
    }
  }
  if (timings.empty()) {  // a spelling with options, such as int8:64
    timings.push_back(timed(arguments.codec, x, y, "normal values"));
  }
  print(timings, session);
  return 0;
}

}  // namespace isthmus::app
