// SPDX-License-Identifier: Apache-2.0
// assets/live.html, put into the program by embed_live.cmake.
#pragma once

#include <string_view>

namespace isthmus::app {

extern const std::string_view kLivePage;

}  // namespace isthmus::app
