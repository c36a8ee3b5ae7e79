// SPDX-License-Identifier: Apache-2.0
// Records one member's frames as they are sent and received (frame_record.h), to explain later why
// a round took long. Its own task writes, so nothing else waits for the disk, and no bit of a run
// depends on it. Records that a slow disk leaves waiting beyond some megabytes are dropped and
// counted; a failing disk ends the recording with a warning, never the run.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/base/storage.h"
#include "isthmus/runtime.h"
#include "transport/wire/frame_record.h"
#include "transport/wire/transport.h"

namespace isthmus {

/// The most bytes of the file and its predecessor together. When FILE has half of it, it becomes
/// FILE.old and a new one begins, so at least the last 1.4 million records are kept.
inline constexpr std::uint64_t kRecordingBytes = std::uint64_t{128} << 20;

/// Most bytes of records that wait for the disk; the current write has as many at most.
inline constexpr std::size_t kMostWaitingRecords = std::size_t{4} << 20;

/// FILE.old
[[nodiscard]] std::filesystem::path older_recording(const std::filesystem::path& file);

class FrameRecorder {
 public:
  struct Options {
    std::filesystem::path file;
    RecordingHead head;
    std::uint64_t limit = kRecordingBytes;
    std::size_t most_waiting = kMostWaitingRecords;
  };
  /// Borrows both. An existing recording becomes FILE.old. THROWS: ConfigError when an existing
  /// FILE or FILE.old is no recording; SystemError when the disk refuses.
  FrameRecorder(Storage& storage, Runtime& runtime, Options options);
  /// Writes the waiting records; blocks until they are written.
  ~FrameRecorder();
  FrameRecorder(const FrameRecorder&) = delete;
  FrameRecorder& operator=(const FrameRecorder&) = delete;

  /// Any task; never waits for the disk. `stream`: the link's connection, or -1 above links
  /// (FrameRecord::stream). Bytes that are no frame of this version are ignored.
  void record(FrameEvent event, WorkerId peer, int stream, std::span<const std::byte> frame);

 private:
  void begin_file();
  void write_what_waits();
  void write(std::span<const std::byte> records);

  Storage& storage_;
  Runtime& runtime_;
  const Options options_;
  const TimePoint begin_;
  // Of the task that writes, and before it begins:
  std::unique_ptr<WritableFile> file_;
  std::uint64_t written_ = 0;  // to this file

  std::unique_ptr<WaitQueue> queue_;
  // Under queue_'s lock:
  std::vector<std::byte> waiting_;
  std::uint32_t left_out_ = 0;  // since the last waiting record
  bool told_ = false;           // that some were dropped
  bool refused_ = false;        // by the disk: recording has ended
  bool ends_ = false;

  std::unique_ptr<Task> task_;
};

/// Records the frames sent and received through any transport.
class RecordingTransport final : public Transport {
 public:
  /// Borrows both.
  RecordingTransport(Transport& below, FrameRecorder& recorder)
      : below_(below), recorder_(recorder) {}

  [[nodiscard]] WorkerId self() const override { return below_.self(); }
  [[nodiscard]] int size() const override { return below_.size(); }
  void send(WorkerId to, FrameBytes frame) override {
    recorder_.record(FrameEvent::kQueued, to, -1, *frame);
    below_.send(to, std::move(frame));
  }
  [[nodiscard]] Expected<ReceivedFrame, TransportError> receive(TimePoint deadline) override {
    Expected<ReceivedFrame, TransportError> received = below_.receive(deadline);
    if (received) recorder_.record(FrameEvent::kTaken, received->from, -1, *received->bytes);
    return received;
  }
  [[nodiscard]] std::size_t most_unused(WorkerId peer) const override {
    return below_.most_unused(peer);
  }
  void close() override { below_.close(); }

 private:
  Transport& below_;
  FrameRecorder& recorder_;
};

}  // namespace isthmus
