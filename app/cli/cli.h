#pragma once

#include <functional>
#include <span>
#include <string>

#include "base/result.h"

namespace CLI {
class App;
}

namespace draftscope::cli {

/// Runs the selected command after parsing; returns the process's exit code.
using Action = std::function<int()>;

/// A command: `add` adds its options to the parser. If the command is selected, its callback sets `action`.
struct Subcommand {
    const char* name;
    void (*add)(CLI::App& program, Action& action);
};
/// Returns all commands in the order of --help.
std::span<const Subcommand> subcommands();

void add_gui(CLI::App& program, Action& action);
void add_run(CLI::App& program, Action& action);
void add_bench(CLI::App& program, Action& action);
void add_record(CLI::App& program, Action& action);
void add_replay(CLI::App& program, Action& action);
void add_fit(CLI::App& program, Action& action);
void add_stats(CLI::App& program, Action& action);
void add_compare(CLI::App& program, Action& action);
void add_merge(CLI::App& program, Action& action);
void add_check(CLI::App& program, Action& action);
void add_export(CLI::App& program, Action& action);
void add_doctor(CLI::App& program, Action& action);
void add_kernels(CLI::App& program, Action& action);

/// Prints "draftscope: message" to stderr and returns the error's exit code.
int report(const Error& error);
/// Returns the exit code of an error: 1 failed, 2 bad input, 130 interrupted.
int exit_code(const Error& error);

/// Opens the window, as draftscope without arguments does.
int open_window();

}  // namespace draftscope::cli
