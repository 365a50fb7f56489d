// cli/repl_terminal.cc -- the terminal's reader on libedit: Emacs keys, Tab, a history that
// outlives the session in $XDG_STATE_HOME/colauto/history. A history that cannot be kept is no
// error.
#include <histedit.h>
#include <sys/stat.h>
#include <unistd.h>

#include <clocale>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "cli/repl_input.h"

namespace cad::cli {
namespace {

constexpr int kHistorySize = 2000;
constexpr size_t kMostListed = 200;  // completions listed at once

void make_folders(const std::string& path) {
  for (size_t at = path.find('/', 1); at != std::string::npos; at = path.find('/', at + 1))
    mkdir(path.substr(0, at).c_str(), 0700);
}

std::string history_path() {
  const char* state = std::getenv("XDG_STATE_HOME");
  const char* home = std::getenv("HOME");
  std::string folder;
  if (state != nullptr && *state == '/') {
    folder = state;
  } else if (home != nullptr && *home != '\0') {
    folder = std::string(home) + "/.local/state";
  } else {
    return "";
  }
  return folder + "/colauto/history";
}

class TerminalReader : public LineReader {
 public:
  explicit TerminalReader(Completer completer)
      : completer_(std::move(completer)), path_(history_path()) {
    std::setlocale(LC_CTYPE, "");  // widths of what is typed; numbers stay as they are
    history_ = history_init();
    history(history_, &event_, H_SETSIZE, kHistorySize);
    history(history_, &event_, H_SETUNIQUE, 1);
    if (!path_.empty()) history(history_, &event_, H_LOAD, path_.c_str());
    line_ = el_init("colauto", stdin, stdout, stderr);
    el_set(line_, EL_CLIENTDATA, this);
    el_set(line_, EL_PROMPT, &TerminalReader::prompt);
    el_set(line_, EL_EDITOR, "emacs");
    el_set(line_, EL_SIGNAL, 1);  // a resized window
    el_set(line_, EL_HIST, history, history_);
    el_set(line_, EL_ADDFN, "colauto-complete", "complete the word", &TerminalReader::on_tab);
    el_set(line_, EL_BIND, "\t", "colauto-complete", NULL);
    el_set(line_, EL_BIND, "^R", "em-inc-search-prev", NULL);
    // While a line is edited Ctrl-C is a key that gives the line up, not a signal.
    el_set(line_, EL_SETTY, "-d", "-isig", NULL);
    el_set(line_, EL_ADDFN, "colauto-cancel", "give the line up", &TerminalReader::on_cancel);
    el_set(line_, EL_BIND, "^C", "colauto-cancel", NULL);
  }
  ~TerminalReader() override {
    el_end(line_);
    history_end(history_);
  }
  TerminalReader(const TerminalReader&) = delete;
  TerminalReader& operator=(const TerminalReader&) = delete;

  std::optional<std::string> line(bool more, bool& cancelled) override {
    more_ = more;
    cancelled_ = false;
    int count = 0;
    const char* text = el_gets(line_, &count);
    cancelled = cancelled_;
    if (cancelled_) return "";
    if (text == nullptr || count <= 0) {
      std::fputs("\n", stdout);
      return std::nullopt;
    }
    std::string out(text, static_cast<size_t>(count));
    while (!out.empty() && (out.back() == '\n' || out.back() == '\r')) out.pop_back();
    return out;
  }

  // Line by line, as they are typed again.
  void remember(const std::string& input) override {
    bool any = false;
    for (size_t at = 0; at < input.size();) {
      const size_t end = std::min(input.find('\n', at), input.size());
      const std::string one = input.substr(at, end - at);
      at = end + 1;
      if (one.find_first_not_of(" \t") == std::string::npos) continue;
      history(history_, &event_, H_ENTER, one.c_str());
      any = true;
    }
    if (!any || path_.empty()) return;
    make_folders(path_);
    history(history_, &event_, H_SAVE, path_.c_str());
  }

 private:
  static TerminalReader& self(EditLine* line) {
    void* data = nullptr;
    el_get(line, EL_CLIENTDATA, &data);
    return *static_cast<TerminalReader*>(data);
  }
  static char* prompt(EditLine* line) {
    return const_cast<char*>(self(line).more_ ? kMorePrompt : kPrompt);
  }

  static unsigned char on_cancel(EditLine* line, int) {
    TerminalReader& reader = self(line);
    reader.cancelled_ = true;
    std::fputs("^C\n", stdout);
    const LineInfo* info = el_line(line);
    el_cursor(line, static_cast<int>(info->lastchar - info->cursor));
    el_deletestr(line, static_cast<int>(info->lastchar - info->buffer));
    return CC_EOF;
  }

  static unsigned char on_tab(EditLine* line, int) { return self(line).tab(); }

  unsigned char tab() {
    const LineInfo* info = el_line(line_);
    const std::string before(info->buffer, static_cast<size_t>(info->cursor - info->buffer));
    const Completions found = completer_(before);
    if (found.words.empty()) return CC_REFRESH_BEEP;
    std::string common = found.words[0];
    for (const std::string& word : found.words) {
      size_t same = 0;
      while (same < common.size() && same < word.size() && common[same] == word[same]) ++same;
      common.resize(same);
    }
    const std::string typed = before.substr(found.start);
    std::string added = common.substr(typed.size());
    if (found.words.size() == 1 && found.space) added += ' ';
    if (!added.empty()) return el_insertstr(line_, added.c_str()) == 0 ? CC_REFRESH : CC_ERROR;
    if (found.words.size() == 1) return CC_REFRESH_BEEP;
    list(found.words);
    return CC_REDISPLAY;
  }

  // Below the line, in columns.
  void list(const std::vector<std::string>& words) {
    size_t width = 0;
    for (const std::string& word : words) width = std::max(width, word.size() + 2);
    int columns = 80;
    el_get(line_, EL_GETTC, "co", &columns, NULL);
    const size_t across = std::max<size_t>(static_cast<size_t>(columns) / width, 1);
    std::fputs("\n", stdout);
    const size_t shown = std::min(words.size(), kMostListed);
    for (size_t i = 0; i < shown; ++i) {
      const bool ends = (i + 1) % across == 0 || i + 1 == shown;
      std::fputs(words[i].c_str(), stdout);
      std::fputs(ends ? "\n" : std::string(width - words[i].size(), ' ').c_str(), stdout);
    }
    if (shown < words.size()) std::fprintf(stdout, "and %zu more\n", words.size() - shown);
    std::fflush(stdout);
  }

  Completer completer_;
  std::string path_;
  History* history_ = nullptr;
  HistEvent event_{};
  EditLine* line_ = nullptr;
  bool more_ = false, cancelled_ = false;
};

}  // namespace

std::unique_ptr<LineReader> terminal_reader(Completer completer) {
  return std::make_unique<TerminalReader>(std::move(completer));
}

}  // namespace cad::cli
