// backend/mapped_file.cc -- POSIX calls behind backend/mapped_file.h.
#include "backend/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>

#include <fmt/format.h>

namespace cad::backend {
namespace {

Diagnostic read_error(const std::string& path, const std::string& why) {
  return make_error(DiagId::E0601, fmt::format("cannot read `{}`: {}", path, why), kExitNoInput);
}
Diagnostic write_error(const std::string& path, int error) {
  return make_error(DiagId::E0602, fmt::format("cannot write `{}`: {}", path, std::strerror(error)),
                    kExitRunFailed);
}

}  // namespace

Result<MappedFile> MappedFile::open(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return read_error(path, std::strerror(errno));
  struct stat info {};
  if (::fstat(fd, &info) != 0) {
    const int error = errno;
    ::close(fd);
    return read_error(path, std::strerror(error));
  }
  if (!S_ISREG(info.st_mode)) {
    ::close(fd);
    return read_error(path, S_ISDIR(info.st_mode) ? "it is a folder" : "it is not a regular file");
  }
  MappedFile file;
  file.path_ = path;
  file.size_ = static_cast<uint64_t>(info.st_size);
  if (file.size_ > 0) {
    void* at = ::mmap(nullptr, file.size_, PROT_READ, MAP_PRIVATE, fd, 0);
    if (at == MAP_FAILED) {
      const int error = errno;
      ::close(fd);
      return read_error(path, std::strerror(error));
    }
    file.data_ = static_cast<const std::byte*>(at);
  }
  ::close(fd);
  return file;
}

MappedFile::MappedFile(MappedFile&& other) noexcept {
  *this = std::move(other);
}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), size_);
}

Result<FileWriter> FileWriter::create(const std::string& path) {
  const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (fd < 0) return write_error(path, errno);
  return FileWriter(path, fd);
}

Result<FileWriter> FileWriter::open(const std::string& path) {
  const int fd = ::open(path.c_str(), O_WRONLY | O_CLOEXEC);
  if (fd < 0) return write_error(path, errno);
  return FileWriter(path, fd);
}

FileWriter::FileWriter(FileWriter&& other) noexcept
    : path_(std::move(other.path_)), fd_(std::exchange(other.fd_, -1)) {}

FileWriter::~FileWriter() {
  if (fd_ >= 0) ::close(fd_);
}

Status FileWriter::write(const void* data, uint64_t size) {
  const char* at = static_cast<const char*>(data);
  while (size > 0) {
    const uint64_t piece = size < (1U << 30) ? size : (1U << 30);
    const ssize_t done = ::write(fd_, at, piece);
    if (done < 0 && errno == EINTR) continue;
    if (done < 0) return write_error(path_, errno);
    at += done;
    size -= static_cast<uint64_t>(done);
  }
  return Ok{};
}

Status FileWriter::write_at(uint64_t offset, const void* data, uint64_t size) {
  const char* at = static_cast<const char*>(data);
  while (size > 0) {
    const uint64_t piece = size < (1U << 30) ? size : (1U << 30);
    const ssize_t done = ::pwrite(fd_, at, piece, static_cast<off_t>(offset));
    if (done < 0 && errno == EINTR) continue;
    if (done < 0) return write_error(path_, errno);
    at += done;
    offset += static_cast<uint64_t>(done);
    size -= static_cast<uint64_t>(done);
  }
  return Ok{};
}

Status FileWriter::reserve(uint64_t size) {
  if (size == 0 || ::fallocate(fd_, 0, 0, static_cast<off_t>(size)) == 0) return Ok{};
  // Some file systems cannot reserve; there the writes themselves find a full disk.
  if (errno != EOPNOTSUPP && errno != ENOSYS && errno != EINTR) return write_error(path_, errno);
  if (::ftruncate(fd_, static_cast<off_t>(size)) != 0) return write_error(path_, errno);
  return Ok{};
}

Status FileWriter::finish() {
  const int synced = ::fsync(fd_);
  const int error = errno;
  const int closed = ::close(std::exchange(fd_, -1));
  if (synced != 0) return write_error(path_, error);
  if (closed != 0) return write_error(path_, errno);
  return Ok{};
}

Status FileWriter::close() {
  if (::close(std::exchange(fd_, -1)) != 0) return write_error(path_, errno);
  return Ok{};
}

Status sync_folder(const std::string& path) {
  const std::string folder = path.empty() ? "." : path;
  const int fd = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return write_error(folder, errno);
  const int synced = ::fsync(fd);
  const int error = errno;
  ::close(fd);
  // Some file systems do not sync folders; the rename is still atomic there.
  if (synced != 0 && error != EINVAL && error != ENOTSUP) return write_error(folder, error);
  return Ok{};
}

Status write_file_durably(const std::string& path, const std::string& text) {
  const std::string partial = path + ".tmp";
  CAD_TRY(file, FileWriter::create(partial));
  CAD_TRY_VOID(file.write(text.data(), text.size()));
  CAD_TRY_VOID(file.finish());
  if (::rename(partial.c_str(), path.c_str()) != 0) return write_error(path, errno);
  return sync_folder(std::filesystem::path(path).parent_path().string());
}

Result<std::string> read_text_file(const std::string& path, uint64_t limit) {
  CAD_TRY(file, MappedFile::open(path));
  if (file.size() > limit) return read_error(path, fmt::format("larger than {} bytes", limit));
  return std::string(reinterpret_cast<const char*>(file.data()), file.size());
}

}  // namespace cad::backend
