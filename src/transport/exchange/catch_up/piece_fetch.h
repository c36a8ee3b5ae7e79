// SPDX-License-Identifier: Apache-2.0
// The joiner's side of a state that comes in pieces from several members. One of them, the donor,
// has said which pieces there are (piece_table.h) and has them all; the others have some. Pieces
// are asked for in parts, each source as far ahead as keeps its line busy and no more; each piece
// is held against its digest, and who gives three that are not what was asked for is asked no more.
// A source that goes costs its unfinished pieces; what a silent one was asked for others may give
// meanwhile. Towards the end one that has nothing to do takes over what a slower one has not
// finished. A state machine: it knows no time
// but what it is told, and no threads.
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

/// Small pieces are asked for one by one: so many parts at once, whatever their size.
inline constexpr std::size_t kMostPartsAhead = 256;

class PieceFetch {
 public:
  struct Options {
    std::uint32_t part_bytes = std::uint32_t{128} << 10;
    std::uint64_t most_ahead = std::uint64_t{16} << 20;  // bytes asked of one source
    /// What is asked ahead of a source may wait so long on the way: the less, the less rounds on
    /// the same line wait for it.
    Duration queueing = std::chrono::milliseconds(100);
    /// With the silence of a source: others may fetch what it was asked for. It stays asked, for a
    /// part may take that long on a slow line.
    Duration patience = std::chrono::seconds(10);
    /// So long a silence means that what was asked is lost; each time it asks for one part anew.
    Duration asks_again = std::chrono::minutes(5);
    int most_bad = 3;  // pieces
  };
  /// What a source is asked for.
  struct Ask {
    WorkerId from;
    std::uint64_t offset = 0;  // in the state
    std::uint32_t bytes = 0;   // of one piece
  };
  /// What has become of a source.
  struct Source {
    WorkerId rank;
    std::uint64_t given = 0;  // bytes of pieces that were right
    int bad = 0;              // pieces
    bool gone = false;        // or asked no more
  };

  PieceFetch(PieceTable table, WorkerId donor, Options options);
  PieceFetch(PieceTable table, WorkerId donor) : PieceFetch(std::move(table), donor, Options()) {}

  /// `source` has these pieces. The first word of each stands. REQUIRES: one entry a piece.
  void add(WorkerId source, std::vector<bool> holds);
  void lose(WorkerId source);
  /// Bytes that `from` says to be at `offset`. What was not asked of it is left aside.
  void take(WorkerId from, std::uint64_t offset, std::span<const std::byte> bytes, TimePoint now);
  /// Bytes of a piece that need not be asked for. RETURNS: whether they are right.
  bool put(std::size_t piece, std::span<const std::byte> bytes);
  /// What to ask for now; also looks after silent sources, so call it now and then.
  [[nodiscard]] std::vector<Ask> ask(TimePoint now);

  [[nodiscard]] bool complete() const { return right_ == table_.size(); }
  /// Why it never will be: the donor has gone, or is asked no more.
  [[nodiscard]] const std::optional<std::string>& failure() const { return failure_; }
  [[nodiscard]] std::size_t pieces() const { return table_.size(); }
  [[nodiscard]] std::uint64_t bytes() const { return bytes_; }
  [[nodiscard]] std::uint64_t bytes_here() const { return bytes_here_; }
  /// Pieces that sources have given, in the order in which they became whole.
  [[nodiscard]] const std::vector<std::size_t>& given() const { return given_; }
  [[nodiscard]] const PieceTable& table() const { return table_; }
  /// REQUIRES: the piece is here, and the state has not been taken.
  [[nodiscard]] std::span<const std::byte> piece(std::size_t k) const {
    return std::span(state_).subspan(table_[k].offset, table_[k].bytes);
  }
  /// All that have said what they have, in order of rank.
  [[nodiscard]] std::vector<Source> sources() const;
  /// Once. REQUIRES: complete().
  [[nodiscard]] std::vector<std::byte> take_state();

 private:
  struct Part {
    std::size_t piece = 0;
    std::uint32_t begin = 0;  // in the piece
    std::uint32_t bytes = 0;
    TimePoint asked;
    std::uint64_t given_before = 0;  // bytes that the source had sent then
  };
  /// A piece on its way from one source.
  struct Coming {
    std::vector<std::byte> bytes;
    std::uint32_t asked = 0;
    std::uint32_t come = 0;
  };
  struct From {
    Source told;
    std::vector<bool> holds;
    std::map<std::size_t, Coming> coming;  // by piece
    std::deque<Part> parts;                // asked for and not here
    std::uint64_t ahead = 0;               // bytes of them
    std::uint64_t sent = 0;                // bytes that have come, right or not
    double rate = 0;                       // bytes a second: the best of late
    Duration least = Duration::max();      // time from asking to having
    std::uint64_t window = 0;              // bytes to ask ahead
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
  std::vector<int> holders_;  // the same
  std::vector<std::size_t> given_;
  std::vector<std::byte> state_;
  const std::uint64_t bytes_;
  std::size_t right_ = 0;  // pieces
  std::uint64_t bytes_here_ = 0;
  std::optional<std::string> failure_;
};

}  // namespace isthmus
