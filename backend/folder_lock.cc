// backend/folder_lock.cc -- see folder_lock.h. The file goes with the run. One that a killed run
// left is nobody's, and taken. Between opening and locking it may have been removed by the run that
// had it: then the lock is on no file of the folder, and another try is made.
#include "backend/folder_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>

#include <fmt/format.h>

#include "base/exit_code.h"

namespace cad::backend {
namespace {

constexpr const char* kName = "/.lock";

// Whoever has it has written where it runs.
std::string owner(int descriptor) {
  std::array<char, 256> text{};
  const ssize_t count = ::pread(descriptor, text.data(), text.size(), 0);
  return count > 0 ? std::string(text.data(), static_cast<size_t>(count)) : "";
}

Diagnostic taken(const std::string& folder, const std::string& by) {
  Diagnostic error = make_error(DiagId::E0613, fmt::format("another run is saving to `{}`", folder),
                                kExitRunFailed);
  if (!by.empty()) error.note("it is " + by);
  error.help("wait for its end, or save elsewhere with `--save DIR`");
  return error;
}

bool is_still(const std::string& file, int descriptor) {
  struct stat now {
  }, locked{};
  return ::stat(file.c_str(), &now) == 0 && ::fstat(descriptor, &locked) == 0 &&
         now.st_ino == locked.st_ino && now.st_dev == locked.st_dev;
}

void sign(int descriptor) {
  std::array<char, 128> host{};
  if (::gethostname(host.data(), host.size() - 1) != 0) host[0] = '\0';
  const std::string text = fmt::format("process {} on {}", ::getpid(), host.data());
  // for a message only: that it could not be written is no reason to stop
  if (::ftruncate(descriptor, 0) == 0) (void)!::pwrite(descriptor, text.data(), text.size(), 0);
}

}  // namespace

Result<std::shared_ptr<FolderLock>> FolderLock::take(const std::string& folder) {
  constexpr int kTries = 20;
  const std::string file = folder + kName;
  for (int i = 0; i < kTries; ++i) {
    const int descriptor = ::open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (descriptor < 0) break;  // whoever writes there will say why not
    if (::flock(descriptor, LOCK_EX | LOCK_NB) != 0) {
      const bool busy = errno == EWOULDBLOCK;
      const std::string by = busy ? owner(descriptor) : "";
      ::close(descriptor);
      if (busy) return taken(folder, by);
      break;  // no locks here
    }
    if (is_still(file, descriptor)) {
      sign(descriptor);
      return std::shared_ptr<FolderLock>(new FolderLock(file, descriptor));
    }
    ::close(descriptor);
  }
  return std::shared_ptr<FolderLock>();
}

FolderLock::~FolderLock() {
  if (is_still(file_, descriptor_)) ::unlink(file_.c_str());
  ::close(descriptor_);
}

}  // namespace cad::backend
