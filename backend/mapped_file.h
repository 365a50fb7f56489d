// backend/mapped_file.h -- a file mapped read-only, and files written whole. Everything that reads
// big files (data, checkpoints) goes through MappedFile, so a 5 GB file costs address space only.
// Writing is durable: data reaches the disk before a name points at it (see write_file_durably).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "base/result.h"

namespace cad::backend {

class MappedFile {
 public:
  // E0601 (exit 66): missing, a folder, or unreadable.
  static Result<MappedFile> open(const std::string& path);
  MappedFile() = default;
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  ~MappedFile();

  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] uint64_t size() const { return size_; }
  [[nodiscard]] const std::byte* data() const { return data_; }
  [[nodiscard]] std::span<const std::byte> bytes() const { return {data_, size_}; }

 private:
  std::string path_;
  const std::byte* data_ = nullptr;
  uint64_t size_ = 0;
};

// A file being written: every call's failure (full disk, no right) is E0602 and sticks.
class FileWriter {
 public:
  static Result<FileWriter> create(const std::string& path);
  static Result<FileWriter> open(const std::string& path);  // one that is there, to write parts of
  FileWriter(FileWriter&& other) noexcept;
  FileWriter& operator=(FileWriter&&) = delete;
  ~FileWriter();
  Status write(const void* data, uint64_t size);
  Status write_at(uint64_t offset, const void* data, uint64_t size);
  Status reserve(uint64_t size);  // room on the disk for a file of that size
  Status finish();                // fsync and close
  Status close();

 private:
  FileWriter(std::string path, int fd) : path_(std::move(path)), fd_(fd) {}
  std::string path_;
  int fd_ = -1;
};

// Writes `text` to path.tmp, syncs, renames over `path`, syncs the folder.
Status write_file_durably(const std::string& path, const std::string& text);
Status sync_folder(const std::string& path);
Result<std::string> read_text_file(const std::string& path, uint64_t limit);

}  // namespace cad::backend
