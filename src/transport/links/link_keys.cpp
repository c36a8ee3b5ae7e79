// SPDX-License-Identifier: Apache-2.0
#include "transport/links/link_keys.h"

#include <fmt/format.h>
#include <sodium.h>

#include <algorithm>
#include <array>
#include <optional>
#include <system_error>
#include <vector>

#include "core/base/check.h"
#include "core/base/storage.h"
#include "isthmus/errors.h"

namespace isthmus {
namespace {

static_assert(crypto_box_PUBLICKEYBYTES == kKeyBytes && crypto_box_SECRETKEYBYTES == kKeyBytes);

constexpr std::string_view kDigits =
    "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#";
static_assert(kDigits.size() == 85);
constexpr std::string_view kPublicLine = "public-key", kSecretLine = "secret-key";
constexpr std::uintmax_t kMostFileBytes = 4096;

/// Bytes of a key, wiped at the end.
struct KeyBytes {
  KeyBytes() = default;
  KeyBytes(const KeyBytes&) = delete;
  KeyBytes& operator=(const KeyBytes&) = delete;
  ~KeyBytes() { sodium_memzero(bytes.data(), bytes.size()); }
  std::array<std::uint8_t, kKeyBytes> bytes{};
};

void wipe(std::string& text) { sodium_memzero(text.data(), text.size()); }

void start_sodium() {
  if (sodium_init() < 0) {
    throw SystemError("libsodium cannot start: the system gives no random numbers");
  }
}

/// The value of a line `name = "value"`, or nothing.
std::optional<std::string_view> value_of(std::string_view line, std::string_view name) {
  if (!line.starts_with(name)) return std::nullopt;
  line.remove_prefix(name.size());
  const auto skip_spaces = [&line] {
    line.remove_prefix(std::min(line.find_first_not_of(" \t"), line.size()));
  };
  skip_spaces();
  if (!line.starts_with('=')) return std::nullopt;
  line.remove_prefix(1);
  skip_spaces();
  if (line.size() < 2 || line.front() != '"' || line.back() != '"') return std::nullopt;
  return line.substr(1, line.size() - 2);
}

[[noreturn]] void no_key_file(const std::filesystem::path& path, const std::string& why) {
  throw ConfigError(
      fmt::format("{}: {}; name the file that `isthmus keygen` wrote", path.string(), why));
}

LinkKeys parse_key_file(const std::filesystem::path& path, std::string_view text) {
  std::optional<std::string_view> secret, public_key;
  int number = 0;
  for (std::size_t begin = 0; begin < text.size(); ++number) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    std::string_view line = text.substr(begin, end - begin);
    begin = end + 1;
    line.remove_prefix(std::min(line.find_first_not_of(" \t"), line.size()));
    line = line.substr(0, line.find_last_not_of(" \t\r") + 1);  // npos + 1: nothing
    KeyBytes bare;  // looked for first: # is a digit of Z85 too
    if (read_z85(line, bare.bytes)) {
      no_key_file(path,
                  "holds a bare key, as a public key is written in a configuration, and no "
                  "secret key");
    }
    if (line.empty() || line.starts_with('#')) continue;
    if (const auto value = value_of(line, kPublicLine); value && !public_key) {
      public_key = value;
    } else if (const auto other = value_of(line, kSecretLine); other && !secret) {
      secret = other;
    } else {
      no_key_file(path, fmt::format("line {} is none of a key file", number + 1));
    }
  }
  if (!secret) {
    no_key_file(path, public_key ? "holds a public key and no secret one" : "holds no key");
  }
  KeyBytes bytes;
  if (!read_z85(*secret, bytes.bytes)) {
    no_key_file(path, fmt::format("its secret key has {} characters and is no Z85 of {} bytes",
                                  secret->size(), kKeyBytes));
  }
  if (secret == public_key) {
    no_key_file(path, "holds the public key where the secret one belongs");
  }
  LinkKeys keys{.secret = std::string(*secret), .public_key = public_of(*secret)};
  if (public_key && *public_key != keys.public_key) {
    no_key_file(path, "its public key does not belong to its secret one");
  }
  return keys;
}

}  // namespace

LinkKeys::~LinkKeys() { wipe(secret); }

std::string write_z85(std::span<const std::uint8_t> bytes) {
  ISTHMUS_CHECK(bytes.size() % 4 == 0, bytes.size());
  std::string text;
  text.reserve(bytes.size() / 4 * 5);
  for (std::size_t i = 0; i < bytes.size(); i += 4) {
    const std::uint32_t word = static_cast<std::uint32_t>(bytes[i]) << 24 |
                               static_cast<std::uint32_t>(bytes[i + 1]) << 16 |
                               static_cast<std::uint32_t>(bytes[i + 2]) << 8 | bytes[i + 3];
    for (std::uint32_t divisor = 85 * 85 * 85 * 85; divisor > 0; divisor /= 85) {
      text += kDigits[word / divisor % 85];
    }
  }
  return text;
}

bool read_z85(std::string_view text, std::span<std::uint8_t> bytes) {
  if (bytes.size() % 4 != 0 || text.size() != bytes.size() / 4 * 5) return false;
  for (std::size_t i = 0; i < bytes.size(); i += 4) {
    std::uint64_t word = 0;
    for (const char c : text.substr(i / 4 * 5, 5)) {
      const std::size_t digit = kDigits.find(c);
      if (digit == std::string_view::npos) return false;
      word = word * 85 + digit;
    }
    if (word > 0xffffffff) return false;
    for (std::size_t k = 0; k < 4; ++k) {
      bytes[i + k] = static_cast<std::uint8_t>(word >> (24 - 8 * k));
    }
  }
  return true;
}

LinkKeys make_link_keys() {
  start_sodium();
  KeyBytes secret, public_key;
  crypto_box_keypair(public_key.bytes.data(), secret.bytes.data());
  return {.secret = write_z85(secret.bytes), .public_key = write_z85(public_key.bytes)};
}

std::string public_of(std::string_view secret) {
  KeyBytes bytes, public_key;
  if (!read_z85(secret, bytes.bytes)) {
    throw ConfigError(
        fmt::format("a secret key of {} characters: must be {} of Z85, as in a file "
                    "of `isthmus keygen`",
                    secret.size(), kKeyCharacters));
  }
  crypto_scalarmult_base(public_key.bytes.data(), bytes.bytes.data());
  return write_z85(public_key.bytes);
}

void check_public_key(std::string_view text, std::string_view whose) {
  constexpr std::string_view kRemedy = "copy it from what `isthmus keygen` printed";
  if (text.size() != kKeyCharacters) {
    throw ConfigError(fmt::format("{}: has {} characters, a public key has {}; {}", whose,
                                  text.size(), kKeyCharacters, kRemedy));
  }
  if (const std::size_t bad = text.find_first_not_of(kDigits); bad != std::string_view::npos) {
    throw ConfigError(
        fmt::format("{}: character {} belongs to no public key; {}", whose, bad + 1, kRemedy));
  }
  KeyBytes key;
  if (!read_z85(text, key.bytes) || sodium_is_zero(key.bytes.data(), key.bytes.size()) != 0) {
    throw ConfigError(fmt::format("{}: these characters are no public key; {}", whose, kRemedy));
  }
}

std::string key_label(std::string_view public_key) {
  return fmt::format("{}...", public_key.substr(0, 8));
}

void write_secret_key(const std::filesystem::path& path, const LinkKeys& keys) {
  std::string text = fmt::format(
      "# The secret key of one site of an isthmus run, made by `isthmus keygen`. It proves who\n"
      "# the site is: leave it readable by its owner alone, and give it to nobody. The public\n"
      "# key goes into the configuration of all sites.\n"
      "{} = \"{}\"\n{} = \"{}\"\n",
      kPublicLine, keys.public_key, kSecretLine, keys.secret);
  try {
    write_private_file(path, text);
  } catch (...) {
    wipe(text);
    throw;
  }
  wipe(text);
}

LinkKeys read_secret_key(const std::filesystem::path& path) {
  std::error_code error;
  if (!std::filesystem::exists(path, error) && !error) {
    KeyBytes key;
    if (read_z85(path.string(), key.bytes)) {  // not repeated: it may be a secret
      throw ConfigError(
          "a key stands where the path of a key file belongs; name the file that `isthmus "
          "keygen` wrote");
    }
    throw SystemError(fmt::format(
        "{}: no such key file; name the one that `isthmus keygen` wrote, or make one with it",
        path.string()));
  }
  if (std::filesystem::is_regular_file(path, error) &&
      std::filesystem::file_size(path, error) > kMostFileBytes) {
    no_key_file(path, "is too long for a key file");
  }
  std::vector<std::byte> bytes = read_private_file(path);
  const auto wiped = [&bytes] { sodium_memzero(bytes.data(), bytes.size()); };
  try {
    LinkKeys keys = parse_key_file(
        path, std::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
    wiped();
    return keys;
  } catch (...) {
    wiped();
    throw;
  }
}

SharedKey::~SharedKey() { sodium_memzero(bytes.data(), bytes.size()); }

SharedKey share_key(const LinkKeys& own, std::string_view other) {
  KeyBytes secret, public_key;
  SharedKey shared;
  static_assert(crypto_box_BEFORENMBYTES == kKeyBytes);
  if (!read_z85(own.secret, secret.bytes) || !read_z85(other, public_key.bytes) ||
      crypto_box_beforenm(shared.bytes.data(), public_key.bytes.data(), secret.bytes.data()) != 0) {
    throw ConfigError(
        fmt::format("key {}: no secret can be shared with its owner; make another "
                    "pair with `isthmus keygen`",
                    key_label(other)));
  }
  return shared;
}

KeyProof prove_with(const SharedKey& shared, std::span<const std::byte> message) {
  KeyProof proof{};
  (void)crypto_generichash(proof.data(), proof.size(),
                           reinterpret_cast<const unsigned char*>(message.data()), message.size(),
                           shared.bytes.data(), shared.bytes.size());
  return proof;
}

KeyProof authenticate(std::string_view secret, std::span<const std::byte> message) {
  static_assert(crypto_auth_KEYBYTES == kKeyBytes);
  static_assert(crypto_auth_BYTES == std::tuple_size_v<KeyProof>);
  KeyBytes key;
  if (!read_z85(secret, key.bytes)) {
    throw ConfigError("the secret that invitations are made with is damaged");
  }
  KeyProof proof{};
  (void)crypto_auth(proof.data(), reinterpret_cast<const unsigned char*>(message.data()),
                    message.size(), key.bytes.data());
  return proof;
}

LinkKeys keys_from_seed(const KeyProof& seed) {
  static_assert(crypto_box_SEEDBYTES == std::tuple_size_v<KeyProof>);
  start_sodium();
  KeyBytes secret, public_key;
  crypto_box_seed_keypair(public_key.bytes.data(), secret.bytes.data(), seed.data());
  return {.secret = write_z85(secret.bytes), .public_key = write_z85(public_key.bytes)};
}

std::string write_base64(std::span<const std::byte> bytes) {
  constexpr int kVariant = sodium_base64_VARIANT_URLSAFE_NO_PADDING;
  std::string text(sodium_base64_encoded_len(bytes.size(), kVariant), '\0');
  (void)sodium_bin2base64(text.data(), text.size(),
                          reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size(),
                          kVariant);
  text.pop_back();  // the zero at its end
  return text;
}

std::optional<std::vector<std::byte>> read_base64(std::string_view text, std::size_t most) {
  std::vector<std::byte> bytes(most);
  std::size_t size = 0;
  const char* end = nullptr;
  if (sodium_base642bin(reinterpret_cast<unsigned char*>(bytes.data()), bytes.size(), text.data(),
                        text.size(), nullptr, &size, &end,
                        sodium_base64_VARIANT_URLSAFE_NO_PADDING) != 0 ||
      end != text.data() + text.size()) {
    return std::nullopt;
  }
  bytes.resize(size);
  return bytes;
}

void wipe_secret(KeyProof& secret) { sodium_memzero(secret.data(), secret.size()); }

bool same_proof(const KeyProof& a, const KeyProof& b) {
  return sodium_memcmp(a.data(), b.data(), a.size()) == 0;
}

}  // namespace isthmus
