// SPDX-License-Identifier: Apache-2.0
// A tap on the wire between two members: who dials its port reaches another one, and all that the
// dialler sends is written down. It passes whole messages of ZMTP on
// (https://rfc.zeromq.org/spec/23), so a test can have one of them said again between two others.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "isthmus/runtime.h"
#include "transport/links/tcp/tcp_socket.h"

namespace isthmus::testing_support {

class RecordingTap {
 public:
  /// Leads to `endpoint`: tcp://127.0.0.1:PORT. Borrows the runtime.
  RecordingTap(Runtime& runtime, const std::string& endpoint)
      : runtime_(runtime),
        target_(std::stoi(endpoint.substr(endpoint.rfind(':') + 1))),
        listener_(TcpSocket::listen_at("127.0.0.1", 0)),
        queue_(runtime.make_wait_queue()) {
    task_ = runtime_.spawn("tap", [this] { pass_on(); });
  }
  ~RecordingTap() {
    stop_.ring();
    task_.reset();
  }
  RecordingTap(const RecordingTap&) = delete;
  RecordingTap& operator=(const RecordingTap&) = delete;

  [[nodiscard]] std::string endpoint() const {
    return "tcp://127.0.0.1:" + std::to_string(listener_.port());
  }
  /// What came over the first connection so far: greeting, handshake, messages.
  [[nodiscard]] std::string recorded() {
    std::string bytes;
    queue_->update([&] { bytes = recorded_; });
    return bytes;
  }
  /// Of the first connection, without security: the messages that have `text` in them.
  [[nodiscard]] std::vector<std::string> messages_with(const std::string& text) {
    std::vector<std::string> found;
    queue_->update([&] {
      for (const std::string& message : messages_) {
        if (message.find(text) != std::string::npos) found.push_back(message);
      }
    });
    return found;
  }
  /// Says this over the first connection once more, with the next message that goes over it.
  void say_again(const std::string& message) {
    queue_->update([&] { again_ = message; });
  }
  /// Changes a bit in the header of the middle DATA of the next row of three or more that goes over
  /// the first connection, without security. RETURNS: how many rows it has changed so far.
  int flip_in_a_row() {
    int rows = 0;
    queue_->update([&] {
      flips_ = true;
      rows = flipped_;
    });
    return rows;
  }

 private:
  struct Way {
    TcpSocket from, to;
    std::string there, back;  // not passed on yet
    std::string partial;      // of a message
    std::string message;      // its parts so far
    std::size_t head = 64;    // of the greeting, to come
    bool first = false;
  };

  void pass_on() {
    while (true) {
      std::vector<Waited> all = {{.descriptor = stop_.descriptor(), .to_read = true},
                                 {.descriptor = listener_.descriptor(), .to_read = true}};
      for (const Way& way : ways_) {
        all.push_back(
            {.descriptor = way.from.descriptor(), .to_read = true, .to_write = !way.back.empty()});
        all.push_back(
            {.descriptor = way.to.descriptor(), .to_read = true, .to_write = !way.there.empty()});
      }
      wait_for_any(all, 60);
      if (all[0].ready) return;
      bool failed = false;
      if (all[1].ready) {
        if (auto from = listener_.accept(failed)) open(*std::move(from));
      }
      for (auto way = ways_.begin(); way != ways_.end();) {
        way = move(*way) ? std::next(way) : ways_.erase(way);
      }
    }
  }
  void open(TcpSocket from) {
    auto to = TcpSocket::connect_to("127.0.0.1", target_, 10, [this] {
      return std::chrono::duration<double>(runtime_.clock().now() - TimePoint{}).count();
    });
    if (!to) return;
    ways_.push_back(
        {.from = std::move(from), .to = std::move(*to), .first = !std::exchange(any_, true)});
  }
  /// RETURNS: false when one end has hung up.
  bool move(Way& way) {
    std::array<char, 65536> buffer;
    const Transfer there = way.from.read_some(buffer);
    take(way, std::string_view(buffer.data(), there.bytes));
    const Transfer back = way.to.read_some(buffer);
    way.back.append(buffer.data(), back.bytes);
    return write(way.to, way.there) && write(way.from, way.back) && !there.closed && !back.closed;
  }
  static bool write(const TcpSocket& to, std::string& bytes) {
    const Transfer done = to.write_some(bytes);
    bytes.erase(0, done.bytes);
    return !done.closed;
  }
  /// Passes on what is whole.
  void take(Way& way, std::string_view bytes) {
    if (way.first) queue_->update([&] { recorded_ += bytes; });
    way.partial += bytes;
    const std::size_t head = std::min(way.head, way.partial.size());
    way.there += way.partial.substr(0, head);
    way.partial.erase(0, head);
    way.head -= head;
    while (const auto size = part_bytes(way.partial)) {
      const bool more = (way.partial[0] & 1) != 0;
      way.message += way.partial.substr(0, *size);
      way.partial.erase(0, *size);
      if (more) continue;
      if (way.first) queue_->update([&] { flip(way.message); });
      way.there += way.message;
      if (way.first) {
        queue_->update([&] {
          messages_.push_back(way.message);
          way.there += std::exchange(again_, {});
        });
      }
      way.message.clear();
    }
  }
  void flip(std::string& message) {
    const std::string_view first_part("\x01\0", 2), data("ISLK\2\0\4\0", 8);
    if (!flips_ || !message.starts_with(first_part)) return;
    std::vector<std::size_t> begins;
    for (std::size_t at = 0; (at = message.find(data, at)) != std::string::npos; ++at) {
      begins.push_back(at);
    }
    if (begins.size() < 3) return;
    constexpr std::size_t kNumber = 16;  // offset in a header
    message[begins[begins.size() / 2] + kNumber] ^= 1;
    flips_ = false;
    ++flipped_;
  }
  /// Of the part that `bytes` begin with, its head included; nothing while it is not whole.
  static std::optional<std::size_t> part_bytes(const std::string& bytes) {
    if (bytes.empty()) return std::nullopt;
    const std::size_t digits = (bytes[0] & 2) != 0 ? 8 : 1;
    if (bytes.size() < 1 + digits) return std::nullopt;
    std::size_t body = 0;
    for (std::size_t i = 1; i <= digits; ++i)
      body = body << 8 | static_cast<unsigned char>(bytes[i]);
    return bytes.size() < 1 + digits + body ? std::nullopt : std::optional(1 + digits + body);
  }

  Runtime& runtime_;
  const int target_;
  const TcpSocket listener_;
  const Alarm stop_;
  std::unique_ptr<WaitQueue> queue_;
  // Under the queue:
  std::string recorded_;
  std::vector<std::string> messages_;
  std::string again_;
  bool flips_ = false;
  int flipped_ = 0;
  // The task's alone:
  std::list<Way> ways_;
  bool any_ = false;
  std::unique_ptr<Task> task_;
};

}  // namespace isthmus::testing_support
