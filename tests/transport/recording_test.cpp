// SPDX-License-Identifier: Apache-2.0
// Frames written down: what a recording holds, how long it gets, what is left of a damaged one.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "core/system_runtime.h"
#include "core/temporary_directory.h"
#include "isthmus/errors.h"
#include "link_net.h"
#include "transport/in_process_transport.h"
#include "transport/naive_mean.h"
#include "transport/peer_exchange.h"
#include "transport/recording_transport.h"

namespace isthmus {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;

class SteppedClock final : public Clock {
 public:
  [[nodiscard]] TimePoint now() const override { return time; }
  TimePoint time{5s};
};

RecordingHead head_of(int self) {
  return {.self = Rank(self), .started_ms = 1'763'900'000'000, .names = {"east", "west"}};
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
  SteppedClock clock_;
};

TEST_F(RecordingTest, HoldsWhatFramesSayOfThemselves) {
  const FrameBytes frame = some_frame(17);
  {
    FrameRecorder recorder(storage_, clock_, {.file = file_, .head = head_of(0)});
    clock_.time += 1500us;
    recorder.record(FrameEvent::kLeft, Rank(1), 3, *frame);
    recorder.record(FrameEvent::kTaken, Rank(1), -1, std::vector<std::byte>(200));  // no frame
  }
  const Recording recording = read_back(file_);
  EXPECT_EQ(recording.head, head_of(0));
  ASSERT_EQ(recording.records.size(), 1u);
  const FrameRecord& record = recording.records.front();
  EXPECT_EQ(record.time_ns, 1'500'000);
  EXPECT_EQ(record.event, FrameEvent::kLeft);
  EXPECT_EQ(record.stream, 3);
  EXPECT_EQ(record.peer, Rank(1));
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
    FrameRecorder recorder(storage_, clock_, {.file = file_, .head = head_of(0), .limit = kLimit});
    for (std::uint32_t i = 0; i < kFrames; ++i) {
      recorder.record(FrameEvent::kQueued, Rank(1), -1, *some_frame(i));
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
    FrameRecorder recorder(storage_, clock_, {.file = file_, .head = head_of(run)});
  }
  EXPECT_EQ(read_back(older_recording(file_)).head.self, Rank(0));
  EXPECT_EQ(read_back(file_).head.self, Rank(1));
  const std::filesystem::path notes = folder_.path() / "notes.txt";
  std::ofstream(notes) << "mind the gap";
  try {
    FrameRecorder recorder(storage_, clock_, {.file = notes, .head = head_of(0)});
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), HasSubstr("no recording of frames"));
  }
  EXPECT_EQ(read_text(storage_, notes), "mind the gap");
}

TEST_F(RecordingTest, OfADamagedOneWhatIsWholeIsThere) {
  {
    FrameRecorder recorder(storage_, clock_, {.file = file_, .head = head_of(0)});
    for (std::uint32_t i = 0; i < 5; ++i) {
      recorder.record(FrameEvent::kQueued, Rank(1), -1, *some_frame(i));
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
    FrameRecorder recorder(storage_, runtime.clock(), {.file = file_, .head = head_of(0)});
    RecordingTransport recorded(*transports[0], recorder);
    PeerExchange first(recorded, runtime);
    PeerExchange second(*transports[1], runtime);
    auto other = runtime.spawn("second", [&] {
      const Ticket ticket = second.begin(
          testing_support::contribution_of(codec, Rank(1), 300'000, id, ReductionKind::kReduce));
      values[1] = second.wait(ticket, 1min)->values;
      second.leave(1min);
    });
    const Ticket ticket = first.begin(
        testing_support::contribution_of(codec, Rank(0), 300'000, id, ReductionKind::kReduce));
    values[0] = first.wait(ticket, 1min)->values;
    first.leave(1min);
    other->join();
    sent = first.bytes();
  }
  EXPECT_EQ(values[0], values[1]);
  EXPECT_EQ(values[0], testing_support::naive_mean(*codec, {Rank(0), Rank(1)}, 300'000,
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
    std::vector<Line>& lines = options.self == Rank(0) ? of_0 : of_1;
    options.streams = 1;
    options.on_carried = [&lines](bool leaves, Rank, int stream, std::span<const std::byte> frame) {
      lines.emplace_back(leaves, stream, std::to_integer<std::uint32_t>(frame[0]));
    };
  });
  net.settle();
  net.engine(0).submit(Rank(1), link_test::frame_of(7, 100));
  net.set_up(0, 1, 0, false);
  net.set_up(0, 1, 0, true);
  net.settle();
  net.pass(1s);
  EXPECT_EQ(of_0, (std::vector<Line>{{true, 0, 7}, {true, 0, 7}}));
  EXPECT_EQ(of_1, (std::vector<Line>{{false, 0, 7}}));
}

}  // namespace
}  // namespace isthmus
