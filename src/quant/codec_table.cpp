// SPDX-License-Identifier: Apache-2.0
// Spellings to codecs. A new codec is a file of its own and one line of kTable.
#include <fmt/format.h>

#include <array>
#include <bit>
#include <charconv>
#include <optional>

#include "core/suggest.h"
#include "isthmus/codec.h"
#include "isthmus/errors.h"
#include "quant/float_codecs.h"
#include "quant/int8_codec.h"

namespace isthmus {
namespace {

// Makes a codec from the text after the colon, absent when there is no colon.
using Option = std::optional<std::string_view>;
using Maker = std::unique_ptr<const Codec> (*)(std::string_view spelling, Option option);

[[noreturn]] void refuse(std::string_view spelling, const std::string& why) {
  throw ConfigError(fmt::format("codec = \"{}\": {}", spelling, why));
}

template <std::unique_ptr<const Codec> (*make)()>
std::unique_ptr<const Codec> make_plain(std::string_view spelling, Option option) {
  if (option) {
    refuse(spelling,
           fmt::format("{} takes no option; write \"{}\"", spelling.substr(0, spelling.find(':')),
                       spelling.substr(0, spelling.find(':'))));
  }
  return make();
}

std::unique_ptr<const Codec> make_int8(std::string_view spelling, Option option) {
  std::size_t block = kInt8DefaultBlock;
  if (option) {
    const char* const end = option->data() + option->size();
    const auto [stopped, error] = std::from_chars(option->data(), end, block);
    const bool number = error == std::errc() && stopped == end;
    if (!number || !std::has_single_bit(block) || block > kTileValues) {
      refuse(spelling, fmt::format("the block after \"int8:\" must be a power of two from 1 to {} "
                                   "(values that share a scale); the default is {}",
                                   kTileValues, kInt8DefaultBlock));
    }
  }
  return make_int8_codec(block);
}

struct Row {
  std::string_view name;
  std::string_view options;  // as shown in a list
  std::string_view summary;
  double bits_per_value;
  Maker make;
};

constexpr std::array kTable = {
    Row{"fp32", "", "IEEE single, bit for bit", 32, make_plain<make_fp32_codec>},
    Row{"bf16", "", "upper half of fp32, rounded to nearest even", 16, make_plain<make_bf16_codec>},
    Row{"fp16", "", "IEEE half, rounded to nearest even", 16, make_plain<make_fp16_codec>},
    Row{"int8", ":BLOCK", "blocks of signed 8-bit steps under one fp32 scale, largest/127",
        8 + 32.0 / kInt8DefaultBlock, make_int8},
};

std::string list_of_codecs() {
  std::string list;
  for (const Row& row : kTable) {
    list += fmt::format("{}{}", list.empty() ? "" : " ", row.name);
    if (!row.options.empty()) list += fmt::format(" {}{}", row.name, row.options);
  }
  return list;
}

std::string suggestion_for(std::string_view name) {
  std::vector<std::string> names;
  names.reserve(kTable.size());
  for (const Row& row : kTable) names.emplace_back(row.name);
  const auto nearest = closest(name, names);
  return nearest ? fmt::format(" (did you mean \"{}\"?)", *nearest) : "";
}

}  // namespace

std::unique_ptr<const Codec> make_codec(std::string_view spelling) {
  const std::size_t colon = spelling.find(':');
  const std::string_view name = spelling.substr(0, colon);
  const Option option =
      colon == std::string_view::npos ? Option() : Option(spelling.substr(colon + 1));
  for (const Row& row : kTable) {
    if (row.name == name) return row.make(spelling, option);
  }
  refuse(spelling, fmt::format("there is no such codec{}; there are: {}", suggestion_for(name),
                               list_of_codecs()));
}

std::vector<CodecInfo> codecs() {
  std::vector<CodecInfo> infos;
  infos.reserve(kTable.size());
  for (const Row& row : kTable) {
    infos.push_back(CodecInfo{.name = std::string(row.name),
                              .summary = std::string(row.summary),
                              .bits_per_value = row.bits_per_value});
  }
  return infos;
}

}  // namespace isthmus
