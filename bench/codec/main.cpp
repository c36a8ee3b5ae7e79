// SPDX-License-Identifier: Apache-2.0
// codec_bench [--values N] [--repetitions R] [CODEC...]: one JSON line a codec, on N(0, 1).
// Default: 2^24 values (64 MiB), 7 repetitions, all codecs. Run it on an idle machine.
#include <charconv>
#include <cstdio>
#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include "core/rng.h"
#include "core/system_runtime.h"
#include "isthmus/errors.h"
#include "quant/codec_timing.h"

namespace {

using isthmus::ExitCode;

struct Arguments {
  std::size_t values = std::size_t{1} << 24;
  int repetitions = 7;
  std::vector<std::string> codecs;
};

std::optional<int> positive(const char* text) {
  int value = 0;
  const char* const end = text + std::strlen(text);
  const auto [stopped, error] = std::from_chars(text, end, value);
  if (error != std::errc() || stopped != end || value < 1) return std::nullopt;
  return value;
}

std::optional<Arguments> parse(int argc, char** argv) {
  Arguments arguments;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (word == "--values" || word == "--repetitions") {
      const auto value = i + 1 < argc ? positive(argv[++i]) : std::nullopt;
      if (!value) return std::nullopt;
      if (word == "--values") {
        arguments.values = static_cast<std::size_t>(*value);
      } else {
        arguments.repetitions = *value;
      }
    } else if (word.starts_with("-")) {
      return std::nullopt;
    } else {
      arguments.codecs.push_back(word);
    }
  }
  if (arguments.codecs.empty()) {
    for (const isthmus::CodecInfo& info : isthmus::codecs()) arguments.codecs.push_back(info.name);
  }
  return arguments;
}

ExitCode run(const Arguments& arguments) {
  const isthmus::Rng rng(1, isthmus::Stream::kTestData);
  std::vector<float> x(arguments.values);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(rng.normal(i));
  std::vector<float> y(x.size());
  const isthmus::SystemRuntime runtime;
  for (const std::string& spelling : arguments.codecs) {
    const auto codec = isthmus::make_codec(spelling);
    const auto timing =
        isthmus::time_codec(*codec, x, y, {.repetitions = arguments.repetitions}, runtime.clock());
    if (!timing) {
      std::fprintf(stderr, "codec_bench: %s\n", timing.error().what.c_str());
      return ExitCode::kRunFailed;
    }
    std::printf("%s\n", isthmus::to_json(*timing).c_str());
  }
  return ExitCode::kOk;
}

}  // namespace

int main(int argc, char** argv) {
  const auto arguments = parse(argc, argv);
  if (!arguments) {
    std::fprintf(stderr, "usage: codec_bench [--values N] [--repetitions R] [CODEC...]\n");
    return static_cast<int>(ExitCode::kUsage);
  }
  try {
    return static_cast<int>(run(*arguments));
  } catch (const isthmus::Error& error) {
    std::fprintf(stderr, "codec_bench: %s\n", error.what());
    return static_cast<int>(error.exit_code());
  }
}
