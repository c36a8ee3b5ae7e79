// SPDX-License-Identifier: Apache-2.0
#include "app/common/cli_errors.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <exception>
#include <new>
#include <string>
#include <vector>

#include "app/common/commands.h"
#include "core/base/names.h"
#include "isthmus/config.h"
#include "isthmus/errors.h"
#include "record/json_line.h"

namespace isthmus::app {
namespace {

constexpr Named<ExitCode> kErrorKinds[] = {
    {ExitCode::kUsage, "usage"},
    {ExitCode::kConfig, "config"},
    {ExitCode::kEnvironment, "environment"},
    {ExitCode::kPeer, "peer"},
    {ExitCode::kTargetMissed, "target"},
};

std::string_view kind_of(ExitCode code) { return name_in(kErrorKinds, code, "run"); }

/// A position as the language server protocol counts: from 0.
JsonLine position_json(int line, int column) {
  return JsonLine().add("line", line - 1).add("character", column - 1);
}

JsonLine diagnostic_json(const Diagnostic& diagnostic) {
  JsonLine line;
  line.add("severity", 1).add("code", diagnostic.code).add("source", "isthmus");
  line.add("message", diagnostic.message).add("hint", diagnostic.hint);
  line.add("where", diagnostic.where);
  if (diagnostic.line <= 0) return line.add_null("range");
  const int end = diagnostic.column + diagnostic.width;
  return line.add("range", JsonLine()
                               .add("start", position_json(diagnostic.line, diagnostic.column))
                               .add("end", position_json(diagnostic.line, end)));
}

int tell(bool json, ExitCode code, const std::string& text,
         const std::vector<Diagnostic>& diagnostics = {}) {
  Terminal err(STDERR_FILENO, ColorMode::kAuto);
  err.write(fmt::format("isthmus: {} {}\n", err.paint(Style::kBad, "error:"), text));
  if (json) {
    JsonLine inner;
    inner.add("kind", kind_of(code)).add("exit", static_cast<int>(code)).add("message", text);
    inner.add_list("diagnostics", diagnostics, diagnostic_json);
    Terminal(STDOUT_FILENO, ColorMode::kNever).write(JsonLine().add("error", inner).str() + "\n");
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
