// SPDX-License-Identifier: Apache-2.0
// Bytes as a recording of frames, as they are and with checksums made right. Checked: no crash,
// every byte is of the head, a whole record, a damaged one or the rest; what is read writes back to
// the same records.
#include <cstdint>
#include <cstdlib>
#include <span>
#include <vector>

#include "core/base/hash.h"
#include "transport/wire/frame_record.h"

namespace {

using namespace isthmus;

void require(bool condition) {
  if (!condition) std::abort();
}

void read(std::span<const std::byte> bytes) {
  const auto recording = read_recording(bytes);
  if (!recording) return;
  const std::size_t head = write_head(recording->head).size();
  require(head +
              (recording->records.size() + recording->gaps + recording->damaged) *
                  kFrameRecordBytes +
              recording->cut_off ==
          bytes.size());
  require(recording->cut_off < kFrameRecordBytes);
  std::vector<std::byte> again = write_head(recording->head);
  for (const FrameRecord& record : recording->records) write_record(record, again);
  const auto second = read_recording(again);
  require(second.has_value() && second->records == recording->records && second->damaged == 0);
}

void put_sum(std::span<std::byte> bytes) {
  const std::uint32_t sum = crc32c(bytes.first(bytes.size() - 4));
  for (std::size_t i = 0; i < 4; ++i) {
    bytes[bytes.size() - 4 + i] = static_cast<std::byte>(sum >> (8 * i) & 0xffu);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::span<const std::byte> bytes = std::as_bytes(std::span(data, size));
  read(bytes);
  std::vector<std::byte> file =
      write_head({.self = WorkerId(0), .started_ms = 1, .names = {"east", "west"}});
  const std::size_t head = file.size();
  file.insert(file.end(), bytes.begin(), bytes.end());
  for (std::size_t at = head; at + kFrameRecordBytes <= file.size(); at += kFrameRecordBytes) {
    put_sum(std::span(file).subspan(at, kFrameRecordBytes));
  }
  read(file);
  FrameRecord record;
  (void)describe_frame(bytes, record);
  return 0;
}
