// SPDX-License-Identifier: Apache-2.0
// Fibers: stacks of their own between which one thread changes. Threads of an emulated block change
// at each exchange of their warp, so the change is most of what an emulated kernel does.
#pragma once

#include <cstddef>
#include <memory>
#include <span>

namespace isthmus::cuda::emulated {

/// Where a fiber goes on: its stack and registers. Of the thread itself, once it has changed away.
struct FiberPlace {
  void* stack_pointer = nullptr;     // x86-64: the registers are on the stack
  std::shared_ptr<void> place = {};  // elsewhere: a ucontext_t
};

/// A fiber that runs `main`, which never returns, once it is changed to. Borrows the stack.
[[nodiscard]] FiberPlace new_fiber(std::span<std::byte> stack, void (*main)());

/// Leaves `from`, goes on at `to`; returns once somebody changes to `from`.
void change_fiber(FiberPlace& from, const FiberPlace& to);

}  // namespace isthmus::cuda::emulated
