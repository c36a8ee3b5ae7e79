// SPDX-License-Identifier: Apache-2.0
#include "app/commands/bench/command_bench_codec_device.h"

#include <fmt/format.h>

#include "app/common/text_table.h"
#include "isthmus/codec.h"
#include "isthmus/errors.h"
#include "kernels/cuda/device.h"
#include "quant/cuda/cuda_codec_timing.h"
#include "record/json_line.h"

namespace isthmus::app {
namespace {

std::string json_of(const cuda::DeviceCodecTiming& t) {
  return JsonLine()
      .add("bench", "codec")
      .add("place", "cuda")
      .add("device", t.device)
      .add("codec", t.codec)
      .add("n", t.values)
      .add("bytes", t.bytes)
      .add("bits_per_value", t.bits_per_value)
      .add("copy_gb_s", t.copy_gb_s)
      .add("encode_gb_s", t.encode_gb_s)
      .add("decode_gb_s", t.decode_gb_s)
      .add("decode_add_gb_s", t.decode_add_gb_s)
      .add("encode_of_copy", t.encode_of_copy)
      .add("decode_of_copy", t.decode_of_copy)
      .add("decode_add_of_copy", t.decode_add_of_copy)
      .add("encode_spread", t.encode_spread)
      .str();
}

std::vector<std::string> spellings(const BenchCodecArguments& arguments) {
  if (!arguments.codec.empty()) return {arguments.codec};
  std::vector<std::string> all;
  for (const CodecInfo& info : codecs()) {
    all.push_back(info.name);
  }
  return all;
}

}  // namespace

int command_bench_codec_device(const BenchCodecArguments& arguments,
                               const BenchCodecDeviceArguments& device, Session& session) {
  if (const std::string why = cuda::unavailable(); !why.empty()) {
    throw SystemError(fmt::format("bench codec --device cuda: {}", why));
  }
  TextTable table({"cuda", "bits", "encode GB/s", "decode GB/s", "decode+add GB/s",
                   "of a copy's bytes", "copy GB/s"});
  for (const std::string& spelling : spellings(arguments)) {
    const cuda::DeviceCodecTiming t =
        cuda::time_device_codec(spelling, {.values = static_cast<std::size_t>(device.values)});
    if (session.json) {
      session.out.write(json_of(t) + "\n");
      continue;
    }
    table.add(
        {t.codec, fmt::format("{:.4g}", t.bits_per_value), fmt::format("{:.1f}", t.encode_gb_s),
         fmt::format("{:.1f}", t.decode_gb_s), fmt::format("{:.1f}", t.decode_add_gb_s),
         fmt::format("{:.0f}% {:.0f}%", t.encode_of_copy * 100, t.decode_of_copy * 100) +
             (t.decode_add_of_copy > 0 ? fmt::format(" {:.0f}%", t.decode_add_of_copy * 100) : ""),
         fmt::format("{:.1f}", t.copy_gb_s)});
  }
  if (!session.json) session.out.write(table.text(session.out));
  return 0;
}

}  // namespace isthmus::app
