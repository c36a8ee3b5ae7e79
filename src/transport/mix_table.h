// SPDX-License-Identifier: Apache-2.0
// Which back end of a mixed communicator runs which operation (the idea of MCR-DL,
// arXiv:2303.08374): a table that was measured, the same on all ranks, so that the choice is a pure
// function of what all ranks know of a call: its operation and its size.
// File (JSON), as `isthmus bench collectives --inner --out` writes it:
//   {"isthmus": "collectives", "version": 1, "ranks": 2,
//    "measured": [{"operation": "all_reduce", "backend": "threads", "bytes": 1024, "us": 1.5},
//    ...]}
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "transport/communicator_call.h"

namespace isthmus {

/// A measured call: `bytes` as call_bytes() has them.
struct MeasuredCall {
  Operation operation = Operation::kNothing;
  std::string backend;
  std::int64_t bytes = 0;
  double us = 0;

  bool operator==(const MeasuredCall&) const = default;
};

/// What the table goes by: the values of an all-reduce, broadcast or message, those of all ranks in
/// a reduce-scatter or all-gather; 0 where ranks may have unlike counts (all-to-all).
[[nodiscard]] std::int64_t call_bytes(const Call& call);

class MixTable {
 public:
  /// REQUIRES: ranks >= 1; bytes >= 0, us > 0 and finite.
  MixTable(int ranks, std::vector<MeasuredCall> measured);

  [[nodiscard]] int ranks() const { return ranks_; }
  [[nodiscard]] const std::vector<MeasuredCall>& measured() const { return measured_; }
  /// Replaces what was measured of the same operation, back end and size.
  void add(const MeasuredCall& call);
  /// RETURNS: the name, of those in `backends`, that was fastest at the measured size nearest to
  /// `bytes` (by ratio; of two equally near ones the smaller), among those measured at that size;
  /// of equals the one that comes first in `backends`. Nothing measured: backends.front().
  [[nodiscard]] std::string_view choose(Operation operation, std::int64_t bytes,
                                        const std::vector<std::string>& backends) const;
  [[nodiscard]] std::string json() const;
  /// Of the whole content.
  [[nodiscard]] std::uint64_t digest() const;

 private:
  int ranks_;
  std::vector<MeasuredCall> measured_;  // by operation, bytes, back end
};

/// `label` names the source in errors. THROWS: SystemError naming what is missing, unknown, twice
/// there or out of range.
[[nodiscard]] MixTable parse_mix_table(std::string_view text, const std::string& label);

}  // namespace isthmus
