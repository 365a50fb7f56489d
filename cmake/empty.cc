// cmake/empty.cc -- gives a library without sources something to archive.
