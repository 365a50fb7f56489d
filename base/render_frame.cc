// base/render_frame.cc -- one block a file, lines in order, `...` between lines that are far apart.
// Marks: ^ for the primary span, - for the others. The right-most label stands beside its mark;
// the others hang below, right to left, so that no two cross.
#include "base/render_frame.h"

#include <algorithm>
#include <map>

#include <fmt/format.h>

namespace cad {
namespace {

struct Mark {
  int column = 1;  // 1-based, code points
  int width = 1;
  bool primary = false;
  std::string text;
};

size_t code_points(std::string_view s) {
  return static_cast<size_t>(std::count_if(
      s.begin(), s.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U; }));
}

std::string printable(std::string_view line) {
  std::string out;
  for (const char c : line) out += c == '\t' || (c >= 0 && c < ' ') ? ' ' : c;
  return out;
}

// Long lines are cut so that a generated 100 kB line does not flood the screen.
constexpr size_t kWidest = 160;

void put(std::string& row, size_t at, std::string_view text) {
  if (row.size() < at) row.append(at - row.size(), ' ');
  row.replace(at, std::min(text.size(), row.size() - at), text);
}

std::vector<std::string> mark_rows(std::vector<Mark> marks) {
  std::sort(marks.begin(), marks.end(),
            [](const Mark& a, const Mark& b) { return a.column < b.column; });
  std::vector<std::string> rows(1);
  for (const Mark& m : marks) {
    if (!m.primary)
      put(rows[0], static_cast<size_t>(m.column - 1),
          std::string(static_cast<size_t>(m.width), '-'));
  }
  for (const Mark& m : marks) {
    if (m.primary)
      put(rows[0], static_cast<size_t>(m.column - 1),
          std::string(static_cast<size_t>(m.width), '^'));
  }
  std::vector<Mark> hanging;
  for (const Mark& m : marks) {
    if (!m.text.empty()) hanging.push_back(m);
  }
  if (hanging.empty()) return rows;
  const Mark last = hanging.back();
  if (static_cast<size_t>(last.column - 1 + last.width) >= rows[0].size()) {
    rows[0] += " " + last.text;
    hanging.pop_back();
  }
  if (hanging.empty()) return rows;
  const auto bars = [&](size_t count) {
    std::string row;
    for (size_t i = 0; i < count; ++i) put(row, static_cast<size_t>(hanging[i].column - 1), "|");
    return row;
  };
  rows.push_back(bars(hanging.size()));
  for (size_t i = hanging.size(); i-- > 0;) {
    std::string row = bars(i);
    put(row, static_cast<size_t>(hanging[i].column - 1), "");
    row += hanging[i].text;
    rows.push_back(row);
  }
  return rows;
}

struct LineMarks {
  std::map<int, std::vector<Mark>> lines;  // line -> its marks
};

void add_mark(std::map<int32_t, LineMarks>& files, const Label& label, bool primary,
              const Sources& sources) {
  const Span& span = label.span;
  const LineColumn from = sources.line_column(span.file, span.begin);
  const LineColumn to = sources.line_column(span.file, std::max(span.end, span.begin));
  Mark mark;
  mark.column = from.column;
  const int line_end = static_cast<int>(code_points(sources.line_text(span.file, from.line))) + 1;
  mark.width = std::max(1, (to.line == from.line ? to.column : line_end) - from.column);
  mark.primary = primary;
  mark.text = label.text;
  files[span.file.index].lines[from.line].push_back(std::move(mark));
}

std::string source_line(std::string_view line, std::vector<Mark>& marks) {
  std::string text = printable(line);
  if (code_points(text) <= kWidest) return text;
  // Cut around the first mark; columns move with the cut. Such lines are ASCII in practice.
  int first = marks.front().column;
  for (const Mark& m : marks) first = std::min(first, m.column);
  const size_t begin = first > 60 ? static_cast<size_t>(first - 60) : 0;
  const size_t length = std::min(kWidest, text.size() - std::min(begin, text.size()));
  text = (begin > 0 ? "..." : "") + text.substr(begin, length) + "...";
  const int shift = static_cast<int>(begin) - (begin > 0 ? 3 : 0);
  for (Mark& m : marks) {
    m.column = std::clamp(m.column - shift, 1, static_cast<int>(kWidest));
    m.width = std::clamp(m.width, 1, static_cast<int>(kWidest) + 3 - m.column + 1);
  }
  return text;
}

}  // namespace

FrameText render_frame(const Diagnostic& d, const Sources& sources, bool color) {
  FrameText out;
  if (!d.primary) return out;
  std::map<int32_t, LineMarks> files;
  add_mark(files, *d.primary, true, sources);
  for (const Label& label : d.secondary) add_mark(files, label, false, sources);
  int widest = 1;
  for (const auto& [file, marks] : files) widest = std::max(widest, marks.lines.rbegin()->first);
  out.gutter = fmt::format("{}", widest).size();
  const std::string blank(out.gutter, ' ');
  const auto dim = [&](const std::string& s) { return color ? "\x1b[1;34m" + s + "\x1b[0m" : s; };

  const int32_t main_file = d.primary->span.file.index;
  std::vector<int32_t> order{main_file};
  for (const auto& [file, marks] : files) {
    if (file != main_file) order.push_back(file);
  }
  for (const int32_t file : order) {
    const FileId id{file};
    const bool first = file == main_file;
    auto& lines = files[file].lines;
    const LineColumn at =
        first ? sources.line_column(id, d.primary->span.begin)
              : LineColumn{lines.begin()->first, lines.begin()->second.front().column};
    out.text += fmt::format("{}{} {}:{}:{}\n", blank, dim(first ? "-->" : ":::"),
                            sources.file(id).path, at.line, at.column);
    out.text += fmt::format("{} {}\n", blank, dim("|"));
    int previous = 0;
    for (auto& [line, marks] : lines) {
      if (previous != 0 && line > previous + 1) out.text += fmt::format("{}\n", dim("..."));
      previous = line;
      const std::string text = source_line(sources.line_text(id, line), marks);
      out.text += fmt::format(
          "{}\n",
          fmt::format("{} {} {}", dim(fmt::format("{:>{}}", line, out.gutter)), dim("|"), text));
      for (const std::string& row : mark_rows(marks)) {
        out.text += fmt::format("{} {} {}\n", blank, dim("|"),
                                color ? "\x1b[1;31m" + row + "\x1b[0m" : row);
      }
    }
  }
  return out;
}

}  // namespace cad
