// SPDX-License-Identifier: Apache-2.0
#include "app/common/cli_errors.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <exception>
#include <new>
#include <string>
#include <vector>

#include "app/common/commands.h"
#include "isthmus/config.h"
#include "isthmus/errors.h"
#include "record/json_line.h"

namespace isthmus::app {
namespace {

std::string_view kind_of(ExitCode code) {
  switch (code) {
    case ExitCode::kUsage:
      return "usage";
    case ExitCode::kConfig:
      return "config";
    case ExitCode::kEnvironment:
      return "environment";
    case ExitCode::kPeer:
      return "peer";
    case ExitCode::kTargetMissed:
      return "target";
    default:
      return "run";
  }
}

/// A position as the language server protocol counts: from 0.
std::string position_json(int line, int column) {
  return JsonLine().add("line", line - 1).add("character", column - 1).str();
}

std::string diagnostic_json(const Diagnostic& diagnostic) {
  JsonLine line;
  line.add("severity", 1).add("code", diagnostic.code).add("source", "isthmus");
  line.add("message", diagnostic.message).add("hint", diagnostic.hint);
  line.add("where", diagnostic.where);
  if (diagnostic.line > 0) {
    line.add_raw("range", JsonLine()
                              .add_raw("start", position_json(diagnostic.line, diagnostic.column))
                              .add_raw("end", position_json(diagnostic.line,
                                                            diagnostic.column + diagnostic.width))
                              .str());
  } else {
    line.add_null("range");
  }
  return line.str();
}

int tell(bool json, ExitCode code, const std::string& text,
         const std::vector<Diagnostic>& diagnostics = {}) {
  Terminal err(STDERR_FILENO, ColorMode::kAuto);
  err.write(fmt::format("isthmus: {} {}\n", err.paint(Style::kBad, "error:"), text));
  if (json) {
    std::vector<std::string> parts;
    for (const Diagnostic& diagnostic : diagnostics) {
      parts.push_back(diagnostic_json(diagnostic));
    }
    JsonLine inner;
    inner.add("kind", kind_of(code)).add("exit", static_cast<int>(code)).add("message", text);
    inner.add_raw("diagnostics", json_array(parts));
    Terminal(STDOUT_FILENO, ColorMode::kNever)
        .write(JsonLine().add_raw("error", inner.str()).str() + "\n");
  }
  return static_cast<int>(code);
}

/// One line, whatever the text holds.
std::string on_one_line(std::string text) {
  for (char& c : text) {
    if (c == '\n' || c == '\r') {
      c = ' ';
    }
  }
  return text;
}

}  // namespace

int report_errors(bool json, const std::function<int()>& body) {
  try {
    return body();
  } catch (const ConfigErrors& errors) {
    Terminal(STDERR_FILENO, ColorMode::kAuto).write(std::string(errors.what()) + "\n");
    return tell(json, errors.exit_code(), errors.summary(), errors.diagnostics());
  } catch (const Error& error) {
    return tell(json, error.exit_code(), on_one_line(error.what()));
  } catch (const std::bad_alloc&) {
    return tell(json, ExitCode::kEnvironment,
                "out of memory; make the model, the batch or the number of workers smaller, or set "
                "train.offload, which keeps training state in files");
  } catch (const std::exception& error) {
    return tell(json, ExitCode::kRunFailed,
                on_one_line(fmt::format("{} (this is a bug of isthmus)", error.what())));
  }
}

namespace {

/// Of a write to stdout that failed; empty: none did, or the reader has gone.
std::string lost_text(const Terminal& out) {
  const int error = out.error();
  if (error == 0 || error == EPIPE) return {};
  return fmt::format("stdout: {}; the output is incomplete", std::strerror(error));
}

}  // namespace

int require_written(const Terminal& out, int code) {
  if (const std::string lost = lost_text(out); !lost.empty()) throw SystemError(lost);
  return code;
}

int require_written(const Session& session, int code) {
  const std::string lost = lost_text(session.out);
  if (lost.empty()) return code;
  if (session.saved.empty()) throw SystemError(lost);
  const std::string saved = fmt::format("{}; {}", lost, session.saved);
  if (session.json && code == 0) throw SystemError(saved);
  session.err.write(
      fmt::format("isthmus: {} {}\n", session.err.paint(Style::kWarn, "warning:"), saved));
  return code;
}

}  // namespace isthmus::app
