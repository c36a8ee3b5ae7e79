// SPDX-License-Identifier: Apache-2.0
// Handles of frames (header and payload). A frame is immutable, shared by the sender, which may
// have to repeat it, and by every receiver's queue. Its store decides where its bytes lie: in
// separate memory, in the message of a network library that received them, or in pieces that are
// joined when they are sent, so that no byte is copied between two of our buffers. Any thread.
#pragma once

#include <cstddef>
#include <cstring>
#include <memory>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

namespace isthmus {

/// The bytes of one frame.
class FrameStore {
 public:
  FrameStore() = default;
  virtual ~FrameStore() = default;
  FrameStore(const FrameStore&) = delete;
  FrameStore& operator=(const FrameStore&) = delete;

  [[nodiscard]] virtual std::size_t size() const = 0;
  /// All bytes, contiguous; the same span in every call. The first call joins pieces, which stay
  /// joined.
  [[nodiscard]] virtual std::span<const std::byte> bytes() const = 0;
  /// `count` bytes from `first` on. Joins nothing if they lie in one piece.
  [[nodiscard]] virtual std::span<const std::byte> range(std::size_t first,
                                                         std::size_t count) const {
    return bytes().subspan(first, count);
  }
  /// True if `copy_to` avoids joining pieces.
  [[nodiscard]] virtual bool in_pieces() const { return false; }
  /// REQUIRES: out.size() == size().
  virtual void copy_to(std::span<std::byte> out) const {
    if (!out.empty()) std::memcpy(out.data(), bytes().data(), out.size());
  }

  [[nodiscard]] bool empty() const { return size() == 0; }
  [[nodiscard]] const std::byte* data() const { return bytes().data(); }
};

class FrameBytes {
 public:
  FrameBytes() = default;
  FrameBytes(std::nullptr_t) {}  // NOLINT(google-explicit-constructor)
  /// The store's co-owners are the copies of this handle.
  explicit FrameBytes(std::shared_ptr<const FrameStore> store) : store_(std::move(store)) {}
  /// Existing bytes; null: no frame.
  // NOLINTBEGIN(google-explicit-constructor)
  template <typename Bytes>
  requires std::is_same_v<std::remove_const_t<Bytes>, std::vector<std::byte>> FrameBytes(
      std::shared_ptr<Bytes> bytes)
      : store_(bytes ? std::make_shared<const Kept>(std::move(bytes)) : nullptr) {}
  // NOLINTEND(google-explicit-constructor)

  void reset() { store_.reset(); }
  explicit operator bool() const { return store_ != nullptr; }
  /// Compares the handles, not the bytes.
  friend bool operator==(const FrameBytes&, const FrameBytes&) = default;
  friend bool operator==(const FrameBytes& frame, std::nullptr_t) {
    return frame.store_ == nullptr;
  }
  const FrameStore* operator->() const { return store_.get(); }
  /// All bytes.
  std::span<const std::byte> operator*() const { return store_->bytes(); }

 private:
  class Kept final : public FrameStore {
   public:
    explicit Kept(std::shared_ptr<const std::vector<std::byte>> bytes) : bytes_(std::move(bytes)) {}
    [[nodiscard]] std::size_t size() const override { return bytes_->size(); }
    [[nodiscard]] std::span<const std::byte> bytes() const override { return *bytes_; }

   private:
    std::shared_ptr<const std::vector<std::byte>> bytes_;  // shared with the frame's creator
  };

  std::shared_ptr<const FrameStore> store_;
};

}  // namespace isthmus
