// SPDX-License-Identifier: Apache-2.0
// The result of a round at one member, built part by part: the mean or the collected bytes, the
// contributors, the digest and the encoded form. The builder does not know peers or the order of
// frames (exchange_round.h). Arithmetic: reduction.h. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/base/hash.h"
#include "isthmus/expected.h"
#include "isthmus/transport.h"
#include "transport/exchange/encoded_result.h"
#include "transport/exchange/round_routes.h"

namespace isthmus {

class ResultBuilder {
 public:
  struct Options {
    SyncId id;
    std::shared_ptr<const Codec> codec;             // shared with the contribution's maker
    std::shared_ptr<OwnerResidual> owner_residual;  // shared with the next rounds; may be null
    std::size_t values = 0;                         // contributed
    std::uint64_t run_key = 0;
    bool keeps_encoded = false;
  };
  /// `routes` is shared with the round.
  ResultBuilder(std::shared_ptr<const RoundRoutes> routes, Options options);

  [[nodiscard]] const Codec& codec() const { return *options_.codec; }
  /// Whether the caller passes the frames that the result is decoded from to keep_encoded().
  [[nodiscard]] bool keeps_encoded() const { return !encoded_.empty(); }
  void keep_encoded(std::size_t k, std::vector<FrameBytes> shares) {
    encoded_.keep(k, std::move(shares));
  }

  /// Records the contributors, which must be the same for all parts of a round. RETURNS: false when
  /// an earlier part had other contributors.
  [[nodiscard]] bool agree_on(const std::vector<bool>& contributes);
  [[nodiscard]] const std::vector<bool>& contributes() const { return contributes_; }

  /// Sets part k to the mean of `inputs`, in their order.
  [[nodiscard]] Expected<void, ReduceError> reduce(std::size_t k,
                                                   std::span<const WeightedBytes> inputs);
  /// Sets part k to the contributors' bytes; `inputs`: by member.
  void collect(std::size_t k, std::span<const FrameBytes> inputs);
  /// Sets part k from the bytes that its owner encoded. RETURNS: the reason if the bytes do not
  /// decode.
  [[nodiscard]] Expected<void, std::string> decode_part(std::size_t k,
                                                        std::span<const std::byte> bytes);
  /// Encodes part k's values with the random numbers of `worker`.
  void encode_part(std::size_t k, std::uint32_t worker, std::span<std::byte> out);
  /// Encodes part k's mean as its owner, and replaces the values by the decoded bytes. RETURNS: the
  /// reason if the bytes do not decode.
  [[nodiscard]] Expected<void, std::string> encode_mean(std::size_t k, std::span<std::byte> out);
  /// Part k's values are final.
  void finish(std::size_t k);

  [[nodiscard]] bool complete() const { return open_parts_ == 0; }
  [[nodiscard]] bool done(std::size_t k) const { return done_[k]; }
  /// XXH3-128 of the contributor bits and the result's fp32 bytes (a collect: its bytes). REQUIRES:
  /// complete().
  [[nodiscard]] Digest128 digest() const;
  /// The result, moved out, without byte counts. REQUIRES: complete(), called once.
  [[nodiscard]] Reduced take();
  [[nodiscard]] EncodedResult take_encoded() { return std::move(encoded_); }

 private:
  void reserve_encoded();
  [[nodiscard]] std::span<float> values_of(const Part& part);
  void encode_values(const Part& part, std::uint32_t worker, std::span<float> residual,
                     std::span<std::byte> out);
  [[nodiscard]] std::span<float> owner_residual(const Part& part);
  void begin_digest();

  std::shared_ptr<const RoundRoutes> routes_;
  Options options_;
  std::vector<bool> done_;  // by part
  std::size_t open_parts_;
  std::vector<bool> contributes_;  // by member, once known
  bool contributors_known_ = false;
  std::vector<float> values_;                      // of the mean; empty in a collect
  std::vector<std::vector<std::byte>> collected_;  // by member; in a collect only
  EncodedResult encoded_;
  Xxh3Stream stream_;         // of the digest
  std::size_t digested_ = 0;  // parts in the digest so far
};

}  // namespace isthmus
