#pragma once

#include <fmt/format.h>

#include <string>
#include <utility>
#include <vector>

namespace draftscope {

/// What a reader of files guessed, defaulted, chose or found odd. One sentence each, which names the file,
/// the field and the value. A command says its notes once on stderr, and keeps them in JSON (`notes`) and in
/// the capture (table `note`, without a round).
using Notes = std::vector<std::string>;

template <typename... Args>
void add_note(Notes& notes, fmt::format_string<Args...> text, Args&&... args) {
    notes.push_back(fmt::format(text, std::forward<Args>(args)...));
}
inline void append_notes(Notes& notes, const Notes& more) {
    notes.insert(notes.end(), more.begin(), more.end());
}
/// Writes each note to the log, unless this process has written the same before. Thread-safe.
void say_notes(const Notes& notes);

}  // namespace draftscope
