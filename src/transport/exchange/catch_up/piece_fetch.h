// SPDX-License-Identifier: Apache-2.0
// The joiner's side of a state that arrives in pieces from several members. One member, the donor,
// has sent the list of pieces (piece_table.h) and has all of them; the others have some. Pieces are
// requested in parts, from each source as far ahead as keeps its line busy. Each piece is checked
// against its digest; a source with three wrong pieces is not asked any more. A lost source costs
// its unfinished pieces; pieces of a silent source may be fetched elsewhere. Towards the end an
// idle source takes over unfinished pieces of a slower one. A state machine: it does not know
// threads, and time only from its calls.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "isthmus/types.h"
#include "transport/exchange/catch_up/piece_table.h"

namespace isthmus {

/// The most open requests a source: small pieces are requested one by one.
inline constexpr std::size_t kMostPartsAhead = 256;

class PieceFetch {
 public:
  struct Options {
    std::uint32_t part_bytes = std::uint32_t{128} << 10;
    std::uint64_t most_ahead = std::uint64_t{16} << 20;  // bytes requested from one source
    /// The most queueing time of requests at a source: the less it is, the less rounds on the same
    /// line are delayed.
    Duration queueing = std::chrono::milliseconds(100);
    /// Timeout of a silent source: others may then fetch its pieces. The requests stay open, since
    /// a part may take that long on a slow line.
    Duration patience = std::chrono::seconds(10);
    /// Timeout after which the requests of a silent source count as lost; it is then asked for one
    /// part at a time.
    Duration asks_again = std::chrono::minutes(5);
    int most_bad = 3;  // pieces
  };
  /// A request to a source.
  struct Ask {
    WorkerId from;
    std::uint64_t offset = 0;  // in the state
    std::uint32_t bytes = 0;   // of one piece
  };
  /// The state of a source.
  struct Source {
    WorkerId rank;
    std::uint64_t given = 0;  // bytes of right pieces
    int bad = 0;              // wrong pieces
    bool gone = false;        // lost, or not asked any more
  };

  PieceFetch(PieceTable table, WorkerId donor, Options options);
  PieceFetch(PieceTable table, WorkerId donor) : PieceFetch(std::move(table), donor, Options()) {}

  /// `source` has these pieces. The first call for each source counts. REQUIRES: one entry a piece.
  void add(WorkerId source, std::vector<bool> holds);
  void lose(WorkerId source);
  /// Bytes from `from` for the state at `offset`. Bytes that were not requested from it are
  /// ignored.
  void take(WorkerId from, std::uint64_t offset, std::span<const std::byte> bytes, TimePoint now);
  /// Bytes of a piece from elsewhere, such as a file. RETURNS: whether they are right.
  bool put(std::size_t piece, std::span<const std::byte> bytes);
  /// The requests to send now; also checks silent sources, so call it now and then.
  [[nodiscard]] std::vector<Ask> ask(TimePoint now);

  [[nodiscard]] bool complete() const { return right_ == table_.size(); }
  /// Why the state cannot be completed: the donor is lost, or not asked any more.
  [[nodiscard]] const std::optional<std::string>& failure() const { return failure_; }
  [[nodiscard]] std::size_t pieces() const { return table_.size(); }
  [[nodiscard]] std::uint64_t bytes() const { return bytes_; }
  [[nodiscard]] std::uint64_t bytes_here() const { return bytes_here_; }
  /// Pieces from sources, in the order in which they were completed.
  [[nodiscard]] const std::vector<std::size_t>& given() const { return given_; }
  [[nodiscard]] const PieceTable& table() const { return table_; }
  /// REQUIRES: the piece is here, and the state has not been taken.
  [[nodiscard]] std::span<const std::byte> piece(std::size_t k) const {
    return std::span(state_).subspan(table_[k].offset, table_[k].bytes);
  }
  /// All sources that have announced their pieces, in rank order.
  [[nodiscard]] std::vector<Source> sources() const;
  /// Call once. REQUIRES: complete().
  [[nodiscard]] std::vector<std::byte> take_state();

 private:
  struct Part {
    std::size_t piece = 0;
    std::uint32_t begin = 0;  // in the piece
    std::uint32_t bytes = 0;
    TimePoint asked;
    std::uint64_t given_before = 0;  // bytes received from the source before
  };
  /// A piece that is arriving from one source.
  struct Coming {
    std::vector<std::byte> bytes;
    std::uint32_t asked = 0;
    std::uint32_t come = 0;
  };
  struct From {
    Source told;
    std::vector<bool> holds;
    std::map<std::size_t, Coming> coming;  // by piece
    std::deque<Part> parts;                // requested and not received
    std::uint64_t ahead = 0;               // their bytes
    std::uint64_t sent = 0;                // bytes received, right or not
    double rate = 0;                       // bytes a second: the best recent one
    Duration least = Duration::max();      // shortest time from request to arrival
    std::uint64_t window = 0;              // bytes to request ahead
    TimePoint heard;
    bool silent = false;
  };
  [[nodiscard]] bool fetched_by_another(std::size_t piece, const From& self) const;
  [[nodiscard]] std::optional<std::size_t> choose(const From& source) const;
  [[nodiscard]] std::optional<std::size_t> choose_to_take_over(const From& source) const;
  void ask_one(From& source, TimePoint now, std::vector<Ask>& out);
  void pace(From& source, const Part& part, TimePoint now);
  void settle(std::size_t piece, From& source);
  void keep(std::size_t piece, std::span<const std::byte> bytes);
  void let_go(From& source);
  void give_up(From& source, const std::string& why);

  const PieceTable table_;
  const WorkerId donor_;
  const Options options_;
  std::map<WorkerId, From> sources_;
  std::vector<bool> here_;    // by piece
  std::vector<int> holders_;  // by piece: number of sources
  std::vector<std::size_t> given_;
  std::vector<std::byte> state_;
  const std::uint64_t bytes_;
  std::size_t right_ = 0;  // pieces
  std::uint64_t bytes_here_ = 0;
  std::optional<std::string> failure_;
};

}  // namespace isthmus
