// SPDX-License-Identifier: Apache-2.0
// Every method whose workers share their outer state, in several settings, over a toy loop.
#pragma once

#include <cstdint>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "isthmus/outer.h"
#include "outer/adam_loop.h"
#include "outer/toy_loops.h"

namespace isthmus::testing_support {

/// Steps: of JoiningTest, which says what they are for.
struct MethodCase {
  std::string name;
  std::string method;
  OuterOptions outer;
  std::int64_t from = 7;   // J
  std::int64_t last = 12;  // K
  std::int64_t lag = 0;    // most steps from a send to its apply
  bool partial = true;     // K lies within a window

  [[nodiscard]] bool slips() const { return outer.late == LateRound::kSlip; }
};
inline std::ostream& operator<<(std::ostream& out, const MethodCase& each) {
  return out << each.name;
}

inline std::unique_ptr<InnerLoop> make_method_loop(const MethodCase& setting, int worker) {
  if (setting.method.find("adam") != std::string::npos) {
    return std::make_unique<AdamLoop>(AdamLoop::Options{.dead = 10, .worker = worker});
  }
  return std::make_unique<QuadraticLoop>(
      QuadraticLoop::Options{.tensors = {{0, 1500}, {1, 4200}, {2, 33}, {kNoLayer, 77}, {3, 1000}},
                             .start = 1,
                             .center = 0.1f * static_cast<float>(worker),
                             .noise = 0.3f,
                             .worker = worker,
                             .tokens = 10 + worker});
}

inline OuterOptions every(std::int64_t H,
                          const std::string& codec = "") {  // NOLINT: the paper's name
  OuterOptions outer;
  outer.H = H;
  outer.codec = codec;
  return outer;
}

inline OuterOptions streaming(std::int64_t overlap, const std::string& codec) {
  OuterOptions outer = every(6, codec);
  outer.fragments = 2;
  outer.overlap = overlap;
  return outer;
}

inline std::vector<MethodCase> shared_method_cases() {
  OuterOptions delayed_nesterov = every(5);
  delayed_nesterov.momentum_every = 2;
  OuterOptions reduced = every(5, "bf16");
  reduced.exchange = ReductionKind::kReduce;
  OuterOptions gap_aware = every(5, "int8:256");
  gap_aware.momentum = 0.5;
  gap_aware.staleness_penalty = StalenessPenalty::kGapAware;
  OuterOptions stay = streaming(4, "int4:ef");
  stay.carry = LostContribution::kStay;
  OuterOptions rollback = streaming(2, "fp16");
  rollback.carry = LostContribution::kRollback;
  OuterOptions slip = streaming(1, "int4:ef");
  slip.late = LateRound::kSlip;
  OuterOptions ramped = every(5, "lm2:ef");
  ramped.lr_ramp = {.warmup = 8, .decay = 4, .floor = 0.1};
  ramped.momentum_ramp.warmup = 11;
  ramped.run_steps = 20;
  OuterOptions spsa;
  spsa.spsa = {.eps = 1e-2, .samples = 2, .weight_decay = 1e-3, .run_key = 5};
  OuterOptions one_bit;
  one_bit.one_bit_adam.freeze = 9;
  OuterOptions zero_one;
  zero_one.zero_one_adam = {.var_freeze_step = 9,
                            .var_update_scaler = 2,
                            .local_step_scaler = 1,
                            .local_step_clipper = 4};
  return {
      {.name = "Ddp", .method = "ddp", .partial = false},
      {.name = "DdpFeedback", .method = "ddp", .outer = every(1, "int8:ef"), .partial = false},
      {.name = "LocalSgd", .method = "localsgd", .outer = every(5)},
      {.name = "DiLoCo", .method = "diloco", .outer = every(5)},
      {.name = "DiLoCoAtASync",
       .method = "diloco",
       .outer = every(5),
       .last = 15,
       .partial = false},
      {.name = "DiLoCoFeedback", .method = "diloco", .outer = every(5, "int4:ef")},
      {.name = "DiLoCoSparse", .method = "diloco", .outer = every(5, "topk:64:ef")},
      {.name = "DiLoCoReduced", .method = "diloco", .outer = reduced},
      {.name = "DiLoCoDelayedNesterov", .method = "diloco", .outer = delayed_nesterov},
      {.name = "Streaming", .method = "streaming-diloco", .outer = streaming(4, "fp32"), .lag = 4},
      {.name = "StreamingFeedbackStay", .method = "streaming-diloco", .outer = stay, .lag = 4},
      {.name = "StreamingRollback", .method = "streaming-diloco", .outer = rollback, .lag = 2},
      {.name = "StreamingSlip", .method = "streaming-diloco", .outer = slip, .lag = 6},
      {.name = "MuLoCoTwoBits", .method = "muloco", .outer = ramped},
      {.name = "Delayed", .method = "delayed", .outer = every(5), .lag = 5},
      {.name = "DelayedFeedback", .method = "delayed", .outer = every(5, "int8:ef"), .lag = 5},
      {.name = "DelayedAtASync",
       .method = "delayed",
       .outer = every(5),
       .last = 10,
       .lag = 5,
       .partial = false},
      {.name = "Co2", .method = "co2", .outer = gap_aware, .lag = 5},
      {.name = "SparseLoCo", .method = "sparseloco", .outer = every(5)},
      {.name = "OneBitAdamWarm",
       .method = "1bit-adam",
       .outer = one_bit,
       .from = 3,
       .last = 6,
       .partial = false},
      {.name = "OneBitAdamAcross", .method = "1bit-adam", .outer = one_bit, .partial = false},
      {.name = "OneBitAdamFrozen",
       .method = "1bit-adam",
       .outer = one_bit,
       .from = 12,
       .last = 15,
       .partial = false},
      {.name = "ZeroOneAdamFirst",
       .method = "01-adam",
       .outer = zero_one,
       .from = 3,
       .last = 6,
       .partial = false},
      {.name = "ZeroOneAdamAcross", .method = "01-adam", .outer = zero_one, .last = 14},
      {.name = "ZeroOneAdamLocal", .method = "01-adam", .outer = zero_one, .from = 14, .last = 18},
      {.name = "Spsa", .method = "spsa", .outer = spsa, .from = 60, .last = 66, .partial = false},
  };
}

}  // namespace isthmus::testing_support
