// SPDX-License-Identifier: Apache-2.0
#include "app/inference/growing_text.h"

#include <algorithm>

namespace isthmus::app {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";
constexpr std::size_t kContext = 8;       // ids before the text; more than a character has bytes
constexpr std::size_t kForgotten = 1024;  // ids that are dropped at once

}  // namespace

GrowingText::GrowingText(const Tokenizer& tokenizer, std::span<const std::uint32_t> before,
                         bool skip_special)
    : tokenizer_(tokenizer), skip_special_(skip_special) {
  const auto kept = before.last(std::min(kContext, before.size()));
  ids_.assign(kept.begin(), kept.end());
  given_ = ids_.size();
}

std::string GrowingText::text(std::size_t begin, std::size_t end) const {
  return tokenizer_.decode(std::span(ids_).subspan(begin, end - begin), skip_special_);
}

std::string GrowingText::add(std::uint32_t id) {
  ids_.push_back(id);
  const std::string before = text(context_, given_);
  const std::string now = text(context_, ids_.size());
  if (now.size() <= before.size() || now.ends_with(kReplacement)) return {};
  context_ = given_;
  given_ = ids_.size();
  if (context_ >= kForgotten) {
    ids_.erase(ids_.begin(), ids_.begin() + static_cast<std::ptrdiff_t>(context_));
    given_ -= context_;
    context_ = 0;
  }
  return now.substr(before.size());
}

std::string GrowingText::rest() {
  const std::string before = text(context_, given_);
  const std::string now = text(context_, ids_.size());
  given_ = ids_.size();
  return now.size() > before.size() ? now.substr(before.size()) : std::string();
}

}  // namespace isthmus::app
