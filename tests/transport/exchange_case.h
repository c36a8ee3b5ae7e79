// SPDX-License-Identifier: Apache-2.0
// What the tests of the exchange are parametrised over, on every transport.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "transport/naive_mean.h"

namespace isthmus::testing_support {

struct Case {
  int members;
  ReductionKind kind;
  std::string codec;
};

inline std::string name_of(const ::testing::TestParamInfo<Case>& info) {
  std::string codec = info.param.codec;
  std::ranges::replace_if(
      codec, [](char c) { return c == ':' || c == '-' || c == '='; }, '_');
  return fmt::format("{}Of{}{}", codec, info.param.members,
                     info.param.kind == ReductionKind::kReduce   ? "Reduce"
                     : info.param.kind == ReductionKind::kGather ? "Gather"
                                                                 : "Collect");
}

}  // namespace isthmus::testing_support
