// SPDX-License-Identifier: Apache-2.0
// Bytes as an spsa log, as they are and with every checksum put right, so that the fields are
// reached. Checked: no crash, no read outside, and what is accepted writes back to the same bytes.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <vector>

#include "outer/parts/spsa_log.h"

namespace {

using namespace isthmus;

void parse(std::span<const std::byte> bytes) {
  const auto log = outer::SpsaLog::parse(bytes);
  if (!log) return;
  if (!std::ranges::equal(log->bytes(), bytes)) std::abort();
  for (StepIndex t = log->header().base_step; t < log->last();) (void)log->record(++t);
}

/// The input behind a good header, each record's chain made to hold: a record is what the parser
/// takes before it compares, which a log of one record tells.
void mended(std::span<const std::byte> body) {
  const outer::SpsaLog empty({.members = 9, .elements = 100});
  std::vector<std::byte> bytes(empty.bytes().begin(), empty.bytes().end());
  bytes.insert(bytes.end(), body.begin(), body.end());
  Xxh3Stream chain;
  chain.update(std::as_bytes(std::span(empty.chain().bytes)));
  chain.update(body);
  const Digest128 digest = chain.digest();
  const auto seal = std::as_bytes(std::span(digest.bytes)).first(4);
  bytes.insert(bytes.end(), seal.begin(), seal.end());
  parse(bytes);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::span<const std::byte> bytes = std::as_bytes(std::span(data, size));
  parse(bytes);
  mended(bytes);
  return 0;
}
