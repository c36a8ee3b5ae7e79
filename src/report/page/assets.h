// SPDX-License-Identifier: Apache-2.0
// Files of assets/ and Chart.js, embedded into the program by embed.cmake.
#pragma once

#include <string_view>

namespace isthmus::report {

extern const std::string_view kPageStyle;   // assets/page.css
extern const std::string_view kPageScript;  // assets/page.js
extern const std::string_view kChartJs;  // Debian's libjs-chart.js (MIT); empty when not installed

}  // namespace isthmus::report
