// SPDX-License-Identifier: Apache-2.0
// Spellings to codecs. A new codec is a new file and one line of kTable.
#include <fmt/format.h>

#include <array>

#include "core/base/suggest.h"
#include "isthmus/codec.h"
#include "quant/codecs/block_codec.h"
#include "quant/codecs/codec_spelling.h"
#include "quant/codecs/float_codecs.h"
#include "quant/codecs/sparse_codec.h"

namespace isthmus {
namespace {

using CodecPointer = std::unique_ptr<const Codec>;

constexpr OptionRule kFeedback{"ef", ""};
constexpr OptionRule kRounding{"rounding", "nearest|stochastic"};
constexpr OptionRule kAnyScale{"scale", "fp32|fp16|e8m0"};
constexpr OptionRule kFloatScale{"scale", "fp32|fp16"};
constexpr OptionRule kNorm{"norm", "auto|l1|l2"};
constexpr OptionRule kMidpoint{"midpoint", "arithmetic|log"};

constexpr std::array kOnlyFeedback = {kFeedback};
constexpr std::array kUniform = {kAnyScale, kRounding, kFeedback};
constexpr std::array kTabled = {kFloatScale, kRounding, kFeedback};
constexpr std::array kE3M0 = {kFloatScale, kMidpoint, kRounding, kFeedback};
constexpr std::array kFixed = {kRounding, kFeedback};
constexpr std::array kLloydMax = {kFloatScale, kFeedback};
constexpr std::array kOneBit = {kFloatScale, kNorm, kFeedback};

constexpr OptionRule kValue{"value", "fp32|int8|sign|2bit"};
constexpr OptionRule kIndex{"index", "packed12|rice"};
constexpr std::array kTop = {kValue, kIndex, kFeedback};

constexpr NumberRule kept(std::size_t fallback) {
  return {.fallback = fallback,
          .least = 1,
          .most = kTileValues,
          .power_of_two = false,
          .meaning = "values kept of 4096"};
}
constexpr NumberRule block(std::size_t fallback, std::size_t least, std::size_t most) {
  return {.fallback = fallback,
          .least = least,
          .most = most,
          .power_of_two = true,
          .meaning = "values that share a scale"};
}

bool given(std::span<const OptionRule> rules, std::string_view key) {
  for (const OptionRule& rule : rules) {
    if (rule.key == key) return true;
  }
  return false;
}

struct Row;
using Maker = CodecPointer (*)(const Row& row, const ParsedSpelling& spelling);

struct Row {
  std::string_view name;
  std::string_view summary;
  NumberRule number;
  std::span<const OptionRule> options;
  Maker make;
};

template <CodecPointer (*make)(const std::string& name, bool error_feedback)>
CodecPointer make_float(const Row& row, const ParsedSpelling& spelling) {
  return make(spelling.name(), given(row.options, "ef") && spelling.has_flag("ef"));
}

// The values that a block codec takes from its spelling, whatever its grid.
BlockCodecSpec block_spec(const Row& row, const ParsedSpelling& spelling, Grid grid) {
  BlockCodecSpec spec{.name = spelling.name(), .grid = grid, .block = spelling.number()};
  spec.error_feedback = spelling.has_flag("ef");
  spec.stochastic = given(row.options, "rounding") && spelling.is("rounding", "stochastic");
  if (given(row.options, "scale")) {
    if (spelling.is("scale", "fp16")) spec.form = ScaleForm::kFp16;
    if (spelling.is("scale", "e8m0")) {
      spec.form = ScaleForm::kE8M0;
      spec.statistic = Statistic::kPowerOfTwo;
    }
  }
  return spec;
}

template <Grid grid>
CodecPointer make_scaled(const Row& row, const ParsedSpelling& spelling) {
  return make_block_codec(block_spec(row, spelling, grid));
}
CodecPointer make_e3m0(const Row& row, const ParsedSpelling& spelling) {
  const bool log = spelling.is("midpoint", "log");
  return make_block_codec(block_spec(row, spelling, log ? Grid::kE3M0Log : Grid::kE3M0));
}
CodecPointer make_minmax(const Row& row, const ParsedSpelling& spelling) {
  BlockCodecSpec spec = block_spec(row, spelling, Grid::kUint8);
  spec.form = ScaleForm::kRange;
  spec.statistic = Statistic::kRange;
  return make_block_codec(std::move(spec));
}
template <std::size_t block, ScaleForm form, Statistic statistic>
CodecPointer make_fp4(const Row& row, const ParsedSpelling& spelling) {
  BlockCodecSpec spec = block_spec(row, spelling, Grid::kE2M1);
  spec.block = block;
  spec.form = form;
  spec.statistic = statistic;
  return make_block_codec(std::move(spec));
}
template <Grid grid>
CodecPointer make_lloyd_max(const Row& row, const ParsedSpelling& spelling) {
  BlockCodecSpec spec = block_spec(row, spelling, grid);
  spec.statistic = Statistic::kRms;
  return make_block_codec(std::move(spec));
}
// With random rounding it is TernGrad (arXiv:1705.07878): the largest value is the scale.
CodecPointer make_ternary(const Row& row, const ParsedSpelling& spelling) {
  BlockCodecSpec spec = block_spec(row, spelling, Grid::kTernary);
  spec.statistic = spec.stochastic ? Statistic::kLargest : Statistic::kTernary;
  return make_block_codec(std::move(spec));
}
// One shot, the mean errs least; under error feedback the root mean square drains the residual
// faster.
CodecPointer make_one_bit(const Row& row, const ParsedSpelling& spelling) {
  BlockCodecSpec spec = block_spec(row, spelling, Grid::kSign);
  const bool l2 = spelling.is("norm", "l2") || (spelling.is("norm", "auto") && spec.error_feedback);
  spec.statistic = l2 ? Statistic::kRms : Statistic::kMean;
  return make_block_codec(std::move(spec));
}

template <bool dct>
CodecPointer make_topk(const Row&, const ParsedSpelling& spelling) {
  SparseCodecSpec spec{.name = spelling.name(), .k = spelling.number()};
  if (spelling.is("value", "int8")) spec.values = SparseValues::kInt8;
  if (spelling.is("value", "sign")) spec.values = SparseValues::kSign;
  if (spelling.is("value", "2bit")) spec.values = SparseValues::k2Bit;
  if (spelling.is("index", "rice")) spec.indices = IndexCoding::kRice;
  spec.dct = dct;
  spec.error_feedback = spelling.has_flag("ef");
  return make_topk_codec(std::move(spec));
}
CodecPointer make_randk(const Row&, const ParsedSpelling& spelling) {
  SparseCodecSpec spec{.name = spelling.name(), .k = spelling.number()};
  spec.error_feedback = spelling.has_flag("ef");
  return make_randk_codec(std::move(spec));
}

constexpr std::array kTable = {
    Row{"fp32", "IEEE single, bit for bit", {}, {}, make_float<make_fp32_codec>},
    Row{"bf16",
        "upper half of fp32, rounded to nearest even",
        {},
        kOnlyFeedback,
        make_float<make_bf16_codec>},
    Row{"fp16",
        "IEEE half, rounded to nearest even",
        {},
        kOnlyFeedback,
        make_float<make_fp16_codec>},
    Row{"int8", "blocks of signed 8-bit steps under one scale, largest/127", block(256, 1, 4096),
        kUniform, make_scaled<Grid::kInt8>},
    Row{"int4", "blocks of signed 4-bit steps under one scale, largest/7", block(64, 16, 4096),
        kUniform, make_scaled<Grid::kInt4>},
    Row{"uint8-minmax", "blocks of 255 even steps from the least value to the largest",
        block(4096, 16, 4096), kFixed, make_minmax},
    Row{"nf4", "16 quantiles of the normal distribution under the block's largest value",
        block(64, 16, 4096), kTabled, make_scaled<Grid::kNf4>},
    Row{"fp4-e2m1", "4-bit floats 0 .5 1 1.5 2 3 4 6 under one scale, largest/6",
        block(64, 16, 256), kUniform, make_scaled<Grid::kE2M1>},
    Row{"mxfp4",
        "OCP microscaling: E2M1 in blocks of 32 under a power of two",
        {},
        kFixed,
        make_fp4<32, ScaleForm::kE8M0, Statistic::kPowerOfTwo>},
    Row{"nvfp4",
        "E2M1 in blocks of 16 under an E4M3 scale, one fp32 scale a tile",
        {},
        kFixed,
        make_fp4<16, ScaleForm::kE4M3, Statistic::kLargest>},
    Row{"fp4-e3m0", "4-bit powers of two, 1/4 to 16, and zero, under one scale",
        block(64, 16, 4096), kE3M0, make_e3m0},
    Row{"fp8-e4m3", "8-bit floats with 3 mantissa bits under one scale, largest/448",
        block(128, 16, 4096), kUniform, make_scaled<Grid::kE4M3>},
    Row{"fp8-e5m2", "8-bit floats with 2 mantissa bits under one scale, largest/57344",
        block(128, 16, 4096), kUniform, make_scaled<Grid::kE5M2>},
    Row{"lm3", "3-bit Lloyd-Max points of the normal distribution under the root mean square",
        block(256, 16, 4096), kLloydMax, make_lloyd_max<Grid::kLm3>},
    Row{"lm2", "2-bit Lloyd-Max points of the normal distribution under the root mean square",
        block(256, 16, 4096), kLloydMax, make_lloyd_max<Grid::kLm2>},
    Row{"ternary", "-1, 0 or 1 times the mean of what exceeds .612 rms", block(256, 16, 4096),
        kTabled, make_ternary},
    Row{"1bit", "signs times the mean (norm=l1) or root mean square (l2) of the block",
        block(1024, 16, 4096), kOneBit, make_one_bit},
    Row{"topk", "the K largest of 4096 values and their indices", kept(128), kTop,
        make_topk<false>},
    Row{"randk", "K of 4096 values at places drawn from the round's key, alike on all workers",
        kept(128), kOnlyFeedback, make_randk},
    Row{"dct-topk", "the K largest coefficients of a 64 x 64 cosine transform", kept(32), kTop,
        make_topk<true>},
};

struct Alias {
  std::string_view name;
  std::string_view spelling;
};
constexpr std::array kAliases = {Alias{"fp4", "fp4-e2m1:64"}};

std::string list_of_codecs() {
  std::string list;
  for (const Row& row : kTable) {
    list += fmt::format("{}{}", list.empty() ? "" : " ", row.name);
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

CodecPointer make_codec(std::string_view spelling) {
  for (const Alias& alias : kAliases) {
    if (spelling == alias.name) return make_codec(alias.spelling);
  }
  const std::string_view name = spelling.substr(0, spelling.find(':'));
  for (const Row& row : kTable) {
    if (row.name == name) {
      return row.make(row, parse_spelling(spelling, row.number, row.options));
    }
  }
  refuse_spelling(spelling, fmt::format("there is no such codec{}; there are: {}",
                                        suggestion_for(name), list_of_codecs()));
}

std::vector<CodecInfo> codecs() {
  std::vector<CodecInfo> infos;
  infos.reserve(kTable.size());
  for (const Row& row : kTable) {
    const double bytes = static_cast<double>(make_codec(row.name)->encoded_bytes(kTileValues));
    infos.push_back(CodecInfo{.name = std::string(row.name),
                              .summary = std::string(row.summary),
                              .bits_per_value = 8 * bytes / kTileValues});
  }
  return infos;
}

}  // namespace isthmus
