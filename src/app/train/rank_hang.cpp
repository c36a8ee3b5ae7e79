// SPDX-License-Identifier: Apache-2.0
#include "app/train/rank_hang.h"

#include <cstdlib>

#include "app/common/cli_errors.h"
#include "isthmus/errors.h"

namespace isthmus::app {

void end_hanging_process(const std::string& error, bool json) {
  std::_Exit(report_errors(json, [&]() -> int { throw PeerError(error); }));
}

}  // namespace isthmus::app
