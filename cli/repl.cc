// cli/repl.cc -- `colauto repl`: reads inputs until the end and runs each. An input is tried in a
// child process first: whatever it does -- loops, runs out of memory, hits a bug, is interrupted --
// the session goes on as it was. An input that changes the session is then applied here as well,
// silently. The commands are repl_commands.cc, the session repl_session.h.
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>

#include <fmt/format.h>

#include "cli/load_program.h"
#include "cli/repl_commands.h"
#include "cli/repl_input.h"

namespace cad::cli {
namespace {

struct ReplFlags {
  std::vector<std::string> set;
  bool echo = false;
};

// Ctrl-C is the child's: the session ignores it meanwhile.
class IgnoreInterrupt {
 public:
  IgnoreInterrupt() {
    struct sigaction ignore {};
    ignore.sa_handler = SIG_IGN;
    sigaction(SIGINT, &ignore, &old_);
  }
  ~IgnoreInterrupt() { sigaction(SIGINT, &old_, nullptr); }
  IgnoreInterrupt(const IgnoreInterrupt&) = delete;
  IgnoreInterrupt& operator=(const IgnoreInterrupt&) = delete;

 private:
  struct sigaction old_ {};
};

void say(const std::string& text) {
  std::fflush(stdout);
  std::fputs(text.c_str(), stderr);
}

// True when the input succeeded in a process of its own.
bool rehearse(ReplContext& context, const std::string& input) {
  std::fflush(stdout);
  std::fflush(stderr);
  const IgnoreInterrupt guard;
  const pid_t child = fork();
  if (child < 0) return run_input(context, input) && !input_changes(input);
  if (child == 0) {
    struct sigaction usual {};
    usual.sa_handler = SIG_DFL;
    sigaction(SIGINT, &usual, nullptr);
    const bool ok = run_input(context, input);
    std::fflush(stdout);
    std::fflush(stderr);
    _exit(ok ? kExitOk : kExitRunFailed);
  }
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (WIFEXITED(status)) {
    if (WEXITSTATUS(status) == kExitBug) say("the session goes on as it was before this input\n");
    return WEXITSTATUS(status) == kExitOk;
  }
  const int number = WTERMSIG(status);
  if (number == SIGINT) {
    say("interrupted\n");
  } else {
    say(fmt::format("the input ended with signal {} ({}); the session goes on as it was\n", number,
                    number == SIGKILL ? "killed, perhaps for want of memory" : strsignal(number)));
  }
  return false;
}

void run_one(ReplContext& context, const std::string& input) {
  if (input_kind(input) == InputKind::kNothing) return;
  if (!rehearse(context, input) || !input_changes(input)) return;
  context.silent = true;
  run_input(context, input);
}

int run_repl(const ReplFlags& flags, const CommonOptions& common) {
  Session session;
  session.choose(common.train, common.model);
  int number = 0;
  const bool terminal = isatty(STDIN_FILENO) == 1 && !flags.echo;
  if (!common.file.empty()) {
    ReplContext context{session, common, 0, false};
    run_one(context, ":load " + common.file);
    // a script must not go on as if it had its program
    if (!terminal && !read_file(common.file).ok()) return kExitNoInput;
  }
  if (!flags.set.empty()) {
    std::string settings;
    for (const std::string& text : flags.set) settings += " " + text;
    ReplContext context{session, common, 0, false};
    run_one(context, ":set" + settings);
  }
  const std::unique_ptr<LineReader> reader =
      terminal ? terminal_reader([&](const std::string& line) { return complete(session, line); })
               : pipe_reader(flags.echo);
  if (terminal && !common.quiet)
    message(common, "colauto: `:help` lists the commands, Ctrl-D leaves");
  while (const std::optional<std::string> input = read_input(*reader)) {
    if (input_kind(*input) == InputKind::kCommand &&
        split_command(*input) == std::pair<std::string, std::string>("quit", ""))
      break;
    ReplContext context{session, common, ++number, false};
    run_one(context, *input);
  }
  return kExitOk;
}

}  // namespace

Action declare_repl(CLI::App& app, CommonOptions& common) {
  auto own = std::make_shared<ReplFlags>();
  app.add_option("FILE", common.file, "a program to start from");
  app.add_option("--set", own->set, "NAME=VALUE: a dim, a let or a setting; repeatable")
      ->type_name("NAME=VALUE")
      ->allow_extra_args(false);
  app.add_option("--train", common.train, "the train section to use (default: the last)")
      ->type_name("NAME");
  app.add_option("--model", common.model, "the model to use (default: the last)")
      ->type_name("NAME");
  app.add_option("--threads-per-device", common.threads_per_device,
                 "threads of `:time` (default: all cores)")
      ->type_name("N")
      ->check(thread_count());
  app.add_flag("--echo", own->echo, "print every input with its prompt, for a transcript");
  return [own, &common] { return run_repl(*own, common); };
}

}  // namespace cad::cli
