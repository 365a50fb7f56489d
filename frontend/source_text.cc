// frontend/source_text.cc -- loading: a byte-order mark is skipped, everything else must be UTF-8.
#include <fmt/format.h>

#include <optional>

#include "frontend/parse.h"

namespace cad::frontend {
namespace {

constexpr std::string_view kBom = "\xEF\xBB\xBF";

// The length of the UTF-8 sequence at `text[at]`, 0 when there is none (overlong forms,
// surrogates and code points above U+10FFFF are none).
size_t sequence_length(std::string_view text, size_t at) {
  const auto byte = [&](size_t i) {
    return at + i < text.size() ? static_cast<unsigned char>(text[at + i]) : 0U;
  };
  const auto follows = [&](size_t i) { return (byte(i) & 0xC0U) == 0x80U; };
  const unsigned first = byte(0);
  if (first < 0x80U) return 1;
  if (first >= 0xC2U && first <= 0xDFU) return follows(1) ? 2 : 0;
  if (first >= 0xE0U && first <= 0xEFU) {
    if (first == 0xE0U && byte(1) < 0xA0U) return 0;
    if (first == 0xEDU && byte(1) > 0x9FU) return 0;
    return follows(1) && follows(2) ? 3 : 0;
  }
  if (first >= 0xF0U && first <= 0xF4U) {
    if (first == 0xF0U && byte(1) < 0x90U) return 0;
    if (first == 0xF4U && byte(1) > 0x8FU) return 0;
    return follows(1) && follows(2) && follows(3) ? 4 : 0;
  }
  return 0;
}

std::optional<size_t> first_invalid(std::string_view text) {
  for (size_t at = 0; at < text.size();) {
    const size_t length = sequence_length(text, at);
    if (length == 0) return at;
    at += length;
  }
  return std::nullopt;
}

int line_of(std::string_view text, size_t offset) {
  int line = 1;
  for (size_t i = 0; i < offset; ++i) {
    if (text[i] == '\n' || (text[i] == '\r' && !(i + 1 < text.size() && text[i + 1] == '\n')))
      ++line;
  }
  return line;
}

// Every other byte of the first four is zero, or a UTF-16 mark.
bool looks_like_utf16(std::string_view text) {
  if (text.size() < 2) return false;
  const std::string_view mark = text.substr(0, 2);
  if (mark == "\xFF\xFE" || mark == "\xFE\xFF") return true;
  if (text.size() < 4) return false;
  const bool even = text[0] == 0 && text[2] == 0, odd = text[1] == 0 && text[3] == 0;
  return even != odd && (even ? text[1] != 0 && text[3] != 0 : text[0] != 0 && text[2] != 0);
}

}  // namespace

namespace {

// The place of byte `offset` of a text that is not UTF-8: in a copy whose odd bytes are `?`, so
// that the line can be shown.
Span readable_place(Sources& sources, const std::string& path, std::string text, size_t offset) {
  for (size_t at = 0; at < text.size();) {
    const size_t length = sequence_length(text, at);
    if (length == 0 || text[at] == 0) text[at] = '?';
    at += length == 0 ? 1 : length;
  }
  const FileId file = sources.add(path, std::move(text));
  return {file, static_cast<uint32_t>(offset), static_cast<uint32_t>(offset + 1)};
}

Diagnostic not_utf8(Sources& sources, const std::string& path, const std::string& text,
                    size_t offset) {
  const std::string byte = fmt::format("0x{:02X}", static_cast<unsigned char>(text[offset]));
  Diagnostic error =
      make_diagnostic(DiagId::E0016, readable_place(sources, path, text, offset),
                      fmt::format("{} is not UTF-8: invalid byte {} in line {}, at byte offset {}",
                                  path, byte, line_of(text, offset), offset),
                      byte);
  error.help("save the file as UTF-8");
  return error;
}

}  // namespace

Result<FileId> load_source(Sources& sources, std::string path, std::string text) {
  if (text.size() >= UINT32_MAX) {
    return make_error(DiagId::E0016, fmt::format("{} is larger than 4 GiB", path), kExitProgram);
  }
  if (looks_like_utf16(text)) {
    // The mark, else the first zero byte.
    const bool mark = static_cast<unsigned char>(text[0]) >= 0xFE;
    Diagnostic error = not_utf8(sources, path, text, mark ? 0 : text.find('\0'));
    error.note("it looks like UTF-16");
    return error;
  }
  const size_t skipped = text.compare(0, kBom.size(), kBom) == 0 ? kBom.size() : 0;
  if (const auto bad = first_invalid(std::string_view(text).substr(skipped)))
    return not_utf8(sources, path, text, *bad + skipped);
  text.erase(0, skipped);
  return sources.add(std::move(path), std::move(text));
}

}  // namespace cad::frontend
