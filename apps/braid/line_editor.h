#pragma once

#include <filesystem>
#include <memory>
#include <string>

namespace braid::app {

// Reads messages from a terminal: editing keys, history, and pastes of many lines as a text.
class LineEditor {
 public:
  // `history` is read now and written at the end; empty: kept in memory. A file that cannot be read
  // or written is passed over.
  explicit LineEditor(std::filesystem::path history);
  ~LineEditor();

  enum class Outcome { line, interrupted, end };  // Enter, Ctrl-C, Ctrl-D on an empty line
  Outcome read(const std::string& prompt, std::string& line);
  // Whether Ctrl-C threw text away.
  bool dropped_text() const;
  void remember(const std::string& line);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// File of a chat's history: XDG_STATE_HOME/braid/chat_history. Empty without a known home.
std::filesystem::path history_file();

}  // namespace braid::app
