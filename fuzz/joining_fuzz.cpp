// SPDX-License-Identifier: Apache-2.0
// Bytes as a round's result, as a table of pieces and as a piece of a stream. Checked: no crash, no
// read outside, what is accepted writes back to the same bytes, and whatever is asked for lies
// within a piece. Bytes as a state that two sources give, the bytes also saying who is slow: it
// arrives whole once answers come without delay.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <deque>
#include <span>
#include <vector>

#include "transport/exchange/catch_up/piece_fetch.h"
#include "transport/exchange/round_result.h"
#include "transport/wire/note_stream.h"

namespace {

using namespace isthmus;

void check_asked(const PieceTable& table, const PieceFetch::Ask& ask) {
  if (!find_piece(table, ask.offset, ask.bytes)) std::abort();
}

/// So many answers may be late and out of turn. For ever, with every answer minutes apart, whatever
/// comes has been given up and asked for anew: no state can arrive so.
constexpr std::size_t kLateAnswers = 1000;

void fetch_state(std::span<const std::byte> state) {
  std::vector<std::uint64_t> borders;
  for (std::size_t k = 0; k < state.size(); k += 64) {
    borders.push_back(std::min(state.size(), k + std::to_integer<std::size_t>(state[k])));
  }
  std::ranges::sort(borders);
  const PieceTable table = cut_pieces(state, borders);
  PieceFetch fetch(table, WorkerId(0), {.part_bytes = 16});
  std::vector<bool> some(table.size());
  for (std::size_t k = 0; k < some.size(); ++k) some[k] = k % 3 != 0;
  fetch.add(WorkerId(1), some);
  std::deque<PieceFetch::Ask> asked;
  TimePoint now;
  for (std::size_t k = 0; !fetch.complete(); ++k) {
    if (fetch.failure()) std::abort();
    for (const PieceFetch::Ask& ask : fetch.ask(now)) {
      check_asked(table, ask);
      asked.push_back(ask);
    }
    if (asked.empty()) std::abort();  // nothing would ever come
    if (k < kLateAnswers) {
      const int what = std::to_integer<int>(state[k % state.size()]);
      now += std::chrono::milliseconds(what * what);
      if (what % 5 == 0) std::ranges::reverse(asked);
    }
    const PieceFetch::Ask next = asked.front();
    asked.pop_front();
    fetch.take(next.from, next.offset, state.subspan(next.offset, next.bytes), now);
  }
  if (!std::ranges::equal(fetch.take_state(), state)) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::span<const std::byte> bytes = std::as_bytes(std::span(data, size));
  if (const auto result = read_result(bytes, 5)) {
    const auto again = write_result(result->id, result->reduced, result->encoded);
    if (!std::ranges::equal(again, bytes)) std::abort();
  }
  if (auto table = read_table(bytes)) {
    if (!std::ranges::equal(write_table(*table), bytes)) std::abort();
    if (table_bytes(*table) <= 1 << 20) {  // a state of zeros, of which no piece is likely to hold
      const std::vector<std::byte> zeros(1 << 20);
      PieceFetch fetch(*table, WorkerId(0));
      for (int k = 0; k < 100; ++k) {
        for (const PieceFetch::Ask& ask : fetch.ask(TimePoint())) {
          check_asked(*table, ask);
          fetch.take(ask.from, ask.offset, std::span(zeros).first(ask.bytes), TimePoint());
        }
      }
    }
  }
  if (!bytes.empty()) fetch_state(bytes.first(std::min<std::size_t>(bytes.size(), 1 << 14)));
  NoteStreamAssembler assembler(1 << 20);
  const auto whole = assembler.take(bytes);
  if (whole && *whole) {
    NoteStreamCutter cutter(0, (*whole)->kind, (*whole)->bytes);
    if (!std::ranges::equal(cutter.next(), bytes)) std::abort();
  }
  return 0;
}
