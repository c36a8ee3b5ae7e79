// SPDX-License-Identifier: Apache-2.0
// bfloat16 as a storage type: the upper half of a float. Arithmetic is in float; kernels convert on
// loads and round on stores.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace isthmus::kernels {

struct Bf16 {
  std::uint16_t bits;

  Bf16() = default;
  /// Rounds to nearest, ties to even; NaN stays NaN.
  explicit constexpr Bf16(float x) : bits(rounded(std::bit_cast<std::uint32_t>(x))) {}
  constexpr operator float() const {  // NOLINT: exact
    return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
  }

 private:
  static constexpr std::uint16_t rounded(std::uint32_t x) {
    const bool nan = (x & 0x7fffffff) > 0x7f800000;
    return static_cast<std::uint16_t>((nan ? x | 0x400000 : x + 0x7fff + ((x >> 16) & 1)) >> 16);
  }
};
static_assert(sizeof(Bf16) == 2);
static_assert(std::is_trivial_v<Bf16>);

/// Type of the arithmetic on values stored as T: T itself, and float for Bf16.
template <typename T>
using RealOf = std::conditional_t<std::is_same_v<T, Bf16>, float, T>;

/// A pointer to an array of Real (const or not) or of Bf16; the type is known at run time. Borrows
/// the array.
template <typename Real>
class Stored {
  using Value = std::remove_const_t<Real>;
  using Narrow = std::conditional_t<std::is_const_v<Real>, const Bf16, Bf16>;

 public:
  constexpr Stored() = default;
  constexpr Stored(std::nullptr_t) {}                    // NOLINT: a pointer
  constexpr Stored(Real* wide) : wide_(wide) {}          // NOLINT
  constexpr Stored(Narrow* narrow) : narrow_(narrow) {}  // NOLINT

  [[nodiscard]] bool is_bf16() const { return narrow_ != nullptr; }
  /// Read only.
  operator Stored<const Real>() const  // NOLINT
      requires(!std::is_const_v<Real>) {
    return narrow_ == nullptr ? Stored<const Real>(wide_) : Stored<const Real>(narrow_);
  }
  bool operator==(std::nullptr_t) const { return wide_ == nullptr && narrow_ == nullptr; }
  [[nodiscard]] Value operator[](std::int64_t i) const {
    return narrow_ == nullptr ? wide_[i] : static_cast<Value>(static_cast<float>(narrow_[i]));
  }
  void set(std::int64_t i, Value x) const {
    if (narrow_ == nullptr) {
      wide_[i] = x;
    } else {
      narrow_[i] = Bf16(static_cast<float>(x));
    }
  }

  /// The array as T. REQUIRES: T = Bf16 if and only if is_bf16().
  template <typename T>
  [[nodiscard]] auto* as() const {
    if constexpr (std::is_same_v<T, Bf16>) {
      return narrow_;
    } else {
      return wide_;
    }
  }
  /// Calls use(pointer) with the array's type.
  template <typename Use>
  decltype(auto) visit(Use&& use) const {
    return narrow_ == nullptr ? use(wide_) : use(narrow_);
  }

 private:
  Real* wide_ = nullptr;
  Narrow* narrow_ = nullptr;
};

}  // namespace isthmus::kernels
