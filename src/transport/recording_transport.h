// SPDX-License-Identifier: Apache-2.0
// Frames of one member, written down as they come and go (frame_record.h), for whoever wants to
// know afterwards why a round took long. Nothing waits for the disk but the write of some kilobytes
// now and then, and no bit of a run depends on it: what cannot be written ends the recording with a
// warning, never the run.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/storage.h"
#include "isthmus/runtime.h"
#include "transport/frame_record.h"
#include "transport/transport.h"

namespace isthmus {

/// What the file and the one before it may have together. When FILE has half of it, it becomes
/// FILE.old and a new one begins, so what is kept are the last 1.4 million records at least.
inline constexpr std::uint64_t kRecordingBytes = std::uint64_t{128} << 20;

/// FILE.old
[[nodiscard]] std::filesystem::path older_recording(const std::filesystem::path& file);

class FrameRecorder {
 public:
  struct Options {
    std::filesystem::path file;
    RecordingHead head;
    std::uint64_t limit = kRecordingBytes;
  };
  /// Borrows both. A recording that is there becomes FILE.old. THROWS: ConfigError for a file that
  /// is there and is no recording; SystemError when the disk refuses.
  FrameRecorder(Storage& storage, const Clock& clock, Options options);
  /// Writes what is left.
  ~FrameRecorder();
  FrameRecorder(const FrameRecorder&) = delete;
  FrameRecorder& operator=(const FrameRecorder&) = delete;

  /// Any task. What is no frame of this version is left out.
  void record(FrameEvent event, Rank peer, int stream, std::span<const std::byte> frame);

 private:
  // With mutex_ held:
  void begin_file();
  void flush();

  Storage& storage_;
  const Clock& clock_;
  const Options options_;
  const TimePoint begin_;
  std::mutex mutex_;
  std::unique_ptr<WritableFile> file_;  // none: the disk has refused
  std::vector<std::byte> pending_;
  std::uint64_t written_ = 0;  // to this file
  TimePoint flushed_at_;
};

/// In front of any transport: what is handed to it and taken from it.
class RecordingTransport final : public Transport {
 public:
  /// Borrows both.
  RecordingTransport(Transport& below, FrameRecorder& recorder)
      : below_(below), recorder_(recorder) {}

  [[nodiscard]] Rank self() const override { return below_.self(); }
  [[nodiscard]] int size() const override { return below_.size(); }
  void send(Rank to, FrameBytes frame) override {
    recorder_.record(FrameEvent::kQueued, to, -1, *frame);
    below_.send(to, std::move(frame));
  }
  [[nodiscard]] Expected<ReceivedFrame, TransportError> receive(TimePoint deadline) override {
    Expected<ReceivedFrame, TransportError> received = below_.receive(deadline);
    if (received) recorder_.record(FrameEvent::kTaken, received->from, -1, *received->bytes);
    return received;
  }
  void close() override { below_.close(); }

 private:
  Transport& below_;
  FrameRecorder& recorder_;
};

}  // namespace isthmus
