// SPDX-License-Identifier: Apache-2.0
// Bytes as a round's result, as a table of pieces and as a piece of a stream. Checked: no crash, no
// read outside, and what is accepted writes back to the same bytes.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <vector>

#include "transport/note_stream.h"
#include "transport/piece_fetch.h"
#include "transport/round_result.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace isthmus;
  const std::span<const std::byte> bytes = std::as_bytes(std::span(data, size));
  if (const auto result = read_result(bytes, 5)) {
    const auto again = write_result(result->id, result->reduced, result->encoded);
    if (!std::ranges::equal(again, bytes)) std::abort();
  }
  if (auto table = read_table(bytes)) {
    if (!std::ranges::equal(write_table(*table), bytes)) std::abort();
    if (table_bytes(*table) <= 1 << 20) {  // a state of zeros, of which no piece is likely to hold
      const std::vector<std::byte> zeros(1 << 20);
      PieceFetch fetch(*std::move(table), Rank(0));
      for (int k = 0; k < 100; ++k) {
        for (const PieceFetch::Ask& ask : fetch.ask(TimePoint())) {
          fetch.take(ask.from, ask.offset, std::span(zeros).first(ask.bytes), TimePoint());
        }
      }
    }
  }
  NoteStreamAssembler assembler(1 << 20);
  const auto whole = assembler.take(bytes);
  if (whole && *whole) {
    NoteStreamCutter cutter(0, (*whole)->kind, (*whole)->bytes);
    if (!std::ranges::equal(cutter.next(), bytes)) std::abort();
  }
  return 0;
}
