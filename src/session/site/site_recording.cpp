// SPDX-License-Identifier: Apache-2.0
#include "session/site/site_recording.h"

#include <span>
#include <utility>

#include "record/wall_clock.h"

namespace isthmus::app {

FrameRecorder& SiteRecording::open(WorkerId self, std::vector<std::string> sites, bool hub) {
  if (recorder_) return *recorder_;
  if (hub) sites.emplace_back("hub");
  RecordingHead head{.self = self,
                     .started_ms = static_cast<std::int64_t>(unix_now() * 1000),
                     .names = std::move(sites)};
  recorder_ = std::make_unique<FrameRecorder>(
      storage_, runtime_, FrameRecorder::Options{.file = file_, .head = std::move(head)});
  return *recorder_;
}

void record_connections(MemberOptions& options, FrameRecorder* recorder) {
  if (recorder == nullptr) return;
  options.on_carried = [recorder](bool leaves, WorkerId peer, int stream,
                                  std::span<const std::byte> frame) {
    recorder->record(leaves ? FrameEvent::kLeft : FrameEvent::kCame, peer, stream, frame);
  };
}

}  // namespace isthmus::app
