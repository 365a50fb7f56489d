// backend/folder_lock.h -- says that a run saves to a folder, for as long as it does: an advisory
// lock on a hidden file in it, which the kernel gives back however the process ends. Where the file
// system has no locks there is none, and the run goes on without.
#pragma once

#include <memory>
#include <string>

#include "base/result.h"

namespace cad::backend {

class FolderLock {
 public:
  // Of a folder that is there. E0613 while another run has it; null where it cannot be locked.
  static Result<std::shared_ptr<FolderLock>> take(const std::string& folder);
  ~FolderLock();
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;

 private:
  FolderLock(std::string file, int descriptor) : file_(std::move(file)), descriptor_(descriptor) {}
  std::string file_;
  int descriptor_;
};

}  // namespace cad::backend
