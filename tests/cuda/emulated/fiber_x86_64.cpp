// SPDX-License-Identifier: Apache-2.0
// A change is the six registers that a function keeps (System V ABI) and the stack pointer.
// swapcontext would ask the kernel for the signal mask, longjmp guards and cleans up.
#include <cstdint>

#include "cuda/emulated/fiber.h"

asm(R"(
  .text
  .type isthmus_change_stack, @function
isthmus_change_stack:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
  .size isthmus_change_stack, .-isthmus_change_stack
)");
extern "C" void isthmus_change_stack(void** from, void* to);

namespace isthmus::cuda::emulated {

FiberPlace new_fiber(std::span<std::byte> stack, void (*main)()) {
  constexpr int kRegisters = 6;
  // A function is entered with the stack pointer 8 below a multiple of 16.
  const auto top = reinterpret_cast<std::uintptr_t>(stack.data() + stack.size()) / 16 * 16;
  auto* at = reinterpret_cast<std::uintptr_t*>(top);
  *--at = 0;  // where `main` would return to
  *--at = reinterpret_cast<std::uintptr_t>(main);
  for (int i = 0; i < kRegisters; ++i) *--at = 0;
  return {.stack_pointer = at};
}

void change_fiber(FiberPlace& from, const FiberPlace& to) {
  isthmus_change_stack(&from.stack_pointer, to.stack_pointer);
}

}  // namespace isthmus::cuda::emulated
