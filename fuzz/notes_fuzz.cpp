// SPDX-License-Identifier: Apache-2.0
// Bytes as what the sites tell one another. Checked: no crash; what is read, written and read
// again is written to the same bytes.
#include <cstdint>
#include <cstdlib>
#include <span>

#include "session/site/site_notes.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace isthmus;
  const auto note = app::read_note(std::as_bytes(std::span(data, size)));
  if (!note) return 0;
  const auto written = app::write_note(*note);
  const auto again = app::read_note(written);
  if (!again || app::write_note(*again) != written) std::abort();
  return 0;
}
