// SPDX-License-Identifier: Apache-2.0
#include "transport/recording_transport.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>

#include "core/log.h"
#include "isthmus/errors.h"

namespace isthmus {
namespace {

/// A write to the disk; fewer records lie here for a second at most, while frames come and go.
constexpr std::size_t kWriteBytes = std::size_t{64} << 10;
constexpr Duration kLongestHeld = std::chrono::seconds(1);

}  // namespace

std::filesystem::path older_recording(const std::filesystem::path& file) {
  std::filesystem::path older = file;
  older += ".old";
  return older;
}

FrameRecorder::FrameRecorder(Storage& storage, const Clock& clock, Options options)
    : storage_(storage),
      clock_(clock),
      options_(std::move(options)),
      begin_(clock.now()),
      flushed_at_(begin_) {
  const FileKind there = storage_.kind(options_.file);
  if (there != FileKind::kAbsent && there != FileKind::kFile) {
    throw ConfigError(fmt::format("--record {}: is no file; name one", options_.file.string()));
  }
  if (there == FileKind::kFile) {
    const MappedFile mapped = storage_.map(options_.file);
    if (!mapped.bytes().empty() && !begins_as_recording(mapped.bytes())) {
      throw ConfigError(
          fmt::format("--record {}: there is a file that is no recording of frames; name another "
                      "one, or move it",
                      options_.file.string()));
    }
  }
  begin_file();
}

FrameRecorder::~FrameRecorder() {
  const std::scoped_lock lock(mutex_);
  flush();
}

void FrameRecorder::begin_file() {
  file_.reset();
  if (storage_.kind(options_.file) == FileKind::kFile) {
    storage_.rename(options_.file, older_recording(options_.file));
  }
  file_ = storage_.create(options_.file);
  const std::vector<std::byte> head = write_head(options_.head);
  file_->append(head);
  written_ = head.size();
}

void FrameRecorder::record(FrameEvent event, Rank peer, int stream,
                           std::span<const std::byte> frame) {
  FrameRecord record{.event = event, .stream = stream, .peer = peer};
  if (!describe_frame(frame, record)) return;
  const std::scoped_lock lock(mutex_);
  if (!file_) return;
  const TimePoint now = clock_.now();
  record.time_ns = (now - begin_).count();
  write_record(record, pending_);
  if (pending_.size() >= kWriteBytes || now - flushed_at_ >= kLongestHeld) {
    flush();
    flushed_at_ = now;
  }
}

void FrameRecorder::flush() {
  if (!file_ || pending_.empty()) return;
  try {
    if (written_ + pending_.size() > options_.limit / 2) begin_file();
    file_->append(pending_);
    written_ += pending_.size();
  } catch (const std::exception& error) {
    file_.reset();
    log_warning("no more frames are recorded: {}", error.what());
  }
  pending_.clear();
}

}  // namespace isthmus
