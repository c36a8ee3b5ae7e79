// SPDX-License-Identifier: Apache-2.0
#include "transport/wire/recording_transport.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <utility>

#include "core/base/log.h"
#include "isthmus/errors.h"

namespace isthmus {
namespace {

/// A write to the disk, of whole records; fewer wait for a second at most.
constexpr std::size_t kWriteBytes = (std::size_t{64} << 10) / kFrameRecordBytes * kFrameRecordBytes;
constexpr Duration kLongestHeld = std::chrono::seconds(1);

/// THROWS: ConfigError if the existing file is no recording. `file`: as --record names it.
void check_replaceable(const Storage& storage, const std::filesystem::path& path,
                       const std::filesystem::path& file) {
  const FileKind there = storage.kind(path);
  if (there == FileKind::kAbsent) return;
  if (there != FileKind::kFile) {
    throw ConfigError(fmt::format("--record {}: {} is there and is no file; name another one",
                                  file.string(), path.string()));
  }
  const MappedFile mapped = storage.map(path);
  if (!mapped.bytes().empty() && !begins_as_recording(mapped.bytes())) {
    throw ConfigError(
        fmt::format("--record {}: it would replace {}, which is no recording of frames; name "
                    "another file, or move that one",
                    file.string(), path.string()));
  }
}

}  // namespace

std::filesystem::path older_recording(const std::filesystem::path& file) {
  std::filesystem::path older = file;
  older += ".old";
  return older;
}

FrameRecorder::FrameRecorder(Storage& storage, Runtime& runtime, Options options)
    : storage_(storage),
      runtime_(runtime),
      options_(std::move(options)),
      begin_(runtime.clock().now()),
      queue_(runtime.make_wait_queue()) {
  check_replaceable(storage_, options_.file, options_.file);
  check_replaceable(storage_, older_recording(options_.file), options_.file);
  begin_file();
  task_ = runtime_.spawn("recorder", [this] { write_what_waits(); });
}

FrameRecorder::~FrameRecorder() {
  queue_->update([&] { ends_ = true; });
  task_.reset();
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

void FrameRecorder::record(FrameEvent event, WorkerId peer, int stream,
                           std::span<const std::byte> frame) {
  FrameRecord record{.event = event, .stream = stream, .peer = peer};
  if (!describe_frame(frame, record)) return;
  bool enough = false, tell = false;
  // The writer is woken for a whole write only, as `update` would not.
  (void)queue_->wait(
      [&] {
        if (refused_) return true;
        if (waiting_.size() + kFrameRecordBytes > options_.most_waiting) {
          ++left_out_;
          tell = !std::exchange(told_, true);
          return true;
        }
        record.time_ns = (runtime_.clock().now() - begin_).count();
        write_record(record, waiting_);
        enough = waiting_.size() >= kWriteBytes;
        return true;
      },
      kNever);
  if (enough) queue_->update([] {});
  if (tell) {
    log_warning("{}: the disk is too slow for every frame; the file says how many are left out",
                options_.file.string());
  }
}

void FrameRecorder::write_what_waits() {
  std::vector<std::byte> records;
  bool ends = false;
  while (!ends) {
    (void)queue_->wait([&] { return ends_ || waiting_.size() >= kWriteBytes; },
                       runtime_.clock().now() + kLongestHeld);
    records.clear();
    queue_->update([&] {
      ends = ends_;
      std::swap(records, waiting_);
      if (left_out_ == 0) return;
      write_record({.time_ns = (runtime_.clock().now() - begin_).count(),
                    .event = FrameEvent::kLeftOut,
                    .peer = options_.head.self,
                    .part = std::exchange(left_out_, 0)},
                   records);
    });
    try {
      for (std::size_t at = 0; at < records.size(); at += kWriteBytes) {
        write(std::span(records).subspan(at, std::min(kWriteBytes, records.size() - at)));
      }
    } catch (const std::exception& error) {
      queue_->update([&] { refused_ = true; });
      log_warning("no more frames are recorded: {}", error.what());
      return;
    }
  }
}

void FrameRecorder::write(std::span<const std::byte> records) {
  if (written_ + records.size() > options_.limit / 2) begin_file();
  file_->append(records);
  written_ += records.size();
}

}  // namespace isthmus
