// SPDX-License-Identifier: Apache-2.0
#include "transport/links/tcp/tcp_splice.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "transport/links/tcp/tcp_connection.h"

namespace isthmus {
namespace {

constexpr std::size_t kBufferBytes = std::size_t{64} << 10;
constexpr int kReadsPerTurn = 4;  // of one end, before other connections have theirs
constexpr Duration kLastWordsOfSplice = std::chrono::seconds(2);

}  // namespace

std::string_view TcpSplice::Way::next() const {
  return {bytes.data() + begin, std::min(held, bytes.size() - begin)};
}

std::span<char> TcpSplice::Way::room() {
  const std::size_t from = (begin + held) % bytes.size();
  return std::span(bytes).subspan(from, std::min(bytes.size() - held, bytes.size() - from));
}

TcpSplice::TcpSplice(TcpSocket a, TcpSocket b, std::string to_a, std::string to_b,
                     Duration dead_after)
    : ends_{std::move(a), std::move(b)} {
  for (std::size_t end = 0; end < ends_.size(); ++end) {
    const std::string& first = end == 0 ? to_a : to_b;
    to_[end].bytes.resize(std::max(kBufferBytes, first.size()));
    std::ranges::copy(first, to_[end].bytes.begin());
    to_[end].held = first.size();
  }
  for (const TcpSocket& end : ends_) {
    watch_connection(end.descriptor(), dead_after);
    (void)pace_connection(end.descriptor());
  }
}

void TcpSplice::add_to(std::vector<Waited>& all) {
  place_ = all.size();
  for (std::size_t end = 0; end < ends_.size(); ++end) {
    const bool brings = ended_ ? end != *ended_ && !other_ended_ : !to_[1 - end].full();
    const bool takes = (!ended_ || end != *ended_) && !to_[end].empty();
    all.push_back({.descriptor = ends_[end].descriptor(), .to_read = brings, .to_write = takes});
  }
}

bool TcpSplice::advance(const std::vector<Waited>& all, TimePoint now) {
  for (std::size_t end = 0; end < ends_.size(); ++end) {
    if (!all[place_ + end].ready) continue;
    if (!flush(end)) return false;
    if (all[place_ + end].to_read) read_from(end);
    if (!flush(1 - end)) return false;
  }
  if (!ended_) return true;
  const std::size_t other = 1 - *ended_;
  if (to_[other].empty() && !told_) {
    ends_[other].finish_writing();
    told_ = true;
    over_at_ = now + kLastWordsOfSplice;
  }
  return now < over_at_ && !(told_ && other_ended_);
}

bool TcpSplice::flush(std::size_t to) {
  Way& way = to_[to];
  if (ended_ == to) way.held = 0;  // no reader is left
  while (!way.empty()) {
    const Transfer moved = ends_[to].write_some(way.next());
    if (moved.closed) return false;
    if (moved.bytes == 0) return true;
    way.begin = (way.begin + moved.bytes) % way.bytes.size();
    way.held -= moved.bytes;
  }
  way.begin = 0;
  return true;
}

void TcpSplice::read_from(std::size_t from) {
  Way& way = to_[1 - from];
  for (int i = 0; i < kReadsPerTurn && !way.full(); ++i) {
    const Transfer got = ends_[from].read_some(way.room());
    way.held += got.bytes;
    if (got.closed) {
      other_ended_ = ended_.has_value();
      if (!ended_) ended_ = from;
      return;
    }
    if (got.bytes == 0 || !flush(1 - from)) return;
  }
}

}  // namespace isthmus
