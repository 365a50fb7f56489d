#include "base/source.h"

#include <algorithm>
#include <utility>

namespace cad {
namespace {

// Byte offsets at which lines start; LF, CRLF and CR each end one.
std::vector<uint32_t> find_line_starts(std::string_view text) {
  std::vector<uint32_t> starts{0};
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\r' && i + 1 < text.size() && text[i + 1] == '\n') continue;
    if (text[i] == '\n' || text[i] == '\r') starts.push_back(static_cast<uint32_t>(i + 1));
  }
  return starts;
}

bool continues_code_point(char c) {
  return (static_cast<unsigned char>(c) & 0xC0U) == 0x80U;
}

}  // namespace

FileId Sources::add(std::string path, std::string text) {
  SourceFile file;
  file.path = std::move(path);
  file.text = std::move(text);
  file.line_starts = find_line_starts(file.text);
  files_.push_back(std::move(file));
  return FileId{static_cast<int32_t>(files_.size()) - 1};
}

LineColumn Sources::line_column(FileId id, uint32_t offset) const {
  const SourceFile& f = file(id);
  offset = std::min(offset, static_cast<uint32_t>(f.text.size()));
  const auto next = std::upper_bound(f.line_starts.begin(), f.line_starts.end(), offset);
  const auto line = static_cast<int>(next - f.line_starts.begin());
  int column = 1;
  for (uint32_t i = f.line_starts[static_cast<size_t>(line - 1)]; i < offset; ++i) {
    if (!continues_code_point(f.text[i])) ++column;
  }
  // An offset inside a code point counts as that code point's column.
  if (offset < f.text.size() && continues_code_point(f.text[offset])) --column;
  return {line, column};
}

std::string_view Sources::line_text(FileId id, int line) const {
  const SourceFile& f = file(id);
  const auto index = static_cast<size_t>(line - 1);
  if (line < 1 || index >= f.line_starts.size()) return {};
  const uint32_t begin = f.line_starts[index];
  const uint32_t end = index + 1 < f.line_starts.size() ? f.line_starts[index + 1]
                                                        : static_cast<uint32_t>(f.text.size());
  std::string_view text = std::string_view(f.text).substr(begin, end - begin);
  while (!text.empty() && (text.back() == '\n' || text.back() == '\r')) text.remove_suffix(1);
  return text;
}

std::string_view Sources::text(Span span) const {
  if (!span.valid()) return {};
  const std::string_view all = file(span.file).text;
  if (span.begin >= all.size()) return {};
  return all.substr(span.begin, span.end - span.begin);
}

void Sources::add_piece(FileId whole, uint32_t at, FileId part, uint32_t length) {
  pieces_.push_back({whole, part, at, length});
}

Span Sources::origin(Span span) const {
  const Piece* found = nullptr;
  for (const Piece& piece : pieces_) {
    if (piece.whole == span.file && (found == nullptr || piece.at <= span.begin)) found = &piece;
  }
  if (found == nullptr) return span;
  const auto within = [&](uint32_t offset) {
    return offset < found->at ? 0 : std::min(offset - found->at, found->length);
  };
  return {found->part, within(span.begin), within(span.end)};
}

}  // namespace cad
