// SPDX-License-Identifier: Apache-2.0
// How much work a test does. A change passes the tests of the label `full`, whose sweeps play few
// seeds. The entries of the label `nightly` run the same tests with ISTHMUS_NIGHTLY=1 in the
// environment: more seeds, larger sizes, every combination instead of a covering set.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdlib>
#include <string_view>
#include <tuple>
#include <vector>

namespace isthmus::testing_support {

inline bool nightly() {
  const char* const value = std::getenv("ISTHMUS_NIGHTLY");
  return value != nullptr && std::string_view(value) == "1";
}

/// A sweep of scripts/fault-sweep, which shuffles.
inline bool sweeping() { return GTEST_FLAG_GET(shuffle); }

/// A number of seeds, sizes or repetitions. A sweep counts its schedules by the nightly number.
template <typename Number>
Number by_weight(Number full, Number nightly_number) {
  return nightly() || sweeping() ? nightly_number : full;
}

/// Parameters of a test: every pair of an element of `first` and one of `second`, each with one of
/// `third` in turn, so that with enough pairs every pair of any two occurs. At night the whole
/// product.
template <typename First, typename Second, typename Third>
std::vector<std::tuple<First, Second, Third>> covering_set(const std::vector<First>& first,
                                                           const std::vector<Second>& second,
                                                           const std::vector<Third>& third) {
  std::vector<std::tuple<First, Second, Third>> chosen;
  for (std::size_t i = 0; i < first.size(); ++i) {
    for (std::size_t j = 0; j < second.size(); ++j) {
      for (std::size_t k = 0; k < third.size(); ++k) {
        if (nightly() || k == (i + j) % third.size()) {
          chosen.emplace_back(first[i], second[j], third[k]);
        }
      }
    }
  }
  return chosen;
}

}  // namespace isthmus::testing_support
