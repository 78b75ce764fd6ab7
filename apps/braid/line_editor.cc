#include "braid/line_editor.h"

#include <histedit.h>
#include <langinfo.h>
#include <sys/stat.h>
#include <unistd.h>

#include <clocale>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace braid::app {
namespace {

constexpr int kHistory = 1000;  // messages
constexpr const char* kPasteOn = "\033[?2004h";
constexpr const char* kPasteOff = "\033[?2004l";

// Messages are UTF-8 whatever the environment says.
void use_utf8() {
  std::setlocale(LC_CTYPE, "");
  if (std::strcmp(nl_langinfo(CODESET), "UTF-8") != 0) std::setlocale(LC_CTYPE, "C.UTF-8");
}

bool understands_paste_marks() {
  const char* terminal = std::getenv("TERM");
  return isatty(STDOUT_FILENO) && terminal != nullptr && std::strcmp(terminal, "dumb") != 0;
}

}  // namespace

struct LineEditor::Impl {
  explicit Impl(std::filesystem::path file) : history_path(std::move(file)) {
    use_utf8();
    editor = el_init("braid", stdin, stdout, stderr);
    past = history_init();
    HistEvent event;
    history(past, &event, H_SETSIZE, kHistory);
    history(past, &event, H_SETUNIQUE, 1);
    if (!history_path.empty()) history(past, &event, H_LOAD, history_path.c_str());
    el_set(editor, EL_CLIENTDATA, this);
    el_set(editor, EL_PROMPT, &Impl::prompt_of);
    el_set(editor, EL_HIST, history, past);
    el_set(editor, EL_EDITOR, "emacs");
    el_set(editor, EL_SIGNAL, 1);
    // While a line is edited Ctrl-C and Ctrl-Z are keys.
    el_set(editor, EL_SETTY, "-d", "-isig", nullptr);
    el_set(editor, EL_ADDFN, "braid-suspend", "suspends the program", &Impl::suspend);
    el_set(editor, EL_ADDFN, "braid-interrupt", "gives the line up", &Impl::interrupt);
    el_set(editor, EL_ADDFN, "braid-paste", "takes pasted text", &Impl::paste);
    const char* const keys[][2] = {{"^C", "braid-interrupt"},    {"^Z", "braid-suspend"},
                                   {"\\e[200~", "braid-paste"},  {"\\e[1~", "ed-move-to-beg"},
                                   {"\\e[4~", "ed-move-to-end"}, {"\\e[H", "ed-move-to-beg"},
                                   {"\\e[F", "ed-move-to-end"},  {"\\e[3~", "ed-delete-next-char"},
                                   {"\\e[1;5C", "em-next-word"}, {"\\e[1;5D", "ed-prev-word"},
                                   {"^R", "em-inc-search-prev"}};
    for (const auto& [key, function] : keys) el_set(editor, EL_BIND, key, function, nullptr);
    if (understands_paste_marks()) write_mark(kPasteOn);
  }
  ~Impl() {
    if (understands_paste_marks()) write_mark(kPasteOff);
    HistEvent event;
    if (!history_path.empty()) {
      std::error_code ignored;
      std::filesystem::create_directories(history_path.parent_path(), ignored);
      const mode_t before = umask(077);  // for the owner alone
      history(past, &event, H_SAVE, history_path.c_str());
      umask(before);
    }
    history_end(past);
    el_end(editor);
  }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  static void write_mark(const char* mark) {
    std::fputs(mark, stdout);
    std::fflush(stdout);
  }
  static Impl& of(EditLine* editor) {
    void* self = nullptr;
    el_get(editor, EL_CLIENTDATA, &self);
    return *static_cast<Impl*>(self);
  }
  static char* prompt_of(EditLine* editor) { return of(editor).prompt.data(); }

  static unsigned char interrupt(EditLine* editor, int) {
    Impl& self = of(editor);
    self.interrupted = true;
    const LineInfo* info = el_line(editor);
    self.dropped = info->lastchar > info->buffer;
    return CC_EOF;
  }

  static unsigned char suspend(EditLine*, int) {
    std::raise(SIGTSTP);
    return CC_REFRESH;
  }

  // Text between a terminal's paste marks goes into the line unchanged.
  static unsigned char paste(EditLine* editor, int) {
    constexpr std::wstring_view kEnd = L"\033[201~";
    std::wstring text;
    wchar_t c = 0;
    while (el_wgetc(editor, &c) == 1) {
      text += c == L'\r' ? L'\n' : c;
      if (!text.ends_with(kEnd)) continue;
      text.erase(text.size() - kEnd.size());
      if (!text.empty() && text.back() == L'\n') text.pop_back();
      if (!text.empty()) el_winsertstr(editor, text.c_str());
      return CC_REFRESH;
    }
    return CC_EOF;
  }

  EditLine* editor = nullptr;
  History* past = nullptr;
  const std::filesystem::path history_path;
  std::string prompt;
  bool interrupted = false;
  bool dropped = false;
};

LineEditor::LineEditor(std::filesystem::path history)
    : impl_(std::make_unique<Impl>(std::move(history))) {}

LineEditor::~LineEditor() = default;

LineEditor::Outcome LineEditor::read(const std::string& prompt, std::string& line) {
  impl_->prompt = prompt;
  impl_->interrupted = false;
  int size = 0;
  const char* text = el_gets(impl_->editor, &size);
  if (impl_->interrupted) return Outcome::interrupted;
  if (text == nullptr || size <= 0) return Outcome::end;
  line.assign(text, static_cast<size_t>(size));
  if (line.ends_with('\n')) line.pop_back();
  return Outcome::line;
}

bool LineEditor::dropped_text() const {
  return impl_->dropped;
}

void LineEditor::remember(const std::string& line) {
  HistEvent event;
  history(impl_->past, &event, H_ENTER, line.c_str());
}

std::filesystem::path history_file() {
  const char* state = std::getenv("XDG_STATE_HOME");
  const char* home = std::getenv("HOME");
  if (state != nullptr && *state != '\0')
    return std::filesystem::path(state) / "braid/chat_history";
  if (home == nullptr || *home == '\0') return {};
  return std::filesystem::path(home) / ".local/state/braid/chat_history";
}

}  // namespace braid::app
