// SPDX-License-Identifier: Apache-2.0
// Epilogues as a pass of their own, where the library has none for the shape.
#pragma once

#include <cstdint>

#include "kernels/bf16.h"
#include "kernels/cuda/device.h"

namespace isthmus::cuda {

using kernels::Bf16;

/// A product (rows, columns), rows ld apart, that has been stored without its epilogue.
template <typename T>
struct StoredProduct {
  std::int64_t rows = 0, columns = 0, ld = 0;
  T* c = nullptr;
  T* aux = nullptr;         // rows ld apart
  const T* bias = nullptr;  // (columns,)
};

/// c += bias.
template <typename T>
void finish_bias(Stream& stream, const StoredProduct<T>& product);
/// aux := c + bias, c := gelu(aux).
template <typename T>
void finish_gelu_bias(Stream& stream, const StoredProduct<T>& product);
/// c *= gelu'(aux).
template <typename T>
void finish_gelu_gradient(Stream& stream, const StoredProduct<T>& product);

}  // namespace isthmus::cuda
