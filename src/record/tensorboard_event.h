// SPDX-License-Identifier: Apache-2.0
// TensorBoard's event files, byte for byte: protobuf messages written by hand inside TFRecord
// frames. Pure functions; a file is their results one after another, `file_version_record` first.
//
// A record is: length (u64), masked CRC-32C of those 8 bytes, payload, masked CRC-32C of the
// payload; all little-endian. Field numbers are those of tensorflow's event.proto, summary.proto
// and tensor.proto.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace isthmus::report {

struct Scalar {
  std::string tag;  // "train/loss"; the part before the slash groups charts
  float value = 0;
};

/// ((crc >> 15) | (crc << 17)) + 0xa282ead8: the form in which TFRecord stores a CRC-32C.
[[nodiscard]] std::uint32_t masked_crc32c(std::string_view bytes);
/// One frame around `payload`.
[[nodiscard]] std::string tfrecord(std::string_view payload);

/// First record of every file: "brain.Event:2".
[[nodiscard]] std::string file_version_record(double wall_s);
/// A session that starts at `step`: readers drop earlier files' records of this step and later
/// ones, which a resume is about to write again.
[[nodiscard]] std::string session_start_record(double wall_s, std::int64_t step);
/// All scalars of one step. REQUIRES: at least one.
[[nodiscard]] std::string scalars_record(double wall_s, std::int64_t step,
                                         std::span<const Scalar> scalars);
/// Markdown for the Text tab, under "NAME/text_summary".
[[nodiscard]] std::string text_record(double wall_s, std::int64_t step, std::string_view name,
                                      std::string_view markdown);

/// "events.out.tfevents.1700000000.isthmus.0": readers take the files of a folder in name order, so
/// a later session needs a larger `unix_s`. They search for "tfevents" in the name.
[[nodiscard]] std::string event_file_name(std::int64_t unix_s);
/// The seconds in such a name, or -1.
[[nodiscard]] std::int64_t event_file_time(std::string_view name);

}  // namespace isthmus::report
