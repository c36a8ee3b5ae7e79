// SPDX-License-Identifier: Apache-2.0
// CRC-32C with the SSE4.2 instruction: eight bytes in three cycles of latency, one a cycle of
// throughput, so three independent streams of kLane bytes run side by side and are joined by
// advancing the first two over the bytes behind them (a linear map, kept as four byte tables). With
// carry-less products of 512 bits long inputs are folded instead, three times as fast: 64 bytes,
// advanced by a whole turn, are two products of each 128 bits, so 16 bytes with the same checksum
// remain of the input in the end.
#include <immintrin.h>

#include <array>
#include <cstring>

#include "core/base/hash.h"

namespace isthmus::detail {
namespace {

constexpr std::size_t kLane = 1024;

using Shift = std::array<std::array<std::uint32_t, 256>, 4>;

// The checksum register after kLane zero bytes is linear in the register before.
Shift make_shift() {
  std::array<std::uint32_t, 32> column{};
  for (int bit = 0; bit < 32; ++bit) {
    std::uint32_t crc = std::uint32_t{1} << bit;
    for (std::size_t step = 0; step < 8 * kLane; ++step) {
      crc = (crc >> 1) ^ ((crc & 1) != 0 ? 0x82F63B78U : 0U);
    }
    column[static_cast<std::size_t>(bit)] = crc;
  }
  Shift shift{};
  for (std::size_t part = 0; part < 4; ++part) {
    for (std::size_t byte = 0; byte < 256; ++byte) {
      std::uint32_t sum = 0;
      for (std::size_t bit = 0; bit < 8; ++bit) {
        if ((byte >> bit & 1) != 0) sum ^= column[8 * part + bit];
      }
      shift[part][byte] = sum;
    }
  }
  return shift;
}

std::uint32_t over_lane(const Shift& shift, std::uint32_t crc) {
  return shift[0][crc & 0xff] ^ shift[1][(crc >> 8) & 0xff] ^ shift[2][(crc >> 16) & 0xff] ^
         shift[3][crc >> 24];
}

// x^(d+32) and x^(d-32) modulo the polynomial, bits reversed, one place up: the factors that
// advance 128 bits by d bits.
struct Fold {
  long long low;
  long long high;
};
constexpr Fold kFold2048{0x0dcb17aa4, 0x0b9e02b86};
constexpr Fold kFold512{0x0740eef02, 0x09e4addf8};
constexpr Fold kFold128{0x0f20c0dfe, 0x14cd00bd6};
constexpr std::size_t kTurn = 256;  // bytes: four registers
constexpr std::size_t kWorthFolding = 1024;

#define ISTHMUS_FOLDS __attribute__((target("avx512f,avx512vl,vpclmulqdq,pclmul,sse4.2")))

ISTHMUS_FOLDS inline __m512i fold(__m512i x, __m512i by, __m512i next) {
  const __m512i low = _mm512_clmulepi64_epi128(x, by, 0x00);
  const __m512i high = _mm512_clmulepi64_epi128(x, by, 0x11);
  return _mm512_ternarylogic_epi64(low, high, next, 0x96);  // the three, added
}
ISTHMUS_FOLDS inline __m128i fold(__m128i x, __m128i by, __m128i next) {
  const __m128i low = _mm_clmulepi64_si128(x, by, 0x00);
  const __m128i high = _mm_clmulepi64_si128(x, by, 0x11);
  return _mm_xor_si128(_mm_xor_si128(low, high), next);
}
ISTHMUS_FOLDS inline __m512i wide(const Fold& by) {
  return _mm512_set_epi64(by.high, by.low, by.high, by.low, by.high, by.low, by.high, by.low);
}

ISTHMUS_FOLDS inline __m512i part(const std::byte* at, std::size_t i) {
  return _mm512_loadu_si512(at + 64 * i);
}

// Whole turns of `bytes`, the checksum register before them in `crc`. RETURNS: the one behind them.
// REQUIRES: one turn at least.
ISTHMUS_FOLDS std::uint32_t folded(std::span<const std::byte> bytes, std::uint32_t crc) {
  const std::byte* at = bytes.data();
  __m512i a = _mm512_xor_si512(part(at, 0),
                               _mm512_zextsi128_si512(_mm_cvtsi32_si128(static_cast<int>(crc))));
  __m512i b = part(at, 1);
  __m512i c = part(at, 2);
  __m512i d = part(at, 3);
  at += kTurn;
  const __m512i turn = wide(kFold2048);
  for (std::size_t left = bytes.size() - kTurn; left >= kTurn; left -= kTurn, at += kTurn) {
    a = fold(a, turn, part(at, 0));
    b = fold(b, turn, part(at, 1));
    c = fold(c, turn, part(at, 2));
    d = fold(d, turn, part(at, 3));
  }
  const __m512i next = wide(kFold512);
  d = fold(fold(fold(a, next, b), next, c), next, d);
  const __m128i lane = _mm_set_epi64x(kFold128.high, kFold128.low);
  alignas(64) std::array<std::uint64_t, 8> words;  // lanes, without an intrinsic that gcc warns of
  _mm512_store_si512(words.data(), d);
  const auto words_of = [&words](std::size_t i) {
    return _mm_set_epi64x(static_cast<long long>(words[2 * i + 1]),
                          static_cast<long long>(words[2 * i]));
  };
  __m128i last = words_of(0);
  for (const std::size_t i : {1, 2, 3}) last = fold(last, lane, words_of(i));
  const std::uint64_t first =
      _mm_crc32_u64(0, static_cast<std::uint64_t>(_mm_extract_epi64(last, 0)));
  return static_cast<std::uint32_t>(
      _mm_crc32_u64(first, static_cast<std::uint64_t>(_mm_extract_epi64(last, 1))));
}

bool can_fold() {
  return __builtin_cpu_supports("avx512f") != 0 && __builtin_cpu_supports("avx512vl") != 0 &&
         __builtin_cpu_supports("vpclmulqdq") != 0 && __builtin_cpu_supports("pclmul") != 0;
}

std::uint64_t word(const std::byte* at) {
  std::uint64_t value = 0;
  std::memcpy(&value, at, sizeof value);
  return value;
}

}  // namespace

bool crc32c_has_hardware() { return __builtin_cpu_supports("sse4.2") != 0; }

std::uint32_t crc32c_hardware(std::span<const std::byte> bytes, std::uint32_t crc) {
  static const bool folds = can_fold();
  if (!folds || bytes.size() < kWorthFolding) return crc32c_lanes(bytes, crc);
  const std::size_t turns = bytes.size() / kTurn * kTurn;
  return crc32c_lanes(bytes.subspan(turns), ~folded(bytes.first(turns), ~crc));
}

__attribute__((target("sse4.2"))) std::uint32_t crc32c_lanes(std::span<const std::byte> bytes,
                                                             std::uint32_t crc) {
  static const Shift shift = make_shift();
  const std::byte* at = bytes.data();
  std::size_t left = bytes.size();
  std::uint64_t a = static_cast<std::uint32_t>(~crc);
  for (; left >= 3 * kLane; left -= 3 * kLane, at += 3 * kLane) {
    std::uint64_t b = 0;
    std::uint64_t c = 0;
    for (std::size_t i = 0; i < kLane; i += 8) {
      a = _mm_crc32_u64(a, word(at + i));
      b = _mm_crc32_u64(b, word(at + kLane + i));
      c = _mm_crc32_u64(c, word(at + 2 * kLane + i));
    }
    a = over_lane(shift, static_cast<std::uint32_t>(a)) ^ b;
    a = over_lane(shift, static_cast<std::uint32_t>(a)) ^ c;
  }
  for (; left >= 8; left -= 8, at += 8) a = _mm_crc32_u64(a, word(at));
  auto tail = static_cast<std::uint32_t>(a);
  for (; left > 0; --left, ++at) tail = _mm_crc32_u8(tail, static_cast<std::uint8_t>(*at));
  return ~tail;
}

}  // namespace isthmus::detail
