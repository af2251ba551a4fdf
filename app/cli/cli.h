#pragma once

#include <functional>
#include <span>
#include <string>

#include "base/result.h"

namespace CLI {
class App;
}

namespace draftscope::cli {

/// What the chosen subcommand does once its arguments are parsed; returns the process's exit code.
using Action = std::function<int()>;

/// One row per subcommand: adds its options to the program's parser and sets `action` when it is chosen.
struct Subcommand {
    const char* name;
    void (*add)(CLI::App& program, Action& action);
};
std::span<const Subcommand> subcommands();

void add_gui(CLI::App& program, Action& action);
void add_run(CLI::App& program, Action& action);
void add_bench(CLI::App& program, Action& action);
void add_trace(CLI::App& program, Action& action);
void add_replay(CLI::App& program, Action& action);
void add_fit(CLI::App& program, Action& action);
void add_stats(CLI::App& program, Action& action);
void add_compare(CLI::App& program, Action& action);
void add_merge(CLI::App& program, Action& action);
void add_check(CLI::App& program, Action& action);
void add_export(CLI::App& program, Action& action);
void add_doctor(CLI::App& program, Action& action);
void add_kernels(CLI::App& program, Action& action);

/// Prints "draftscope: message" to stderr and gives the exit code that belongs to the error.
int report(const Error& error);
/// 0 done, 1 failed, 2 bad input, 130 interrupted.
int exit_code(const Error& error);

/// Opens the window as `draftscope` without arguments does.
int open_window();

}  // namespace draftscope::cli
