// SPDX-License-Identifier: Apache-2.0
// Frames written down: what a recording holds, how long it gets, what is left of a damaged one.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "core/base/system_runtime.h"
#include "core/temporary_directory.h"
#include "isthmus/errors.h"
#include "link_net.h"
#include "storage_faults.h"
#include "transport/exchange/peer_exchange.h"
#include "transport/naive_mean.h"
#include "transport/wire/in_process_transport.h"
#include "transport/wire/recording_transport.h"

namespace isthmus::this_file {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;

/// A disk whose writes, but for the heads of files, wait for `open`.
class SlowDisk final : public Storage {
 public:
  void open() {
    queue_->update([&] { open_ = true; });
  }
  [[nodiscard]] FileKind kind(const Path& path) const override { return disk_.kind(path); }
  [[nodiscard]] MappedFile map(const Path& path) const override { return disk_.map(path); }
  [[nodiscard]] std::vector<std::byte> read(const Path& path) const override {
    return disk_.read(path);
  }
  [[nodiscard]] std::vector<std::string> list(const Path& path) const override {
    return disk_.list(path);
  }
  [[nodiscard]] Path read_link(const Path& link) const override { return disk_.read_link(link); }
  [[nodiscard]] std::uint64_t free_bytes(const Path& path) const override {
    return disk_.free_bytes(path);
  }
  [[nodiscard]] std::unique_ptr<WritableFile> create(const Path& path) override {
    return std::make_unique<File>(*this, disk_.create(path));
  }
  [[nodiscard]] std::unique_ptr<WritableFile> append(const Path& path) override {
    return disk_.append(path);
  }
  void rename(const Path& from, const Path& to) override { disk_.rename(from, to); }
  void remove(const Path& path) override { disk_.remove(path); }
  void remove_all(const Path& path) override { disk_.remove_all(path); }
  void create_directories(const Path& path) override { disk_.create_directories(path); }
  void create_link(const Path& target, const Path& link) override {
    disk_.create_link(target, link);
  }
  void sync_directory(const Path& path) override { disk_.sync_directory(path); }

 private:
  class File final : public WritableFile {
   public:
    File(SlowDisk& slow, std::unique_ptr<WritableFile> file)
        : slow_(slow), file_(std::move(file)) {}
    void append(std::span<const std::byte> bytes) override {
      if (std::exchange(has_head_, true)) {
        (void)slow_.queue_->wait([&] { return slow_.open_; }, kNever);
      }
      file_->append(bytes);
    }
    void sync() override { file_->sync(); }

   private:
    SlowDisk& slow_;
    std::unique_ptr<WritableFile> file_;
    bool has_head_ = false;
  };

  SystemStorage disk_;
  SystemRuntime runtime_;
  std::unique_ptr<WaitQueue> queue_ = runtime_.make_wait_queue();
  bool open_ = false;  // under queue_'s lock
};

RecordingHead head_of(int self) {
  return {.self = WorkerId(self), .started_ms = 1'763'900'000'000, .names = {"east", "west"}};
}

FrameBytes some_frame(std::uint32_t part, std::size_t payload = 10) {
  return make_frame({.kind = FrameKind::kContribution,
                     .epoch = 3,
                     .id = {FragmentId(2), StepIndex(70)},
                     .part = part,
                     .parts = 100},
                    std::vector<std::byte>(payload));
}

Recording read_back(const std::filesystem::path& file) {
  const SystemStorage storage;
  auto recording = read_recording(storage.read(file));
  EXPECT_TRUE(recording.has_value()) << recording.error();
  return recording.has_value() ? *recording : Recording{};
}

class RecordingTest : public ::testing::Test {
 protected:
  TemporaryDirectory folder_;
  std::filesystem::path file_ = folder_.path() / "east.frames";
  SystemStorage storage_;
  SystemRuntime runtime_;
};

TEST_F(RecordingTest, HoldsWhatFramesSayOfThemselves) {
  const FrameBytes frame = some_frame(17);
  Duration earliest{}, latest{};
  {
    const TimePoint before = runtime_.clock().now();
    FrameRecorder recorder(storage_, runtime_, {.file = file_, .head = head_of(0)});
    const TimePoint opened = runtime_.clock().now();
    earliest = runtime_.clock().now() - opened;
    recorder.record(FrameEvent::kLeft, WorkerId(1), 3, *frame);
    latest = runtime_.clock().now() - before;
    recorder.record(FrameEvent::kTaken, WorkerId(1), -1, std::vector<std::byte>(200));  // no frame
  }
  const Recording recording = read_back(file_);
  EXPECT_EQ(recording.head, head_of(0));
  ASSERT_EQ(recording.records.size(), 1u);
  const FrameRecord& record = recording.records.front();
  EXPECT_GE(record.time_ns, earliest.count());
  EXPECT_LE(record.time_ns, latest.count());
  EXPECT_EQ(record.event, FrameEvent::kLeft);
  EXPECT_EQ(record.stream, 3);
  EXPECT_EQ(record.peer, WorkerId(1));
  EXPECT_EQ(record.kind, FrameKind::kContribution);
  EXPECT_EQ(record.epoch, 3u);
  EXPECT_EQ(record.id, (SyncId{FragmentId(2), StepIndex(70)}));
  EXPECT_EQ(record.part, 17u);
  EXPECT_EQ(record.bytes, frame->size());
  EXPECT_EQ(record.crc, crc32c(std::span(*frame).first(frame->size() - 4)));
}

TEST_F(RecordingTest, KeepsTheLastRecordsWithinItsLimit) {
  constexpr std::uint64_t kLimit = 1 << 20;
  constexpr std::uint32_t kFrames = 50'000;  // 2.4 MB of records
  {
    FrameRecorder recorder(storage_, runtime_,
                           {.file = file_, .head = head_of(0), .limit = kLimit});
    for (std::uint32_t i = 0; i < kFrames; ++i) {
      recorder.record(FrameEvent::kQueued, WorkerId(1), -1, *some_frame(i));
    }
  }
  const std::filesystem::path older = older_recording(file_);
  EXPECT_LE(std::filesystem::file_size(file_) + std::filesystem::file_size(older), kLimit);
  std::uint32_t next = kFrames;
  std::vector<FrameRecord> records = read_back(older).records;
  for (const FrameRecord& record : read_back(file_).records) records.push_back(record);
  EXPECT_GT(records.size() * kFrameRecordBytes, kLimit / 2);
  for (auto record = records.rbegin(); record != records.rend(); ++record) {
    ASSERT_EQ(record->part, --next);  // none is missing up to the last one
  }
}

TEST_F(RecordingTest, OneThatIsThereIsKeptAndAnotherFileIsLeftAlone) {
  for (int run = 0; run < 2; ++run) {
    FrameRecorder recorder(storage_, runtime_, {.file = file_, .head = head_of(run)});
  }
  EXPECT_EQ(read_back(older_recording(file_)).head.self, WorkerId(0));
  EXPECT_EQ(read_back(file_).head.self, WorkerId(1));
  // Nor is one left alone that would be replaced only when the file is half full.
  const std::filesystem::path notes = folder_.path() / "notes.txt";
  const std::filesystem::path notes_old = folder_.path() / "west.frames.old";
  for (const auto& [named, there] :
       {std::pair(notes, notes), std::pair(folder_.path() / "west.frames", notes_old)}) {
    std::ofstream(there) << "mind the gap";
    try {
      FrameRecorder recorder(storage_, runtime_, {.file = named, .head = head_of(0)});
      FAIL() << named;
    } catch (const ConfigError& error) {
      EXPECT_THAT(error.what(), HasSubstr("--record " + named.string()));
      EXPECT_THAT(error.what(), HasSubstr(there.string() + ", which is no recording"));
    }
    EXPECT_EQ(read_text(storage_, there), "mind the gap");
    EXPECT_EQ(storage_.kind(named) == FileKind::kFile, named == there);
  }
}

// Nobody waits for the disk: what it does not take in time is left out, and the file says how many.
TEST_F(RecordingTest, OfASlowDiskOnlyTheFileKnows) {
  SlowDisk disk;
  constexpr std::uint32_t kFrames = 20'000;
  {
    FrameRecorder recorder(
        disk, runtime_,
        {.file = file_, .head = head_of(0), .most_waiting = 1000 * kFrameRecordBytes});
    for (std::uint32_t i = 0; i < kFrames; ++i) {  // would hang
      recorder.record(FrameEvent::kQueued, WorkerId(1), -1, *some_frame(i));
    }
    disk.open();
  }
  const Recording recording = read_back(file_);
  EXPECT_GE(recording.records.size(), 1000u);
  EXPECT_LE(recording.records.size(), 2000u);
  EXPECT_EQ(recording.records.size() + recording.left_out, kFrames);
  EXPECT_GE(recording.gaps, 1u);
  EXPECT_EQ(recording.damaged, 0u);
}

// A disk that is full ends the recording, and nothing else.
TEST_F(RecordingTest, OfAFullDiskTheBeginningIsThere) {
  FaultyStorage disk(storage_, {.disk_full_after_bytes = 200'000});
  {
    FrameRecorder recorder(disk, runtime_, {.file = file_, .head = head_of(0)});
    for (std::uint32_t i = 0; i < 20'000; ++i) {
      recorder.record(FrameEvent::kQueued, WorkerId(1), -1, *some_frame(i));
    }
  }
  const Recording recording = read_back(file_);
  EXPECT_GT(recording.records.size(), 1000u);
  EXPECT_LT(recording.records.size(), 5000u);
}

TEST_F(RecordingTest, OfADamagedOneWhatIsWholeIsThere) {
  {
    FrameRecorder recorder(storage_, runtime_, {.file = file_, .head = head_of(0)});
    for (std::uint32_t i = 0; i < 5; ++i) {
      recorder.record(FrameEvent::kQueued, WorkerId(1), -1, *some_frame(i));
    }
  }
  const std::vector<std::byte> bytes = storage_.read(file_);
  const std::size_t head = bytes.size() - 5 * kFrameRecordBytes;
  for (std::size_t n = 0; n < bytes.size(); ++n) {
    const auto recording = read_recording(std::span(bytes).first(n));
    ASSERT_EQ(recording.has_value(), n >= head) << n;
    if (!recording) continue;
    EXPECT_EQ(recording->records.size(), (n - head) / kFrameRecordBytes) << n;
    EXPECT_EQ(recording->cut_off, (n - head) % kFrameRecordBytes) << n;
    EXPECT_EQ(recording->damaged, 0u);
  }
  for (std::size_t at = 0; at < bytes.size(); ++at) {
    std::vector<std::byte> damaged = bytes;
    damaged[at] ^= std::byte{0x20};
    const auto recording = read_recording(damaged);
    ASSERT_EQ(recording.has_value(), at >= head) << at;
    if (!recording) continue;
    EXPECT_EQ(recording->records.size(), 4u) << at;
    EXPECT_EQ(recording->damaged, 1u) << at;
    EXPECT_EQ(recording->first_damaged_at,
              head + (at - head) / kFrameRecordBytes * kFrameRecordBytes);
  }
}

// The exchange over it: the same results, and each frame of a member is there once each way.
TEST_F(RecordingTest, ChangesNoBitAndMissesNoFrame) {
  SystemRuntime runtime;
  const std::shared_ptr<const Codec> codec = make_codec("int8:256");
  const SyncId id{FragmentId(0), StepIndex(1)};
  auto transports = make_in_process_transports(runtime, 2);
  std::vector<std::vector<float>> values(2);
  ByteCounts sent;
  {
    FrameRecorder recorder(storage_, runtime, {.file = file_, .head = head_of(0)});
    RecordingTransport recorded(*transports[0], recorder);
    PeerExchange first(recorded, runtime);
    PeerExchange second(*transports[1], runtime);
    auto other = runtime.spawn("second", [&] {
      const Ticket ticket = second.begin(testing_support::contribution_of(
          codec, WorkerId(1), 300'000, id, ReductionKind::kReduce));
      values[1] = second.wait(ticket, 1min)->values;
      second.leave(1min);
    });
    const Ticket ticket = first.begin(
        testing_support::contribution_of(codec, WorkerId(0), 300'000, id, ReductionKind::kReduce));
    values[0] = first.wait(ticket, 1min)->values;
    first.leave(1min);
    other->join();
    sent = first.bytes();
  }
  EXPECT_EQ(values[0], values[1]);
  EXPECT_EQ(values[0], testing_support::naive_mean(*codec, {WorkerId(0), WorkerId(1)}, 300'000,
                                                   ReductionKind::kReduce));
  std::uint64_t queued = 0;
  for (const FrameRecord& record : read_back(file_).records) {
    if (record.event == FrameEvent::kQueued) queued += record.bytes;
  }
  EXPECT_EQ(queued, sent.wire);
}

// A connection that breaks: what it carried goes again, and is recorded again.
TEST(RecordedLinks, TellWhichConnectionCarriedAFrameAndHowOften) {
  using Line = std::tuple<bool, int, std::uint32_t>;
  std::vector<Line> of_0, of_1;
  link_test::Net net(2, [&](MemberOptions& options) {
    std::vector<Line>& lines = options.self == WorkerId(0) ? of_0 : of_1;
    options.streams = 1;
    options.on_carried = [&lines](bool leaves, WorkerId, int stream,
                                  std::span<const std::byte> frame) {
      lines.emplace_back(leaves, stream, std::to_integer<std::uint32_t>(frame[0]));
    };
  });
  net.settle();
  net.engine(0).submit(WorkerId(1), link_test::frame_of(7, 100));
  net.set_up(0, 1, 0, false);
  net.set_up(0, 1, 0, true);
  net.settle();
  net.pass(1s);
  EXPECT_EQ(of_0, (std::vector<Line>{{true, 0, 7}, {true, 0, 7}}));
  EXPECT_EQ(of_1, (std::vector<Line>{{false, 0, 7}}));
}

}  // namespace
}  // namespace isthmus::this_file
