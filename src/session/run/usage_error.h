// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "isthmus/errors.h"

namespace isthmus::app {

/// An invalid command line: exit 2.
class UsageError : public Error {
 public:
  explicit UsageError(const std::string& text) : Error(ExitCode::kUsage, text) {}
};

}  // namespace isthmus::app
