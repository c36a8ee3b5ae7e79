// SPDX-License-Identifier: Apache-2.0
// Whether a CUDA device computes what it should before a run is given to it: a device of a kind
// that the kernels have not been run on may refuse them, or worse.
#pragma once

#include <string>

#include "inner/loop/language_model_loop.h"

namespace isthmus {

/// Trains a tiny model with the heads, attention, precision and optimizer of `run` for two steps on
/// the calling thread's device and on the CPU; well below a second on a device. Compared are each
/// tensor's gradient, losses, gradient norms and what the steps have changed in the weights.
/// RETURNS: what went wrong, and on which side, or which results differ by more than rounding;
/// empty where they agree.
[[nodiscard]] std::string device_self_check(const LanguageModelOptions& run);

}  // namespace isthmus
