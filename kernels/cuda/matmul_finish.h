// SPDX-License-Identifier: Apache-2.0
// Epilogues as a separate pass, for shapes for which the library has none.
#pragma once

#include <cstdint>

#include "kernels/bf16.h"
#include "kernels/cuda/device.h"

namespace isthmus::cuda {

using kernels::Bf16;

/// A product (rows, columns), rows ld apart, stored without its epilogue.
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
