// SPDX-License-Identifier: Apache-2.0
#include <ucontext.h>

#include "cuda/emulated/fiber.h"

namespace isthmus::cuda::emulated {
namespace {

ucontext_t* context_of(const FiberPlace& place) {
  return static_cast<ucontext_t*>(place.place.get());
}

}  // namespace

FiberPlace new_fiber(std::span<std::byte> stack, void (*main)()) {
  auto context = std::make_shared<ucontext_t>();
  getcontext(context.get());
  context->uc_stack.ss_sp = stack.data();
  context->uc_stack.ss_size = stack.size();
  context->uc_link = nullptr;
  makecontext(context.get(), main, 0);
  return {.place = context};
}

void change_fiber(FiberPlace& from, const FiberPlace& to) {
  if (!from.place) from.place = std::make_shared<ucontext_t>();
  swapcontext(context_of(from), context_of(to));
}

}  // namespace isthmus::cuda::emulated
