// SPDX-License-Identifier: Apache-2.0
// Checks that a CUDA device computes correctly before a run uses it: a device model on which the
// kernels were never run may reject them, or compute wrong results.
#pragma once

#include <string>

#include "inner/loop/language_model_loop.h"

namespace isthmus {

/// Trains a tiny model with the heads, attention, precision and optimizer of `run` for two steps on
/// the calling thread's device and on the CPU; takes well below a second on a device. Compares each
/// tensor's gradient, losses, gradient norms and the change of the weights. RETURNS: the failure
/// and its side, or the results that differ by more than rounding; empty if they agree.
[[nodiscard]] std::string device_self_check(const LanguageModelOptions& run);

}  // namespace isthmus
