// SPDX-License-Identifier: Apache-2.0
// The log of an spsa run, which defines the run: a base checkpoint and this log give the weights of
// every member, bit for bit. docs/internals/spsa.md draws the layout. Fields are little-endian;
// every record ends with four bytes of the hash chain H_t = XXH3-128(H_{t-1}, record), H_0 over the
// header, so damage and reordering are detected; every 64 steps the log has the whole chain value
// and a digest of the weights.
//
// A SpsaLog belongs to one thread. Parsing accepts any bytes and returns a log or a reason.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/base/hash.h"
#include "isthmus/expected.h"
#include "isthmus/inner_loop.h"
#include "isthmus/types.h"
#include "kernels/spsa.h"
#include "kernels/thread_team.h"

namespace isthmus::outer {

/// Fields common to all records of a run.
struct SpsaLogHeader {
  std::uint64_t run_key = 0;
  std::int32_t scale_log2 = 0;
  bool divide_by_sqrt = false;
  float weight_decay = 0;
  std::uint32_t members = 1;   // M: bits in a contributor bitmap
  std::uint64_t elements = 0;  // of the canonical layout
  Digest128 layout{};          // names, sizes and decay of the tensors
  StepIndex base_step;         // the base checkpoint is the state after this step
  Digest128 base_weights{};    // digest of the weights at base_step
  Digest128 base_chain{};      // H at base_step; zero in a log that starts with the run
  bool operator==(const SpsaLogHeader&) const = default;
};

/// One sealed step.
struct SpsaRecord {
  StepIndex step;
  std::uint32_t epoch = 0;
  float lr = 0;
  std::vector<std::uint32_t> machines;  // contributors, ascending
  std::vector<std::uint16_t> counts;    // number of entries of each contributor
  std::vector<std::uint8_t> codes;      // codes of the first machine's samples, then the next
                                        // machine's
  std::optional<Digest128> weights;     // digest after the step; every 64 steps
  bool operator==(const SpsaRecord&) const = default;
};

struct SpsaLogError {
  std::string what;
};

class SpsaLog {
 public:
  static constexpr std::int64_t kWeightsEvery = 64;

  explicit SpsaLog(const SpsaLogHeader& header);
  /// RETURNS: SpsaLogError naming the place and the defect.
  [[nodiscard]] static Expected<SpsaLog, SpsaLogError> parse(std::span<const std::byte> bytes);

  /// REQUIRES: record.step is last() + 1; codes fit counts; at least one entry per named
  /// contributor; `weights` is present exactly if the step is a multiple of kWeightsEvery.
  void append(const SpsaRecord& record);

  [[nodiscard]] const SpsaLogHeader& header() const { return header_; }
  [[nodiscard]] std::span<const std::byte> bytes() const { return bytes_; }
  /// The last sealed step; the base step of an empty log.
  [[nodiscard]] StepIndex last() const;
  /// Records with base_step < step <= last().
  [[nodiscard]] SpsaRecord record(StepIndex step) const;
  [[nodiscard]] std::size_t entries() const { return entries_; }
  /// H after the last step.
  [[nodiscard]] const Digest128& chain() const { return chain_; }
  /// Bytes of a log that starts with `base`, the weights after `step`, for a joiner that has this
  /// checkpoint. The hash chain continues. REQUIRES: base_step <= step <= last().
  [[nodiscard]] SpsaLog cut(StepIndex step, const Digest128& base_weights) const;

 private:
  [[nodiscard]] std::span<const std::byte> record_bytes(std::size_t index) const;

  SpsaLogHeader header_;
  std::vector<std::byte> bytes_;
  std::vector<std::size_t> begins_;  // offsets of the records in bytes_
  Digest128 chain_{};
  std::size_t entries_ = 0;
};

}  // namespace isthmus::outer
