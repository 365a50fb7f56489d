// base/source.h -- source texts and positions in them. A Span is half-open in bytes; lines and
// columns (1-based, columns in code points, a tab is one column) are computed on demand.
// LF, CRLF and CR each end a line. One BOM is skipped. Loading checks UTF-8.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace cad {

struct FileId {
  int32_t index = -1;
  bool operator==(const FileId&) const = default;
};

struct Span {
  FileId file;
  uint32_t begin = 0;  // byte offsets into SourceFile::text
  uint32_t end = 0;
  [[nodiscard]] bool valid() const { return file.index >= 0; }
  bool operator==(const Span&) const = default;
};

struct LineColumn {
  int line = 1;    // 1-based
  int column = 1;  // 1-based, in code points
};

struct SourceFile {
  std::string path;                   // as given by the user, or "<stdlib>/layers.cad", "<stdin>"
  std::string text;                   // UTF-8, without BOM
  std::vector<uint32_t> line_starts;  // byte offset of the first byte of every line
};

// All files of one compilation. Appending keeps earlier FileIds valid.
class Sources {
 public:
  FileId add(std::string path, std::string text);
  [[nodiscard]] const SourceFile& file(FileId id) const {
    return files_[static_cast<size_t>(id.index)];
  }
  [[nodiscard]] size_t size() const { return files_.size(); }
  [[nodiscard]] LineColumn line_column(FileId id, uint32_t offset) const;
  [[nodiscard]] std::string_view line_text(FileId id, int line) const;  // without its line end
  [[nodiscard]] std::string_view text(Span span) const;

  // A file may be put together from others (a REPL checks what was loaded and typed as one
  // program): `length` bytes of `whole` from `at` on were written in `part`, from its start on.
  // Pieces are added in order. Diagnostics and line numbers show places where they were written.
  void add_piece(FileId whole, uint32_t at, FileId part, uint32_t length);
  // The place where the text of `span` was written; `span` itself when its file has no pieces. What
  // lies between pieces is the end of the one before.
  [[nodiscard]] Span origin(Span span) const;
  [[nodiscard]] bool has_pieces() const { return !pieces_.empty(); }

 private:
  struct Piece {
    FileId whole, part;
    uint32_t at, length;
  };
  std::vector<SourceFile> files_;
  std::vector<Piece> pieces_;
};

}  // namespace cad
