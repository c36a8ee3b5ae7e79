// SPDX-License-Identifier: Apache-2.0
#include "quant/codecs/cosine_transform.h"

#include <algorithm>
#include <array>

#include "quant/math/cosine_math.h"

namespace isthmus {
namespace {

constexpr std::size_t kSide = kCosineSide;

// cos(pi j / 128) for j = 0 .. 64, to nearest (computed with 60 digits); literals, because the last
// bit of a library's cosine is its own affair.
constexpr std::array<float, 65> kCosines = {
    0x1p+0f,        0x1.ffd886p-1f, 0x1.ff621ep-1f, 0x1.fe9cdap-1f, 0x1.fd88dap-1f,
    0x1.fc2648p-1f, 0x1.fa7558p-1f, 0x1.f8765p-1f,  0x1.f6297cp-1f, 0x1.f38f3ap-1f,
    0x1.f0a7fp-1f,  0x1.ed740ep-1f, 0x1.e9f416p-1f, 0x1.e6288ep-1f, 0x1.e2121p-1f,
    0x1.ddb13cp-1f, 0x1.d906bcp-1f, 0x1.d4134ep-1f, 0x1.ced7bp-1f,  0x1.c954b2p-1f,
    0x1.c38b3p-1f,  0x1.bd7c0ap-1f, 0x1.b72834p-1f, 0x1.b090a6p-1f, 0x1.a9b662p-1f,
    0x1.a29a7ap-1f, 0x1.9b3e04p-1f, 0x1.93a224p-1f, 0x1.8bc806p-1f, 0x1.83b0ep-1f,
    0x1.7b5df2p-1f, 0x1.72d084p-1f, 0x1.6a09e6p-1f, 0x1.610b76p-1f, 0x1.57d694p-1f,
    0x1.4e6cacp-1f, 0x1.44cf32p-1f, 0x1.3affa2p-1f, 0x1.30ff8p-1f,  0x1.26d054p-1f,
    0x1.1c73b4p-1f, 0x1.11eb36p-1f, 0x1.07387ap-1f, 0x1.f8ba4ep-2f, 0x1.e2b5d4p-2f,
    0x1.cc66eap-2f, 0x1.b5d1p-2f,   0x1.9ef794p-2f, 0x1.87de2ap-2f, 0x1.708854p-2f,
    0x1.58f9a8p-2f, 0x1.4135cap-2f, 0x1.294062p-2f, 0x1.111d26p-2f, 0x1.f19f98p-3f,
    0x1.c0b826p-3f, 0x1.8f8b84p-3f, 0x1.5e2144p-3f, 0x1.2c8106p-3f, 0x1.f564e6p-4f,
    0x1.917a6cp-4f, 0x1.2d520ap-4f, 0x1.91f66p-5f,  0x1.92156p-6f,  0};

constexpr float cosine(std::size_t j) {  // cos(pi j / 128)
  j %= 256;
  const std::size_t half = j > 128 ? 256 - j : j;
  return half > 64 ? -kCosines[128 - half] : kCosines[half];
}

using Matrix = std::array<std::array<float, kSide>, kSide>;

// Row u: sqrt(2/64) cos(pi (2 i + 1) u / 128), and 1/8 for u = 0: 1 / cos(pi / 4) is sqrt(2).
constexpr Matrix make_forward() {
  constexpr float kRow = 0x1.6a09e6p-3f;  // sqrt(2) / 8
  Matrix rows{};
  for (std::size_t u = 0; u < kSide; ++u) {
    for (std::size_t i = 0; i < kSide; ++i) {
      rows[u][i] = u == 0 ? 0.125f : kRow * cosine((2 * i + 1) * u);
    }
  }
  return rows;
}
constexpr Matrix transposed(const Matrix& matrix) {
  Matrix rows{};
  for (std::size_t u = 0; u < kSide; ++u) {
    for (std::size_t i = 0; i < kSide; ++i) rows[i][u] = matrix[u][i];
  }
  return rows;
}
constexpr std::array<Matrix, 2> kMatrices = {make_forward(), transposed(make_forward())};
constexpr const Matrix& kForward = kMatrices[0];
constexpr const Matrix& kBackward = kMatrices[1];

// out[u] = sum_i matrix[u][i] in[i] for a row; in order of i, from zero. `columns` is the matrix by
// columns, so that the inner loop runs over results and stays in order for each.
void transform_row(const Matrix& columns, const float* in, float* out) {
  std::array<float, kSide> sum{};
  for (std::size_t i = 0; i < kSide; ++i) {
    for (std::size_t u = 0; u < kSide; ++u) sum[u] += columns[i][u] * in[i];
  }
  std::ranges::copy(sum, out);
}
// The same down the columns of a whole tile.
void transform_columns(const Matrix& rows, const float* in, float* out) {
  for (std::size_t u = 0; u < kSide; ++u) {
    std::array<float, kSide> sum{};
    for (std::size_t i = 0; i < kSide; ++i) {
      for (std::size_t c = 0; c < kSide; ++c) sum[c] += rows[u][i] * in[i * kSide + c];
    }
    std::ranges::copy(sum, out + u * kSide);
  }
}

void apply(const Matrix& rows, const Matrix& columns, const float* in, std::size_t n, float* out) {
  std::array<float, kTileValues> half;
  const std::size_t full = n / kSide * kSide;
  float* const after_rows = n == kTileValues ? half.data() : out;
  for (std::size_t r = 0; r < full; r += kSide) transform_row(columns, in + r, after_rows + r);
  if (n == kTileValues) {
    transform_columns(rows, half.data(), out);
  } else {
    std::copy(in + full, in + n, out + full);
  }
}

}  // namespace

void cosine_transform(std::span<const float> in, std::span<float> out) {
  std::array<float, kTileValues> guarded;
  for (std::size_t i = 0; i < in.size(); ++i) guarded[i] = cosine_guarded(in[i]);
  apply(kForward, kBackward, guarded.data(), in.size(), out.data());
  for (float& value : out) value = with_one_nan(value);
}

void inverse_cosine_transform(std::span<const float> in, std::span<float> out) {
  apply(kBackward, kForward, in.data(), in.size(), out.data());
  for (float& value : out) value = cosine_unguarded(value);
}

std::span<const float> cosine_matrices() { return {kMatrices[0][0].data(), 2 * kTileValues}; }

}  // namespace isthmus
