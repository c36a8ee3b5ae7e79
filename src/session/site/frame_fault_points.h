// SPDX-License-Identifier: Apache-2.0
// Fault points (core/base/fault_point.h) that a site reaches when frames of certain kinds pass.
#pragma once

#include <atomic>
#include <cstddef>
#include <span>

#include "core/base/fault_point.h"
#include "transport/wire/frame.h"

namespace isthmus::app {

class FrameFaultPoints {
 public:
  /// A frame is about to be sent. Any task.
  void before(std::span<const std::byte> bytes) {
    const auto frame = parse_frame(bytes);
    if (!frame) return;
    const FrameKind kind = frame->header.kind;
    if (kind == FrameKind::kContribution) reach(FaultPoint::kContributes);
    if (kind == FrameKind::kResult) reach(FaultPoint::kAnswers);
    if (kind == FrameKind::kDone) reach(FaultPoint::kSaysDone);
    if (kind == FrameKind::kCommit) reach(FaultPoint::kCommits);
    if (kind == FrameKind::kEpoch) reach(FaultPoint::kAdmits);
    if (kind == FrameKind::kDone) said_done_ = true;
  }
  /// A frame has arrived, and no code has read it yet.
  void come(std::span<const std::byte> bytes) {
    if (said_done_) reach(FaultPoint::kSaidDone);
    const auto frame = parse_frame(bytes);
    if (!frame) return;
    const FrameKind kind = frame->header.kind;
    if (kind == FrameKind::kContribution) reach(FaultPoint::kContributed);
    if (kind == FrameKind::kResult) reach(FaultPoint::kAnswered);
    if (kind == FrameKind::kCommit) reach(FaultPoint::kCommitted);
    if (kind == FrameKind::kEpoch) reach(FaultPoint::kEntered);
  }

 private:
  std::atomic<bool> said_done_ = false;
};

}  // namespace isthmus::app
