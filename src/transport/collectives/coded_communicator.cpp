// SPDX-License-Identifier: Apache-2.0
#include "transport/collectives/coded_communicator.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <string>
#include <vector>

#include "isthmus/errors.h"
#include "transport/collectives/communicator_call.h"

namespace isthmus {
namespace {

std::span<const float> floats(ConstValues values) {
  return {static_cast<const float*>(values.data), static_cast<std::size_t>(values.count)};
}
std::span<float> floats(Values values) {
  return {static_cast<float*>(values.data), static_cast<std::size_t>(values.count)};
}

ConstValues bytes_of(std::span<const std::byte> bytes) {
  return {bytes.data(), static_cast<std::int64_t>(bytes.size()), Dtype::kU8};
}
Values bytes_of(std::span<std::byte> bytes) {
  return {bytes.data(), static_cast<std::int64_t>(bytes.size()), Dtype::kU8};
}

class CodedCommunicator final : public Communicator {
 public:
  CodedCommunicator(std::unique_ptr<Communicator> plain, const Codec& codec)
      : owned_(std::move(plain)), plain_(*owned_), codec_(codec) {}
  /// Over a communicator that the caller owns.
  CodedCommunicator(Communicator& plain, const Codec& codec) : plain_(plain), codec_(codec) {}

  [[nodiscard]] int rank() const override { return plain_.rank(); }
  [[nodiscard]] int size() const override { return plain_.size(); }
  [[nodiscard]] std::string_view backend() const override { return plain_.backend(); }

  void all_reduce(Values values, Reduce reduce) override {
    if (values.dtype != Dtype::kF32 || reduce != Reduce::kSum) {
      plain_.all_reduce(values, reduce);
      return;
    }
    const Encoded own = encode(codec_, floats(values));
    const std::vector<std::int64_t> counts(static_cast<std::size_t>(size()),
                                           static_cast<std::int64_t>(own.bytes.size()));
    std::vector<std::byte> all(own.bytes.size() * counts.size());
    plain_.all_gather(bytes_of(std::span(own.bytes)), counts, bytes_of(std::span(all)));
    sum_in_rank_order(all, own.bytes.size(), floats(values));
  }

  void reduce_scatter(ConstValues input, std::span<const std::int64_t> counts, Values output,
                      Reduce reduce) override {
    if (input.dtype != Dtype::kF32 || reduce != Reduce::kSum) {
      plain_.reduce_scatter(input, counts, output, reduce);
      return;
    }
    std::vector<std::byte> codes;
    std::vector<std::int64_t> sizes;
    std::size_t begin = 0;
    for (const std::int64_t count : counts) {
      const auto size = static_cast<std::size_t>(count);
      const Encoded share = encode(codec_, floats(input).subspan(begin, size));
      codes.insert(codes.end(), share.bytes.begin(), share.bytes.end());
      sizes.push_back(static_cast<std::int64_t>(share.bytes.size()));
      begin += size;
    }
    const std::size_t own = encoded_bytes(codec_, floats(output).size());
    const std::vector<std::int64_t> received(counts.size(), static_cast<std::int64_t>(own));
    std::vector<std::byte> all(own * counts.size());
    plain_.all_to_all(bytes_of(std::span<const std::byte>(codes)), sizes, bytes_of(std::span(all)),
                      received, size() * total(sizes));
    sum_in_rank_order(all, own, floats(output));
  }

  void all_gather(ConstValues input, std::span<const std::int64_t> counts, Values output) override {
    plain_.all_gather(input, counts, output);
  }
  void broadcast(Values values, int root) override { plain_.broadcast(values, root); }
  void all_to_all(ConstValues input, std::span<const std::int64_t> send_counts, Values output,
                  std::span<const std::int64_t> receive_counts, std::int64_t of_all) override {
    plain_.all_to_all(input, send_counts, output, receive_counts, of_all);
  }

  void send(ConstValues values, int to, int tag) override {
    if (values.dtype != Dtype::kF32) {
      plain_.send(values, to, tag);
      return;
    }
    const Encoded encoded = encode(codec_, floats(values));
    plain_.send(bytes_of(std::span(encoded.bytes)), to, tag);
  }
  void receive(Values values, int from, int tag) override {
    if (values.dtype != Dtype::kF32) {
      plain_.receive(values, from, tag);
      return;
    }
    std::vector<std::byte> bytes(encoded_bytes(codec_, floats(values).size()));
    plain_.receive(bytes_of(std::span(bytes)), from, tag);
    check(decode(codec_, bytes, floats(values)));
  }

  void barrier() override { plain_.barrier(); }
  [[nodiscard]] std::unique_ptr<Work> start(std::function<void(Communicator&)> operation) override {
    return plain_.start([&codec = codec_, operation = std::move(operation)](Communicator& plain) {
      CodedCommunicator coded(plain, codec);
      operation(coded);
    });
  }
  [[nodiscard]] std::unique_ptr<Communicator> split(int color, int key) override {
    return make_coded_communicator(plain_.split(color, key), codec_);
  }
  void abort(const std::string& cause) noexcept override { plain_.abort(cause); }
  [[nodiscard]] std::string end_cause() override { return plain_.end_cause(); }

 private:
  void check(const Expected<void, DecodeError>& decoded) const {
    if (decoded) return;
    const std::string cause = fmt::format(
        "what a rank sent is no {} ({}): the run has diverged; lower inner.lr or set inner.clip",
        codec_.name(), decoded.error().what);
    plain_.abort(cause);
    throw RunError(cause);
  }

  void sum_in_rank_order(std::span<const std::byte> codes, std::size_t each,
                         std::span<float> sum) const {
    check(decode(codec_, codes.first(each), sum));
    for (int r = 1; r < size(); ++r) {
      check(decode_add(codec_, codes.subspan(static_cast<std::size_t>(r) * each, each), sum));
    }
  }

  std::unique_ptr<Communicator> owned_;  // may be null
  Communicator& plain_;
  const Codec& codec_;
};

}  // namespace

std::unique_ptr<Communicator> make_coded_communicator(std::unique_ptr<Communicator> plain,
                                                      const Codec& codec) {
  if (codec.lossless() || plain->size() == 1) return plain;
  return std::make_unique<CodedCommunicator>(std::move(plain), codec);
}

}  // namespace isthmus
