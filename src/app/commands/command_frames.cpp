// SPDX-License-Identifier: Apache-2.0
// `frames FILE`: a recording as tables, or as one JSON object.
#include "app/commands/command_frames.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "app/commands/bench/frame_report.h"
#include "app/common/text_table.h"
#include "core/base/storage.h"
#include "core/base/units.h"
#include "isthmus/errors.h"
#include "record/json_line.h"
#include "transport/wire/recording_transport.h"

namespace isthmus::app {
namespace {

/// THROWS: RunError if the file is no recording.
Recording read_file(const Storage& storage, const std::filesystem::path& file) {
  const MappedFile mapped = storage.map(file);
  Expected<Recording, std::string> recording = read_recording(mapped.bytes());
  if (!recording) throw RunError(fmt::format("{}: {}", file.string(), recording.error()));
  return *std::move(recording);
}

void tell_damage(const Recording& recording, const std::filesystem::path& file,
                 std::vector<std::string>& warnings) {
  if (recording.left_out > 0) {
    warnings.push_back(
        fmt::format("{}: {} record(s) were left out as it was written, the disk being too slow: "
                    "rounds and counts lack them",
                    file.string(), recording.left_out));
  }
  if (recording.damaged > 0) {
    warnings.push_back(
        fmt::format("{}: {} record(s) are damaged, the first at byte {}; the rest is shown",
                    file.string(), recording.damaged, recording.first_damaged_at));
  }
  if (recording.cut_off > 0) {
    warnings.push_back(
        fmt::format("{}: ends within a record, {} bytes of it are there; the rest is shown",
                    file.string(), recording.cut_off));
  }
}

struct Whole {
  Recording recording;
  std::vector<std::string> warnings;
};

/// With the contents of FILE.old, if the same process wrote it.
Whole read_both(const Storage& storage, const std::filesystem::path& file) {
  if (storage.kind(file) != FileKind::kFile) {
    throw SystemError(fmt::format("{}: no such file; `train --site NAME --record FILE` writes one",
                                  file.string()));
  }
  Whole whole{.recording = read_file(storage, file), .warnings = {}};
  tell_damage(whole.recording, file, whole.warnings);
  const std::filesystem::path older = older_recording(file);
  if (storage.kind(older) != FileKind::kFile) return whole;
  const MappedFile mapped = storage.map(older);
  Expected<Recording, std::string> before = read_recording(mapped.bytes());
  if (!before) {
    whole.warnings.push_back(fmt::format("{}: {}; it is left out", older.string(), before.error()));
  } else if (before->head != whole.recording.head) {
    whole.warnings.push_back(fmt::format(
        "{}: is of an earlier process, and left out; look at it by itself", older.string()));
  } else if (before->records.empty() || whole.recording.records.empty() ||
             before->records.front() != whole.recording.records.front()) {
    // Otherwise the run has begun another FILE meanwhile, and this file is the one that was read.
    tell_damage(*before, older, whole.warnings);
    whole.recording.left_out += before->left_out;
    std::vector<FrameRecord>& records = whole.recording.records;
    records.insert(records.begin(), before->records.begin(), before->records.end());
  }
  return whole;
}

std::string stream_words(const FramesOfWay& way) {
  return way.streams.empty() ? "-" : fmt::format("{}", way.streams.size());
}

std::string waits_words(const FramesOfWay& way) {
  if (way.waited_longest_s == 0 && way.streams.empty()) return "-";
  return fmt::format("{}, {}", human_time(way.waited_median_s), human_time(way.waited_longest_s));
}

/// Those that took longest, first.
std::vector<RecordedRound> slowest(const FrameReport& report, int count) {
  std::vector<RecordedRound> rounds = report.rounds;
  std::ranges::stable_sort(rounds, [](const RecordedRound& a, const RecordedRound& b) {
    return a.took_s() > b.took_s();
  });
  rounds.resize(std::min(rounds.size(), static_cast<std::size_t>(count)));
  return rounds;
}

std::string peers_text(const FrameReport& report, const RecordingHead& head,
                       const Terminal& terminal) {
  TextTable table({"peer", "", "frames", "bytes", "again", "connections", "waited: median, most"});
  for (std::size_t p = 0; p < report.peers.size(); ++p) {
    if (p == static_cast<std::size_t>(head.self.value())) continue;
    const auto row = [&](const std::string& name, const char* way, const FramesOfWay& of) {
      table.add({name, way, fmt::format("{}", of.frames),
                 human_bytes(static_cast<double>(of.bytes)), fmt::format("{}", of.again),
                 stream_words(of), waits_words(of)});
    };
    row(head.names[p], "out", report.peers[p].out);
    row("", "in", report.peers[p].in);
  }
  return table.text(terminal);
}

std::string rounds_text(const std::vector<RecordedRound>& rounds, const RecordingHead& head,
                        const Terminal& terminal) {
  TextTable table({"step", "fragment", "epoch", "begun at s", "took", "what took the time"});
  for (const RecordedRound& round : rounds) {
    table.add({fmt::format("{}", round.id.sent.value()),
               fmt::format("{}", round.id.fragment.value()), fmt::format("{}", round.epoch),
               fmt::format("{:.3f}", round.begin_s), human_time(round.took_s()),
               words_of(round, head.names)});
  }
  return table.text(terminal);
}

std::string frames_text(const Recording& recording, std::int64_t step, const Terminal& terminal) {
  TextTable table(
      {"at s", "frame", "peer", "kind", "fragment", "part", "epoch", "bytes", "connection", "crc"});
  for (const FrameRecord& r : recording.records) {
    if (r.id.sent.value() != step) continue;
    table.add({fmt::format("{:.6f}", static_cast<double>(r.time_ns) * 1e-9),
               std::string(name_of(r.event)),
               recording.head.names[static_cast<std::size_t>(r.peer.value())],
               std::string(name_of(r.kind)), fmt::format("{}", r.id.fragment.value()),
               fmt::format("{}", r.part), fmt::format("{}", r.epoch), fmt::format("{}", r.bytes),
               r.stream < 0 ? "" : fmt::format("{}", r.stream), fmt::format("{:08x}", r.crc)});
  }
  return table.text(terminal);
}

JsonLine way_json(const FramesOfWay& way) {
  JsonLine line;
  line.add("frames", way.frames).add("bytes", way.bytes).add("again", way.again);
  return line.add("connections", way.streams.size())
      .add("waited_median_s", way.waited_median_s)
      .add("waited_longest_s", way.waited_longest_s);
}

std::string round_json(const RecordedRound& round, const std::vector<std::string>& names) {
  JsonLine line;
  line.add("step", round.id.sent.value()).add("frag", round.id.fragment.value());
  line.add("epoch", round.epoch).add("begin_s", round.begin_s).add("took_s", round.took_s());
  line.add_or_null("done_s", round.done).add_or_null("verdict_s", round.verdict);
  line.add("aborted", round.aborted).add("begun_times", round.epochs.size());
  line.add_list("peers", round.of, [&](const auto& each) {
    const auto& [peer, of] = each;
    return JsonLine()
        .add("peer", names[peer])
        .add("bytes_in", of.bytes_in)
        .add("bytes_out", of.bytes_out)
        .add_or_null("first_in_s", of.first_in)
        .add_or_null("last_in_s", of.last_in)
        .add_or_null("last_out_s", of.last_out);
  });
  return line.add("why", words_of(round, names)).str();
}

std::string frames_json(const Recording& recording, std::int64_t step) {
  std::vector<std::string> frames;
  for (const FrameRecord& r : recording.records) {
    if (r.id.sent.value() != step) continue;
    JsonLine line;
    line.add("at_s", static_cast<double>(r.time_ns) * 1e-9).add("frame", name_of(r.event));
    line.add("peer", recording.head.names[static_cast<std::size_t>(r.peer.value())])
        .add("kind", name_of(r.kind))
        .add("frag", r.id.fragment.value())
        .add("part", r.part)
        .add("epoch", r.epoch)
        .add("bytes", r.bytes);
    r.stream < 0 ? line.add_null("connection") : line.add("connection", r.stream);
    frames.push_back(line.add("crc", fmt::format("{:08x}", r.crc)).str());
  }
  return json_array(frames);
}

std::string report_json(const Recording& recording, const FrameReport& report,
                        const std::vector<RecordedRound>& rounds,
                        const std::vector<std::string>& warnings,
                        std::optional<std::int64_t> step) {
  const RecordingHead& head = recording.head;
  std::vector<std::string> peers;
  for (std::size_t p = 0; p < report.peers.size(); ++p) {
    if (p == static_cast<std::size_t>(head.self.value())) continue;
    peers.push_back(JsonLine()
                        .add("peer", head.names[p])
                        .add("out", way_json(report.peers[p].out))
                        .add("in", way_json(report.peers[p].in))
                        .str());
  }
  JsonLine line;
  line.add("kind", "frames").add("site", head.names[static_cast<std::size_t>(head.self.value())]);
  line.add("started_s", static_cast<double>(head.started_ms) * 1e-3);
  line.add("begin_s", report.begin_s).add("end_s", report.end_s);
  line.add("records", recording.records.size()).add("rounds_recorded", report.rounds.size());
  line.add("damaged", recording.damaged).add("cut_off_bytes", recording.cut_off);
  line.add("left_out", recording.left_out);
  line.add("warnings", std::span<const std::string>(warnings));
  if (step) line.add_raw("frames", frames_json(recording, *step));
  line.add_raw("peers", json_array(peers));
  return line
      .add_list("rounds", rounds,
                [&](const RecordedRound& round) { return round_json(round, head.names); })
      .str();
}

}  // namespace

int command_frames(const FramesArguments& arguments, Session& session) {
  const SystemStorage storage;
  const Whole whole = read_both(storage, arguments.file);
  const Recording& recording = whole.recording;
  const RecordingHead& head = recording.head;
  for (const std::string& warning : whole.warnings) {
    session.err.write(fmt::format("isthmus: {}\n", warning));
  }
  const FrameReport report = report_frames(recording.records, head.names.size());
  const std::vector<RecordedRound> rounds = slowest(report, arguments.rounds);
  if (session.json) {
    session.out.write(report_json(recording, report, rounds, whole.warnings, arguments.step) +
                      "\n");
    return 0;
  }
  if (arguments.step) {
    session.out.write(frames_text(recording, *arguments.step, session.out));
    return 0;
  }
  session.out.write(
      fmt::format("{}   frames of {}: {} records of {} s, {} rounds\n\n",
                  session.out.paint(Style::kBold, arguments.file.string()),
                  head.names[static_cast<std::size_t>(head.self.value())], recording.records.size(),
                  fmt::format("{:.1f}", report.end_s - report.begin_s), report.rounds.size()));
  session.out.write(peers_text(report, head, session.out));
  if (!rounds.empty()) {
    session.out.write("\nThe rounds that took longest\n");
    session.out.write(rounds_text(rounds, head, session.out));
  }
  return 0;
}

}  // namespace isthmus::app
