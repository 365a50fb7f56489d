// Loaded before a program's own libraries (LD_PRELOAD): after COLAUTO_TEST_THREADS threads none can
// be started, as where a limit on processes is reached. Of run_threads_test.cc.
#include <dlfcn.h>
#include <pthread.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>

extern "C" int pthread_create(pthread_t* thread, const pthread_attr_t* attributes,
                              void* (*start)(void*), void* argument) noexcept {
  using Create = int (*)(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*);
  static const auto create = reinterpret_cast<Create>(::dlsym(RTLD_NEXT, "pthread_create"));
  static std::atomic<int> left{[] {
    const char* text = std::getenv("COLAUTO_TEST_THREADS");
    return text == nullptr ? 1 << 30 : std::atoi(text);
  }()};
  return left-- > 0 ? create(thread, attributes, start, argument) : EAGAIN;
}
