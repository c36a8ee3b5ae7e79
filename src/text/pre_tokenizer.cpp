// SPDX-License-Identifier: Apache-2.0
#include "text/pre_tokenizer.h"

#include <fmt/format.h>

#include <algorithm>

#include "text/unicode.h"

namespace isthmus {
namespace {

constexpr std::string_view kPreTokenizers =
    "ByteLevel, Split, Digits, Metaspace, WhitespaceSplit, Sequence";
constexpr std::string_view kPatterns = "those of GPT-2, Llama 3, Qwen2 and Qwen3.5";

}  // namespace

MetaspaceFields metaspace_fields(const TokenizerPart& part) {
  MetaspaceFields fields{
      .mark = part.at("replacement").text(),
      .scheme = part.has("prepend_scheme") ? part.at("prepend_scheme").text() : "always",
      .split = part.boolean_or("split", true)};
  if (fields.mark.empty() || decoded_at(fields.mark, 0).bytes != fields.mark.size()) {
    part.at("replacement").bad("must be one character");
  }
  if (part.has("add_prefix_space") && !part.at("add_prefix_space").boolean()) {
    if (part.has("prepend_scheme") && fields.scheme != "never") {
      part.bad(fmt::format("add_prefix_space is false, and prepend_scheme \"{}\" says otherwise",
                           fields.scheme));
    }
    fields.scheme = "never";
  }
  if (fields.scheme != "first" && fields.scheme != "never" && fields.scheme != "always") {
    part.unsupported(fmt::format("prepend_scheme \"{}\"", fields.scheme), "first, never, always");
  }
  return fields;
}

PreTokenizer::PreTokenizer(const TokenizerPart& part) {
  if (!part.is_null()) add(part);
}

void PreTokenizer::add(const TokenizerPart& part) {
  const std::string type = part.type();
  if (byte_level_) {
    part.unsupported(fmt::format("{} behind ByteLevel", type), "ByteLevel as the last one");
  }
  if (type == "Sequence") {
    for (const TokenizerPart& each : part.at("pretokenizers").elements()) add(each);
  } else if (type == "ByteLevel") {
    if (part.boolean_or("add_prefix_space", true)) steps_.push_back({.kind = Kind::kPrefixSpace});
    if (part.boolean_or("use_regex", true)) steps_.push_back({.kind = Kind::kPattern});
    byte_level_ = true;
  } else if (type == "Split") {
    add_split(part);
  } else if (type == "Digits") {
    steps_.push_back({.kind = Kind::kDigits,
                      .behavior = part.at("individual_digits").boolean() ? Behavior::kIsolated
                                                                         : Behavior::kContiguous});
  } else if (type == "Metaspace") {
    add_metaspace(part);
  } else if (type == "WhitespaceSplit") {
    steps_.push_back({.kind = Kind::kWhitespace, .behavior = Behavior::kRemoved});
  } else {
    part.unsupported(fmt::format("the pre-tokenizer {}", type), kPreTokenizers);
  }
}

void PreTokenizer::add_split(const TokenizerPart& part) {
  const std::string behavior = part.at("behavior").text();
  const bool invert = part.at("invert").boolean();
  const TokenizerPart pattern = part.at("pattern");
  if (pattern.has("Regex")) {
    const std::string expression = pattern.at("Regex").text();
    const std::optional<WordPattern> known = word_pattern_of(expression);
    if (!known) {
      pattern.unsupported(fmt::format("the regular expression {}", expression), kPatterns);
    }
    // The patterns match all of a text, so text outside of matches is empty.
    if (!(behavior == "Isolated" && !invert) && !(behavior == "Removed" && invert)) {
      part.unsupported(fmt::format("behavior {} with invert = {}", behavior, invert),
                       "Isolated, and Removed with invert");
    }
    steps_.push_back({.kind = Kind::kPattern, .pattern = *known});
    return;
  }
  constexpr std::pair<std::string_view, Behavior> kBehaviors[] = {
      {"Removed", Behavior::kRemoved},
      {"Isolated", Behavior::kIsolated},
      {"MergedWithPrevious", Behavior::kMergedWithPrevious},
      {"MergedWithNext", Behavior::kMergedWithNext},
      {"Contiguous", Behavior::kContiguous}};
  const auto* const found =
      std::ranges::find(kBehaviors, behavior, [](const auto& each) { return each.first; });
  if (found == std::end(kBehaviors)) {
    part.unsupported(fmt::format("behavior {}", behavior),
                     "Removed, Isolated, MergedWithPrevious, MergedWithNext, Contiguous");
  }
  steps_.push_back({.kind = Kind::kText,
                    .text = text_pattern(part),
                    .behavior = found->second,
                    .invert = invert});
}

void PreTokenizer::add_metaspace(const TokenizerPart& part) {
  const MetaspaceFields fields = metaspace_fields(part);
  steps_.push_back({.kind = Kind::kMetaspace,
                    .text = fields.mark,
                    .behavior = Behavior::kMergedWithNext,
                    .prefix = fields.scheme == "first"   ? Prefix::kOfFirst
                              : fields.scheme == "never" ? Prefix::kOfNone
                                                         : Prefix::kOfAll,
                    .splits = fields.split});
}

std::optional<WordPattern> PreTokenizer::only_pattern() const {
  if (steps_.size() != 1 || steps_.front().kind != Kind::kPattern) return {};
  return steps_.front().pattern;
}

std::vector<PreTokenizer::Match> PreTokenizer::matches_of(const Step& step, std::string_view text) {
  std::vector<Match> matches;
  std::size_t behind = 0;  // the end of the last match
  const auto found = [&](std::size_t begin, std::size_t end) {
    if (behind < begin) matches.push_back({behind, begin, step.invert});
    matches.push_back({begin, end, !step.invert});
    behind = end;
  };
  if (step.kind == Kind::kDigits || step.kind == Kind::kWhitespace) {
    const std::uint32_t wanted = step.kind == Kind::kDigits ? kDigit : kSpace;
    const UnicodeTables& tables = UnicodeTables::get();
    for (std::size_t at = 0; at < text.size();) {
      const DecodedCharacter c = decoded_at(text, at);
      if ((tables.classes(c.value) & wanted) != 0) found(at, at + c.bytes);
      at += c.bytes;
    }
  } else {
    for (std::size_t at = text.find(step.text); at != std::string_view::npos;
         at = text.find(step.text, at + step.text.size())) {
      found(at, at + step.text.size());
    }
  }
  if (behind < text.size()) matches.push_back({behind, text.size(), step.invert});
  return matches;
}

/// As NormalizedString::split of `tokenizers` joins them; removed matches are left out.
std::vector<PreTokenizer::Match> PreTokenizer::pieces_of(const std::vector<Match>& matches,
                                                         Behavior behavior) {
  std::vector<Match> pieces;
  bool before = false;  // whether the last match was a delimiter
  switch (behavior) {
    case Behavior::kRemoved:
      std::ranges::copy_if(matches, std::back_inserter(pieces),
                           [](const Match& match) { return !match.delimiter; });
      break;
    case Behavior::kIsolated:
      pieces = matches;
      break;
    case Behavior::kContiguous:
      for (const Match& match : matches) {
        if (match.delimiter == before && !pieces.empty()) {
          pieces.back().end = match.end;
        } else {
          pieces.push_back(match);
        }
        before = match.delimiter;
      }
      break;
    case Behavior::kMergedWithPrevious:
      for (const Match& match : matches) {
        if (match.delimiter && !before && !pieces.empty()) {
          pieces.back().end = match.end;
        } else {
          pieces.push_back(match);
        }
        before = match.delimiter;
      }
      break;
    case Behavior::kMergedWithNext:
      for (auto match = matches.rbegin(); match != matches.rend(); ++match) {
        if (match->delimiter && !before && !pieces.empty()) {
          pieces.back().begin = match->begin;
        } else {
          pieces.push_back(*match);
        }
        before = match->delimiter;
      }
      std::ranges::reverse(pieces);
      break;
  }
  return pieces;
}

void PreTokenizer::take_step(const Step& step, TextPiece piece, bool continues,
                             std::vector<TextPiece>& out) {
  if (step.kind == Kind::kPrefixSpace) {
    if (!piece.text.starts_with(' ') && !continues) piece.text.insert(0, " ");
    out.push_back(std::move(piece));
    return;
  }
  if (step.kind == Kind::kPattern) {
    for (std::size_t at = 0; at < piece.text.size();) {
      const std::size_t length = word_length(piece.text, at, step.pattern);
      out.push_back({piece.text.substr(at, length), piece.at_start && at == 0});
      at += length;
    }
    return;
  }
  if (step.kind == Kind::kMetaspace) {
    piece.text = with_replaced(piece.text, " ", step.text);
    const bool wanted =
        step.prefix == Prefix::kOfAll || (step.prefix == Prefix::kOfFirst && piece.at_start);
    if (wanted && !continues && !piece.text.starts_with(step.text)) {
      piece.text.insert(0, step.text);
    }
    if (!step.splits) {
      out.push_back(std::move(piece));
      return;
    }
  }
  for (const Match& match : pieces_of(matches_of(step, piece.text), step.behavior)) {
    out.push_back({piece.text.substr(match.begin, match.end - match.begin),
                   piece.at_start && match.begin == 0});
  }
}

void PreTokenizer::split(const TextPiece& piece, bool continues, const WordSink& word) const {
  std::vector<TextPiece> pieces{piece};
  std::vector<TextPiece> next;
  for (const Step& step : steps_) {
    next.clear();
    for (std::size_t i = 0; i < pieces.size(); ++i) {
      if (!pieces[i].text.empty()) {
        take_step(step, std::move(pieces[i]), continues && i == 0, next);
      }
    }
    pieces.swap(next);
    // Behind such a step the first piece is a piece of the whole text too.
    continues = continues && !ends_at_newline(step);
  }
  for (const TextPiece& each : pieces) {
    if (!each.text.empty()) word(each.text);
  }
}

bool PreTokenizer::may_be_cut() const {
  return std::ranges::all_of(steps_, [](const Step& step) {
    return step.kind != Kind::kText || (step.text == " " && !step.invert);
  });
}

bool PreTokenizer::parts_at_newline() const {
  return std::ranges::any_of(steps_, [](const Step& step) { return ends_at_newline(step); });
}

}  // namespace isthmus
