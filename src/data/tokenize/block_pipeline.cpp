// SPDX-License-Identifier: Apache-2.0
#include "data/tokenize/block_pipeline.h"

#include <fmt/format.h>

#include "core/base/check.h"

namespace isthmus {
namespace {
constexpr std::size_t kBlocksOfTask = 2;
}

BlockPipeline::BlockPipeline(Runtime& runtime, const Tokenizer& tokenizer, Options options)
    : runtime_(runtime),
      tokenizer_(tokenizer),
      options_(std::move(options)),
      queue_(runtime.make_wait_queue()) {
  if (options_.jobs == 1) {
    own_ = std::make_unique<DocumentEncoder>(tokenizer_, options_.documents);
    return;
  }
  for (int job = 0; job < options_.jobs; ++job) {
    tasks_.push_back(runtime_.spawn(fmt::format("tokenize {}", job), [this] { run_task(); }));
  }
}

BlockPipeline::~BlockPipeline() {
  queue_->update([&] { stop_ = true; });
  tasks_.clear();  // joins
}

void BlockPipeline::encode(DocumentEncoder& encoder, Entry& entry) {
  if (entry.error) return;
  try {
    entry.finished.encoded = encoder.encode(entry.block, entry.lines, entry.label);
  } catch (...) {
    entry.error = std::current_exception();
  }
  entry.block.text = {};
}

void BlockPipeline::run_task() {
  DocumentEncoder encoder(tokenizer_, options_.documents);
  while (true) {
    Entry* entry = nullptr;
    queue_->wait(
        [&] {
          if (!stop_ && !waiting_.empty()) {
            entry = waiting_.front();
            waiting_.pop_front();
          }
          return stop_ || entry != nullptr;
        },
        TimePoint::max());
    if (entry == nullptr) return;
    encode(encoder, *entry);
    queue_->update([&] { entry->done = true; });
  }
}

/// An entry that cannot be read is reported when its turn comes.
std::unique_ptr<BlockPipeline::Entry> BlockPipeline::read_entry() {
  auto entry = std::make_unique<Entry>();
  entry->label = options_.files[file_].string();
  try {
    if (!reading_) reading_ = std::make_unique<DocumentBlocks>(options_.files[file_], tokenizer_);
    const bool more = reading_->next(entry->block);
    ISTHMUS_CHECK(more, entry->label);
    entry->lines = reading_->lines();
    entry->finished.bytes_read = reading_->stream().bytes_read();
    entry->finished.last = entry->block.last;
    if (!entry->block.last) return entry;
    entry->finished.sha256 = reading_->stream().sha256();
  } catch (...) {
    entry->error = std::current_exception();
  }
  reading_.reset();
  ++file_;
  return entry;
}

void BlockPipeline::read_ahead() {
  const std::size_t most = static_cast<std::size_t>(options_.jobs) * kBlocksOfTask;
  while (pending_.size() < (own_ ? 1 : most) && file_ < options_.files.size()) {
    pending_.push_back(read_entry());
    Entry* const entry = pending_.back().get();
    if (own_) {
      encode(*own_, *entry);
      entry->done = true;
    } else {
      queue_->update([&] { waiting_.push_back(entry); });
    }
  }
}

FinishedBlock BlockPipeline::next() {
  read_ahead();
  ISTHMUS_CHECK(!pending_.empty());
  Entry& front = *pending_.front();
  queue_->wait([&] { return front.done; }, TimePoint::max());
  const std::unique_ptr<Entry> entry = std::move(pending_.front());
  pending_.pop_front();
  if (entry->error) std::rethrow_exception(entry->error);
  return std::move(entry->finished);
}

}  // namespace isthmus
