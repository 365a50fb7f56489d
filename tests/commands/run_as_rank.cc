// Under mpirun, between the launcher and a program: `run_as_rank FOLDER SIGNAL RANK PAUSE PROGRAM
// ARGUMENT..`. The program's messages go to FOLDER/err.<rank>; when it has ended FOLDER/end.<rank>
// holds its status (128 + n by signal n) and the time, and this process ends in the same way, so
// that the launcher sees what it would have seen. At rank RANK the program gets SIGNAL as soon as
// four steps are saved, and CONT after PAUSE seconds if that is not 0; FOLDER/fault holds when.
// SIGNAL 0: no fault. Times are seconds of the monotonic clock. Of faulty_runs.h.
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>

namespace {

std::string folder;

// A file appears whole.
void note(const std::string& name, const std::string& words) {
  const std::string file = folder + name, part = folder + "." + name;
  std::FILE* out = std::fopen(part.c_str(), "w");
  if (out == nullptr) return;
  const double now =
      std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
  std::fprintf(out, "%s%.6f\n", words.c_str(), now);
  std::fclose(out);
  std::rename(part.c_str(), file.c_str());
}

void strike(pid_t child, int signal, double pause, const std::atomic<bool>& ended) {
  for (int i = 0; i < 12000 && !ended; ++i) {
    if (::access((folder + "runs/net/step-000004/state.json").c_str(), F_OK) != 0) {
      ::usleep(10'000);
      continue;
    }
    note("fault", "");
    ::kill(child, signal);
    if (pause > 0) {
      std::this_thread::sleep_for(std::chrono::duration<double>(pause));
      ::kill(child, SIGCONT);
    }
    return;
  }
}

}  // namespace

int main(int argc, char** argv) {
  const char* rank = std::getenv("OMPI_COMM_WORLD_RANK");
  if (rank == nullptr || argc < 6) return 97;
  folder = std::string(argv[1]) + "/";
  const int signal = std::atoi(argv[2]);
  const bool faulty = signal != 0 && std::atoi(argv[3]) == std::atoi(rank);
  const pid_t child = ::fork();
  if (child < 0) return 96;
  if (child == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);  // the launcher may kill this process alone
    if (std::freopen((folder + "err." + rank).c_str(), "w", stderr) == nullptr) ::_exit(95);
    ::execvp(argv[5], argv + 5);
    ::_exit(94);
  }
  // what a launcher sends is for the program, which gets it too
  std::signal(SIGTERM, SIG_IGN);
  std::signal(SIGINT, SIG_IGN);
  std::atomic<bool> ended{false};
  if (faulty) std::thread(strike, child, signal, std::atof(argv[4]), std::cref(ended)).detach();
  int raw = 0;
  while (::waitpid(child, &raw, 0) != child) {
  }
  ended = true;
  const int status = WIFEXITED(raw) ? WEXITSTATUS(raw) : 128 + WTERMSIG(raw);
  note(std::string("end.") + rank, std::to_string(status) + " ");
  if (WIFSIGNALED(raw)) {
    std::signal(WTERMSIG(raw), SIG_DFL);
    ::raise(WTERMSIG(raw));
  }
  ::_exit(status);
}
