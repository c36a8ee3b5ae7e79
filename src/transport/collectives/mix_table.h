// SPDX-License-Identifier: Apache-2.0
// Which back end of a mixed communicator runs which operation (the idea of MCR-DL,
// arXiv:2303.08374): a table that was measured, the same on all ranks, so that the choice is a pure
// function of what all ranks know of a call: its operation and its size.
// It has times of the groups that are split from all ranks too: what is fastest between four ranks
// need not be so between two of them.
// File (JSON), as `isthmus bench collectives --inner --out` writes it:
//   {"isthmus": "collectives", "version": 2, "ranks": 4,
//    "measured": [{"ranks": 2, "operation": "all_reduce", "backend": "mpi", "bytes": 1024,
//                  "us": 1.5}, ...]}
// Version 1 had no ranks in its rows: they are all of the whole group.
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

/// A measured call: of a group of `ranks`; `bytes` as call_bytes() has them.
struct MeasuredCall {
  int ranks = 1;
  Operation operation = Operation::kNothing;
  std::string backend;
  std::int64_t bytes = 0;
  double us = 0;

  bool operator==(const MeasuredCall&) const = default;
};

/// What the table goes by: the values of an all-reduce, broadcast or message, those of all ranks in
/// a reduce-scatter or all-gather; of an all-to-all what each of `ranks` gives, on an average
/// (where one gives or gets it all, as with lanes, the table's times are of another pattern).
[[nodiscard]] std::int64_t call_bytes(const Call& call, int ranks);

/// What a table says to one group and its back ends, ready to be asked in every call.
class MixChoices {
 public:
  /// RETURNS: the place in the group's back ends of the one that is fastest at `bytes`; of equals
  /// at a measured size the first. Between two sizes: among those measured at both, whose times are
  /// straight lines; where nobody was, whoever is fastest at the smaller. Below and above all
  /// sizes: whoever is fastest at the nearest. Nothing measured: 0.
  [[nodiscard]] std::size_t of(Operation operation, std::int64_t bytes) const;
  /// The same for calls whose size does not decide: the one that was least behind the fastest, on
  /// an average of the sizes; one that was not measured at all of them comes last.
  [[nodiscard]] std::size_t of_kind(Operation operation) const;

 private:
  friend class MixTable;
  struct Stretch {
    std::int64_t begin = 0;  // bytes; it ends where the next one begins
    std::size_t fastest = 0;
  };
  struct Kind {
    std::vector<Stretch> stretches;  // rising
    std::size_t fastest = 0;
  };
  /// times: at each measured size, rising, the microseconds of each back end, infinite where it was
  /// not measured.
  using Times = std::pair<const std::int64_t, std::vector<double>>;
  [[nodiscard]] static Kind kind_of(const std::map<std::int64_t, std::vector<double>>& times);
  /// Appends where between two sizes another one becomes the fastest of those measured at both.
  static void cross(const Times& from, const Times& to, std::vector<Stretch>& stretches);
  [[nodiscard]] const Kind& kind(Operation operation) const {
    return kinds_[static_cast<std::size_t>(operation)];
  }
  std::array<Kind, static_cast<std::size_t>(Operation::kGone) + 1> kinds_;
};

class MixTable {
 public:
  /// ranks: of the largest group. REQUIRES: ranks >= 1; of each call 1 <= ranks <= that, bytes >=
  /// 0, us > 0 and finite.
  MixTable(int ranks, std::vector<MeasuredCall> measured);

  [[nodiscard]] int ranks() const { return ranks_; }
  [[nodiscard]] const std::vector<MeasuredCall>& measured() const { return measured_; }
  [[nodiscard]] bool has_times_of(int ranks) const;
  /// The back ends that it has times of, by name.
  [[nodiscard]] std::vector<std::string> backends() const;
  /// Replaces what was measured of the same group size, operation, back end and size.
  void add(const MeasuredCall& call);
  /// For a group of `ranks` with `backends`: each operation goes by the measured group size that is
  /// nearest to `ranks` (by ratio; of two equally near ones the smaller). REQUIRES: a back end.
  [[nodiscard]] MixChoices choices(int ranks, const std::vector<std::string>& backends) const;
  [[nodiscard]] std::string json() const;
  /// Of the whole content.
  [[nodiscard]] std::uint64_t digest() const;

 private:
  int ranks_;
  std::vector<MeasuredCall> measured_;  // by ranks, operation, bytes, back end
};

/// `label` names the source in errors. THROWS: SystemError naming what is missing, unknown, twice
/// there or out of range.
[[nodiscard]] MixTable parse_mix_table(std::string_view text, const std::string& label);

}  // namespace isthmus
