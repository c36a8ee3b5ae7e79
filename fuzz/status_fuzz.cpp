// SPDX-License-Identifier: Apache-2.0
// Bytes as the status that a run's page answers with. Checked: one kind of error or a status, which
// a terminal can be told; what is read, written and read again is written to the same text.
#include <cstdint>
#include <cstdlib>
#include <string>

#include "app/common/terminal.h"
#include "app/observe/status_text.h"
#include "isthmus/errors.h"
#include "record/run_status.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace isthmus;
  app::RunStatus status;
  try {
    status = app::parse_status(std::string(reinterpret_cast<const char*>(data), size));
  } catch (const ConfigError&) {
    return 0;
  }
  const app::Terminal terminal(1, app::ColorMode::kNever);
  for (const std::string& line : app::status_lines(status, terminal, "there")) {
    if (line.find('\n') != std::string::npos) std::abort();
  }
  const std::string written = app::status_json(status);
  if (app::status_json(app::parse_status(written)) != written) std::abort();
  return 0;
}
