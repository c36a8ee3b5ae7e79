// SPDX-License-Identifier: Apache-2.0
#include "core/base/hash.h"

#include <sodium.h>

#include <algorithm>
#include <new>

#include "core/base/check.h"
#include "core/base/hash_xxh3.h"
#include "core/base/storage.h"

namespace isthmus {
namespace {

std::string hex_of(std::span<const std::uint8_t> bytes) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  text.reserve(2 * bytes.size());
  for (const std::uint8_t byte : bytes) {
    text.push_back(kDigits[byte >> 4]);
    text.push_back(kDigits[byte & 15]);
  }
  return text;
}

const std::uint8_t* octets(std::span<const std::byte> bytes) {
  return reinterpret_cast<const std::uint8_t*>(bytes.data());
}

Digest128 canonical(XXH128_hash_t hash) {
  XXH128_canonical_t form;
  XXH128_canonicalFromHash(&form, hash);
  Digest128 digest;
  std::copy(std::begin(form.digest), std::end(form.digest), digest.bytes.begin());
  return digest;
}

}  // namespace

struct Sha256::State {
  crypto_hash_sha256_state sodium;
};

Sha256::Sha256() : state_(std::make_unique<State>()) { crypto_hash_sha256_init(&state_->sodium); }
Sha256::~Sha256() = default;
Sha256::Sha256(Sha256&&) noexcept = default;
Sha256& Sha256::operator=(Sha256&&) noexcept = default;

void Sha256::update(std::span<const std::byte> bytes) {
  ISTHMUS_CHECK(state_ != nullptr);
  crypto_hash_sha256_update(&state_->sodium, octets(bytes), bytes.size());
}

std::string Sha256::hex() {
  ISTHMUS_CHECK(state_ != nullptr);
  std::array<std::uint8_t, crypto_hash_sha256_BYTES> out{};
  crypto_hash_sha256_final(&state_->sodium, out.data());
  state_.reset();
  return hex_of(out);
}

std::string sha256_hex(std::span<const std::byte> bytes) {
  Sha256 hash;
  hash.update(bytes);
  return hash.hex();
}

std::string Digest128::hex() const { return hex_of(bytes); }

Digest128 xxh3_128(std::span<const std::byte> bytes) {
  return canonical(detail::xxh3_whole(bytes));
}

struct Xxh3Stream::State {
  State() : xxh(XXH3_createState()) {
    if (xxh == nullptr) throw std::bad_alloc();
    XXH3_128bits_reset(xxh);
  }
  ~State() { XXH3_freeState(xxh); }
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  XXH3_state_t* xxh;
};

Xxh3Stream::Xxh3Stream() : state_(std::make_unique<State>()) {}
Xxh3Stream::~Xxh3Stream() = default;
Xxh3Stream::Xxh3Stream(Xxh3Stream&&) noexcept = default;
Xxh3Stream& Xxh3Stream::operator=(Xxh3Stream&&) noexcept = default;

void Xxh3Stream::update(std::span<const std::byte> bytes) {
  ISTHMUS_CHECK(state_ != nullptr);
  detail::xxh3_add(*state_->xxh, bytes);
}

Digest128 Xxh3Stream::digest() const {
  ISTHMUS_CHECK(state_ != nullptr);
  return canonical(XXH3_128bits_digest(state_->xxh));
}

}  // namespace isthmus
