// SPDX-License-Identifier: Apache-2.0
// Defaults of the InnerLoop interface: what an implementation leaves out is refused by name.
#include "isthmus/inner_loop.h"

#include <stdexcept>

namespace isthmus {
namespace {

[[noreturn]] void not_offered(const char* what, const char* needed_by) {
  throw std::logic_error(std::string("InnerLoop::") + what +
                         " is not implemented by this inner loop; it is needed by " + needed_by);
}

}  // namespace

InnerStep InnerLoop::gradients(StepIndex, const GradientReady&) {
  not_offered("gradients", "method ddp");
}
std::span<float> InnerLoop::gradient(std::size_t) { not_offered("gradient", "method ddp"); }
double InnerLoop::apply_gradients(StepIndex) { not_offered("apply_gradients", "method ddp"); }
double InnerLoop::loss(const TokenBatch&, const ParameterSource&) {
  not_offered("loss", "evaluation");
}
void InnerLoop::reset_optimizer() { not_offered("reset_optimizer", "optimizer resets"); }
void InnerLoop::save(StateWriter&) const {}
void InnerLoop::load(StateReader&) {}

}  // namespace isthmus
