// SPDX-License-Identifier: Apache-2.0
#include "transport/exchange/encoded_result.h"

#include <span>

#include "transport/wire/frame.h"

namespace isthmus {

std::vector<EncodedShare> EncodedResult::shares() const {
  std::vector<EncodedShare> shares;
  for (std::size_t s = 0; !frames_.empty() && s < frames_.front().size(); ++s) {
    const double weight = prefix_ > 0 ? 1 : parse_frame(*frames_.front()[s])->header.weight;
    if (weight == 0) continue;
    EncodedShare share{.weight = weight, .bytes = {}};
    for (const std::vector<FrameBytes>& part : frames_) {
      const std::span<const std::byte> bytes = payload_of(part[s]).subspan(prefix_);
      share.bytes.insert(share.bytes.end(), bytes.begin(), bytes.end());
    }
    shares.push_back(std::move(share));
  }
  return shares;
}

}  // namespace isthmus
