// SPDX-License-Identifier: Apache-2.0
#include "data/data_split.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>

#include "core/base/check.h"
#include "isthmus/errors.h"

namespace isthmus {

namespace {

std::string name_of(std::int64_t growth, const char* value) {
  return fmt::format("data/growth/{}/{}", growth, value);
}

}  // namespace

void save_history(const DataHistory& history, StateWriter& writer) {
  if (history.empty()) return;
  const auto count = static_cast<std::int64_t>(history.size());
  writer.integer(kGrowthsEntry, count);
  for (std::int64_t i = 0; i < count; ++i) {
    const DataGrowth& growth = history[static_cast<std::size_t>(i)];
    writer.integer(name_of(i, "after_step"), growth.after_step);
    writer.integer(name_of(i, "tokens"), growth.tokens);
  }
}

DataHistory load_history(StateReader& reader, std::int64_t tokens) {
  DataHistory history;
  if (!reader.contains(kGrowthsEntry)) return history;
  const std::int64_t count = reader.integer(kGrowthsEntry);
  DataGrowth last;
  for (std::int64_t i = 0; i < count; ++i) {
    const DataGrowth next{.after_step = reader.integer(name_of(i, "after_step")),
                          .tokens = reader.integer(name_of(i, "tokens"))};
    if (next.after_step < last.after_step || next.tokens < std::max<std::int64_t>(last.tokens, 1) ||
        next.tokens > tokens) {
      throw RunError(fmt::format(
          "{} = {} tokens by step {}: this is no history of data of {} tokens: the state is not of "
          "this run",
          name_of(i, "tokens"), next.tokens, next.after_step, tokens));
    }
    history.push_back(last = next);
  }
  return history;
}

DataSplit::DataSplit(const Dataset& data, DataHistory history, std::size_t source)
    : data_(data), history_(std::move(history)), source_(source) {
  ISTHMUS_CHECK(source < data.sources().size(), source, data.sources().size());
  ISTHMUS_CHECK(history_.empty() || data.sources().size() == 1, history_.size());
  const std::int64_t tokens = this->source().tokens;
  const std::int64_t first = history_.empty() ? tokens : history_.front().tokens;
  ISTHMUS_CHECK(first <= tokens, first, tokens);
  ISTHMUS_CHECK(history_.empty() || !this->source().packed, history_.size());
  validation_tokens_ = history_.empty() ? data.validation_tokens_of(this->source())
                                        : data.validation_tokens_of(first);
  validation_begin_ = first - validation_tokens_;
}

std::vector<DataEra> DataSplit::eras() const {
  std::vector<DataEra> eras;
  std::int64_t begin = 0;
  for (const DataGrowth& growth : history_) {
    eras.push_back({.first_step = begin, .train_tokens = growth.tokens - validation_tokens_});
    begin = growth.after_step;
  }
  eras.push_back({.first_step = begin, .train_tokens = train_tokens()});
  return eras;
}

void DataSplit::read_training(std::int64_t begin, std::span<std::int32_t> out,
                              const Vocabulary& vocab) const {
  const auto before = static_cast<std::size_t>(std::clamp<std::int64_t>(
      validation_begin_ - begin, 0, static_cast<std::int64_t>(out.size())));
  begin += source().begin;
  if (before > 0) data_.read_checked(begin, out.first(before), vocab);
  if (before == out.size()) return;
  data_.read_checked(begin + static_cast<std::int64_t>(before) + validation_tokens_,
                     out.subspan(before), vocab);
}

void DataSplit::read_training_marks(std::int64_t begin, std::span<std::uint8_t> out) const {
  data_.read_marks(source().begin + begin, out);
}

void DataSplit::read_validation_marks(std::int64_t begin, std::span<std::uint8_t> out) const {
  data_.read_marks(source().begin + validation_begin_ + begin, out);
}

void DataSplit::read_validation(std::int64_t begin, std::span<std::int32_t> out,
                                const Vocabulary& vocab) const {
  data_.read_checked(source().begin + validation_begin_ + begin, out, vocab);
}

}  // namespace isthmus
