// SPDX-License-Identifier: Apache-2.0
#include "core/base/check.h"

#include <cstdio>
#include <cstdlib>

namespace isthmus::detail {

void check_failed(const char* file, int line, const char* condition, const std::string& values) {
  std::fprintf(stderr, "%s:%d: broken invariant: %s%s%s\n", file, line, condition,
               values.empty() ? "" : "   values:", values.c_str());
  std::abort();
}

}  // namespace isthmus::detail
