// base/render.cc -- the short and JSON forms and the order; frames are in base/render_frame.cc.
#include "base/render.h"

#include <algorithm>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/render_frame.h"

namespace cad {
namespace {

using nlohmann::json;

const char* level_name(Level level) {
  switch (level) {
    case Level::kError:
      return "error";
    case Level::kWarning:
      return "warning";
    case Level::kLint:
      return "lint";
  }
  return "error";
}

// Those to show, in order, and how many errors were left out.
std::vector<const Diagnostic*> select(const Diagnostics& diagnostics, size_t limit,
                                      size_t& left_out) {
  std::vector<const Diagnostic*> order;
  for (const Diagnostic& d : diagnostics.all()) order.push_back(&d);
  std::stable_sort(order.begin(), order.end(), [](const Diagnostic* a, const Diagnostic* b) {
    const auto key = [](const Diagnostic* d) {
      return d->primary
                 ? std::pair<int64_t, int64_t>(d->primary->span.file.index, d->primary->span.begin)
                 : std::pair<int64_t, int64_t>(-1, 0);
    };
    return key(a) < key(b);
  });
  std::vector<const Diagnostic*> shown;
  size_t errors = 0;
  left_out = 0;
  for (const Diagnostic* d : order) {
    if (diag_level(d->id) == Level::kError && ++errors > limit) {
      ++left_out;
      continue;
    }
    shown.push_back(d);
  }
  return shown;
}

// Spans where the user wrote them (Sources::add_piece).
Diagnostic with_origins(Diagnostic d, const Sources& sources) {
  if (d.primary) d.primary->span = sources.origin(d.primary->span);
  for (Label& label : d.secondary) label.span = sources.origin(label.span);
  for (Help& help : d.helps) {
    if (help.span) help.span = sources.origin(*help.span);
  }
  return d;
}

Diagnostics with_origins(const Diagnostics& diagnostics, const Sources& sources) {
  Diagnostics out;
  for (const Diagnostic& d : diagnostics.all()) out.add(with_origins(d, sources));
  return out;
}

std::string head_of(const Diagnostic& d, bool color) {
  const Level level = diag_level(d.id);
  const char* paint = level == Level::kError ? "1;31" : level == Level::kWarning ? "1;33" : "1;36";
  const std::string tag = fmt::format("{}[{}]", level_name(level), diag_name(d.id));
  if (!color) return fmt::format("{}: {}\n", tag, d.message);
  return fmt::format("\x1b[{}m{}\x1b[0m\x1b[1m: {}\x1b[0m\n", paint, tag, d.message);
}

json place(const Span& span, const Sources& sources) {
  const LineColumn from = sources.line_column(span.file, span.begin);
  const LineColumn to = sources.line_column(span.file, span.end);
  return {{"file", sources.file(span.file).path},
          {"line", from.line},
          {"column", from.column},
          {"end_line", to.line},
          {"end_column", to.column}};
}

json help_json(const Help& help, const Sources& sources) {
  json j = {{"text", help.text}};
  if (help.span && help.replacement) {
    j["place"] = place(*help.span, sources);
    j["replacement"] = *help.replacement;
  }
  return j;
}

json diagnostic_json(const Diagnostic& d, const Sources& sources) {
  json j = {
      {"id", diag_name(d.id)}, {"level", level_name(diag_level(d.id))}, {"message", d.message}};
  const json none = {{"file", nullptr},
                     {"line", nullptr},
                     {"column", nullptr},
                     {"end_line", nullptr},
                     {"end_column", nullptr}};
  j.update(d.primary ? place(d.primary->span, sources) : none);
  j["labels"] = json::array();
  if (d.primary && !d.primary->text.empty()) {
    json label = place(d.primary->span, sources);
    label["text"] = d.primary->text;
    j["labels"].push_back(std::move(label));
  }
  for (const Label& l : d.secondary) {
    json label = place(l.span, sources);
    label["text"] = l.text;
    j["labels"].push_back(std::move(label));
  }
  j["notes"] = d.notes;
  j["help"] = json::array();
  for (const Help& help : d.helps) j["help"].push_back(help_json(help, sources));
  return j;
}

}  // namespace

std::string render_human(const Diagnostic& diagnostic, const Sources& sources,
                         const RenderOptions& options) {
  const Diagnostic d = with_origins(diagnostic, sources);
  std::string text = head_of(d, options.color);
  const FrameText frame = render_frame(d, sources, options.color);
  text += frame.text;
  const std::string indent(frame.gutter, ' ');
  const auto line = [&](const char* kind, const std::string& body) {
    const std::string title = options.color ? fmt::format("\x1b[1m{}\x1b[0m", kind) : kind;
    // A body of several lines keeps its shape under the first.
    std::string padded;
    for (const char c : body) {
      padded += c;
      if (c == '\n') padded += indent + std::string(4 + std::string_view(kind).size() + 1, ' ');
    }
    text += fmt::format("{} = {}: {}\n", indent, title, padded);
  };
  for (const std::string& note : d.notes) line("note", note);
  for (const Help& help : d.helps) line("help", help.text);
  return text;
}

std::string render_human(const Diagnostics& diagnostics, const Sources& sources,
                         const RenderOptions& options) {
  size_t left_out = 0;
  std::string text;
  const Diagnostics placed = with_origins(diagnostics, sources);
  for (const Diagnostic* d : select(placed, options.limit, left_out)) {
    if (!text.empty()) text += "\n";
    text += render_human(*d, sources, options);
  }
  if (left_out > 0)
    text += fmt::format("\n{} more error{} not shown\n", left_out, left_out == 1 ? "" : "s");
  return text;
}

std::string render_short(const Diagnostics& diagnostics, const Sources& sources,
                         const RenderOptions& options) {
  size_t left_out = 0;
  std::string text;
  const Diagnostics placed = with_origins(diagnostics, sources);
  for (const Diagnostic* d : select(placed, options.limit, left_out)) {
    if (d->primary) {
      const LineColumn at = sources.line_column(d->primary->span.file, d->primary->span.begin);
      text +=
          fmt::format("{}:{}:{}: ", sources.file(d->primary->span.file).path, at.line, at.column);
    }
    text +=
        fmt::format("{}[{}]: {}\n", level_name(diag_level(d->id)), diag_name(d->id), d->message);
  }
  if (left_out > 0)
    text += fmt::format("{} more error{} not shown\n", left_out, left_out == 1 ? "" : "s");
  return text;
}

json render_json(const Diagnostics& diagnostics, const Sources& sources,
                 const RenderOptions& options) {
  size_t left_out = 0;
  json j = {{"schema", 1}, {"diagnostics", json::array()}};
  const Diagnostics placed = with_origins(diagnostics, sources);
  for (const Diagnostic* d : select(placed, options.limit, left_out)) {
    j["diagnostics"].push_back(diagnostic_json(*d, sources));
  }
  return j;
}

}  // namespace cad
