// SPDX-License-Identifier: Apache-2.0
// The back end of a mixed communicator for each operation (the idea of MCR-DL, arXiv:2303.08374),
// from a measured table that is equal on all ranks. So the choice is a pure function of a call's
// operation and size, which all ranks know. The table also has times of groups split from all
// ranks: the fastest back end between four ranks need not be the fastest between two.
// File (JSON), as written by `isthmus bench collectives --inner --out`:
//   {"isthmus": "collectives", "version": 2, "ranks": 4,
//    "measured": [{"ranks": 2, "operation": "all_reduce", "backend": "mpi", "bytes": 1024,
//                  "us": 1.5}, ...]}
// Rows of version 1 have no ranks: they are of the whole group.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "transport/collectives/communicator_call.h"

namespace isthmus {

/// A measured call in a group of `ranks`; `bytes` as in call_bytes().
struct MeasuredCall {
  int ranks = 1;
  Operation operation = Operation::kNothing;
  std::string backend;
  std::int64_t bytes = 0;
  double us = 0;

  bool operator==(const MeasuredCall&) const = default;
};

/// The size by which a table chooses: the bytes of an all-reduce, broadcast or message; those of
/// all ranks in a reduce-scatter or all-gather; in an all-to-all the mean that each of `ranks`
/// sends (if one rank sends or receives all, as with lanes, the table's times are for another
/// pattern).
[[nodiscard]] std::int64_t call_bytes(const Call& call, int ranks);

/// A table's choices for one group and its back ends, prepared for use in every call.
class MixChoices {
 public:
  /// RETURNS: the place in the group's back ends of the fastest one at `bytes`; of equals at a
  /// measured size the first. Between two sizes: the fastest by linear interpolation among those
  /// measured at both; if none was, the fastest at the smaller size. Outside all sizes: the fastest
  /// at the nearest. Nothing measured: 0.
  [[nodiscard]] std::size_t of(Operation operation, std::int64_t bytes) const;
  /// For calls whose size does not decide: the back end with the least mean excess over the
  /// fastest, averaged over the sizes; a back end that was not measured at all sizes comes last.
  [[nodiscard]] std::size_t of_kind(Operation operation) const;

 private:
  friend class MixTable;
  struct Stretch {
    std::int64_t begin = 0;  // bytes; ends at the next one's begin
    std::size_t fastest = 0;
  };
  struct Kind {
    std::vector<Stretch> stretches;  // ascending
    std::size_t fastest = 0;
  };
  /// times: at each measured size, ascending, the microseconds of each back end; infinite if not
  /// measured.
  using Times = std::pair<const std::int64_t, std::vector<double>>;
  [[nodiscard]] static Kind kind_of(const std::map<std::int64_t, std::vector<double>>& times);
  /// Appends the sizes between two measured ones at which another back end becomes the fastest.
  static void cross(const Times& from, const Times& to, std::vector<Stretch>& stretches);
  [[nodiscard]] const Kind& kind(Operation operation) const {
    return kinds_[static_cast<std::size_t>(operation)];
  }
  std::array<Kind, static_cast<std::size_t>(Operation::kGone) + 1> kinds_;
};

class MixTable {
 public:
  /// ranks: of the largest group. REQUIRES: ranks >= 1; for each call 1 <= its ranks <= ranks,
  /// bytes >= 0, us > 0 and finite.
  MixTable(int ranks, std::vector<MeasuredCall> measured);

  [[nodiscard]] int ranks() const { return ranks_; }
  [[nodiscard]] const std::vector<MeasuredCall>& measured() const { return measured_; }
  [[nodiscard]] bool has_times_of(int ranks) const;
  /// The names of the measured back ends.
  [[nodiscard]] std::vector<std::string> backends() const;
  /// Replaces the measurement with the same group size, operation, back end and size.
  void add(const MeasuredCall& call);
  /// For a group of `ranks` with `backends`: each operation uses the measured group size nearest to
  /// `ranks` (by ratio; of two equally near ones the smaller). REQUIRES: a back end.
  [[nodiscard]] MixChoices choices(int ranks, const std::vector<std::string>& backends) const;
  [[nodiscard]] std::string json() const;
  /// Digest of the whole content.
  [[nodiscard]] std::uint64_t digest() const;

 private:
  int ranks_;
  std::vector<MeasuredCall> measured_;  // by ranks, operation, bytes, back end
};

/// `label` names the source in errors. THROWS: SystemError naming a key that is missing, unknown,
/// repeated or out of range.
[[nodiscard]] MixTable parse_mix_table(std::string_view text, const std::string& label);

}  // namespace isthmus
