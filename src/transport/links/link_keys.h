// SPDX-License-Identifier: Apache-2.0
// Keys of the links between members: a Curve25519 pair a member, written as in ZeroMQ in 40
// characters of Z85 (https://rfc.zeromq.org/spec/32). The public half is in the configuration of
// all members, the secret half in a file that only its owner may read. Pure, except for the files;
// any thread. Messages never contain a secret, nor text that could be one.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace isthmus {

inline constexpr std::size_t kKeyBytes = 32;
inline constexpr std::size_t kKeyCharacters = 40;

/// Both halves in Z85. The destructor wipes the secret's memory.
struct LinkKeys {
  ~LinkKeys();
  std::string secret;
  std::string public_key;
};

/// Z85 of `bytes`, whose number is a multiple of 4.
[[nodiscard]] std::string write_z85(std::span<const std::uint8_t> bytes);
/// Fills `bytes`. RETURNS: false when `text` is not Z85 of exactly that many.
[[nodiscard]] bool read_z85(std::string_view text, std::span<std::uint8_t> bytes);

/// A fresh pair. THROWS: SystemError when the system gives no random numbers.
[[nodiscard]] LinkKeys make_link_keys();
/// The public half. THROWS: ConfigError for an invalid key.
[[nodiscard]] std::string public_of(std::string_view secret);
/// THROWS: ConfigError for an invalid key. `whose`: the words before the colon of the message.
void check_public_key(std::string_view text, std::string_view whose = "key");
/// How messages name a key: its first 8 characters.
[[nodiscard]] std::string key_label(std::string_view public_key);

/// Writes a key file (0600), never over an existing one. THROWS: SystemError.
void write_secret_key(const std::filesystem::path& path, const LinkKeys& keys);
/// THROWS: SystemError when the file is missing or others may read it; ConfigError when it is no
/// key file.
[[nodiscard]] LinkKeys read_secret_key(const std::filesystem::path& path);

/// A proof that only the owners of two key pairs can compute: BLAKE2b of `message`, keyed with the
/// crypto_box secret of one's secret key and the other's public key. The same at both ends.
using KeyProof = std::array<std::uint8_t, 32>;
/// The shared secret of crypto_box; wiped by the destructor.
struct SharedKey {
  SharedKey() = default;
  SharedKey(const SharedKey&) = default;
  SharedKey& operator=(const SharedKey&) = default;
  ~SharedKey();
  std::array<std::uint8_t, 32> bytes{};
};
/// THROWS: ConfigError when `other` is no valid public key for a shared secret.
[[nodiscard]] SharedKey share_key(const LinkKeys& own, std::string_view other);
[[nodiscard]] KeyProof prove_with(const SharedKey& shared, std::span<const std::byte> message);
/// crypto_auth of `message` with `secret` (40 characters of Z85); only a holder of the secret can
/// compute it. THROWS: ConfigError for an invalid secret.
[[nodiscard]] KeyProof authenticate(std::string_view secret, std::span<const std::byte> message);
/// The pair derived from 32 bytes; deterministic.
[[nodiscard]] LinkKeys keys_from_seed(const KeyProof& seed);
/// Letters, digits, - and _, without padding (RFC 4648 section 5).
[[nodiscard]] std::string write_base64(std::span<const std::byte> bytes);
/// RETURNS: nothing when `text` is not base64 of at most `most` bytes.
[[nodiscard]] std::optional<std::vector<std::byte>> read_base64(std::string_view text,
                                                                std::size_t most);
void wipe_secret(KeyProof& secret);
/// Compares in constant time.
[[nodiscard]] bool same_proof(const KeyProof& a, const KeyProof& b);

}  // namespace isthmus
