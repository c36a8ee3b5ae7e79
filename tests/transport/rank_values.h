// SPDX-License-Identifier: Apache-2.0
// Values of every dtype as bytes, and the plain loops that collectives are compared with.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "kernels/bf16.h"
#include "transport/collectives/communicator.h"

namespace isthmus::testing_support {

using kernels::Bf16;

/// use(T{}) with the type that holds one value of `dtype`.
template <typename Use>
decltype(auto) with_type(Dtype dtype, Use&& use) {
  switch (dtype) {
    case Dtype::kF32:
      return use(float{});
    case Dtype::kF64:
      return use(double{});
    case Dtype::kBf16:
      return use(Bf16{});
    case Dtype::kU8:
      return use(std::uint8_t{});
    case Dtype::kI32:
      return use(std::int32_t{});
    default:
      return use(std::int64_t{});
  }
}

struct Buffer {
  Dtype dtype = Dtype::kF32;
  std::vector<std::byte> bytes;

  Buffer() = default;
  Buffer(Dtype type, std::int64_t count)
      : dtype(type), bytes(static_cast<std::size_t>(count) * dtype_bytes(type)) {}

  [[nodiscard]] std::int64_t count() const {
    return static_cast<std::int64_t>(bytes.size() / dtype_bytes(dtype));
  }
  [[nodiscard]] Values values() { return part(0, count()); }
  [[nodiscard]] Values part(std::int64_t begin, std::int64_t size) {
    return {bytes.data() + static_cast<std::size_t>(begin) * dtype_bytes(dtype), size, dtype};
  }
  [[nodiscard]] ConstValues constant() const { return constant(0, count()); }
  [[nodiscard]] ConstValues constant(std::int64_t begin, std::int64_t size) const {
    return {bytes.data() + static_cast<std::size_t>(begin) * dtype_bytes(dtype), size, dtype};
  }
  [[nodiscard]] Buffer copy(std::int64_t begin, std::int64_t size) const {
    Buffer out(dtype, size);
    if (size > 0) {
      std::memcpy(out.bytes.data(),
                  bytes.data() + static_cast<std::size_t>(begin) * dtype_bytes(dtype),
                  out.bytes.size());
    }
    return out;
  }
  bool operator==(const Buffer&) const = default;
};

/// Values that no order of summation leaves alone: of both signs and many sizes.
inline Buffer values_of(Dtype dtype, std::int64_t count, int rank, std::uint64_t seed) {
  Buffer out(dtype, count);
  with_type(dtype, [&](auto zero) {
    using T = decltype(zero);
    auto* values = reinterpret_cast<T*>(out.bytes.data());
    std::uint64_t state = seed * 1000003 + static_cast<std::uint64_t>(rank) * 7919 + 1;
    for (std::int64_t i = 0; i < count; ++i) {
      state = state * 6364136223846793005u + 1442695040888963407u;
      const std::uint64_t draw = (state >> 33) ^ (state >> 11);
      if constexpr (std::is_integral_v<T>) {
        values[i] = static_cast<T>(draw);
      } else {
        const double fraction = static_cast<double>(draw & 0xfffff) / 524288.0 - 1.0;
        const double size = static_cast<double>(1u << ((draw >> 20) & 15));
        values[i] = static_cast<T>(static_cast<float>(fraction * size));
      }
    }
  });
  return out;
}

/// Element by element over the ranks 0, 1, ...; floats of 16 bits in float, rounded at the end.
inline Buffer naive_reduction(const std::vector<Buffer>& inputs, Reduce reduce) {
  Buffer out(inputs[0].dtype, inputs[0].count());
  with_type(out.dtype, [&](auto zero) {
    using T = decltype(zero);
    auto* values = reinterpret_cast<T*>(out.bytes.data());
    for (std::int64_t i = 0; i < out.count(); ++i) {
      const auto at = [&](std::size_t rank) {
        return reinterpret_cast<const T*>(inputs[rank].bytes.data())[i];
      };
      if constexpr (std::is_integral_v<T>) {
        std::uint64_t sum = 0;
        T most = at(0);
        for (std::size_t rank = 0; rank < inputs.size(); ++rank) {
          sum += static_cast<std::uint64_t>(at(rank));
          most = at(rank) > most ? at(rank) : most;
        }
        values[i] = reduce == Reduce::kSum ? static_cast<T>(sum) : most;
      } else {
        using Real = kernels::RealOf<T>;
        Real sum = static_cast<Real>(at(0));
        Real most = sum;
        for (std::size_t rank = 1; rank < inputs.size(); ++rank) {
          const Real x = static_cast<Real>(at(rank));
          sum = sum + x;
          most = x > most ? x : most;
        }
        values[i] = static_cast<T>(reduce == Reduce::kSum ? sum : most);
      }
    }
  });
  return out;
}

}  // namespace isthmus::testing_support
