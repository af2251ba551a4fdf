#include <poll.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <sstream>

#include "app/cli/cli.h"
#include "app/cli/version.h"
#include "base/did_you_mean.h"
#include "base/user_folders.h"
#include "profiler/nvtx/nvtx_mirror.h"

namespace draftscope::cli {

// One line per command with the group of --help, in its order. add_NAME() is defined in the command's file.
#define DS_COMMANDS(COMMAND)           \
    COMMAND(gui, "Look")               \
    COMMAND(run, "Look")               \
    COMMAND(stats, "Look")             \
    COMMAND(export, "Look")            \
    COMMAND(watch, "Look")             \
    COMMAND(import, "Look")            \
    COMMAND(inspect, "Look")           \
    COMMAND(check, "Look")             \
    COMMAND(doctor, "Look")            \
    COMMAND(compare, "Compare")        \
    COMMAND(bench, "Compare")          \
    COMMAND(diagnose, "Compare")       \
    COMMAND(reproduce, "Compare")      \
    COMMAND(kernels, "Compare")        \
    COMMAND(advise, "Choose")          \
    COMMAND(sweep, "Choose")           \
    COMMAND(replay, "Choose")          \
    COMMAND(profile_machine, "Choose") \
    COMMAND(drafters, "Choose")        \
    COMMAND(record, "Make")            \
    COMMAND(fit, "Make")               \
    COMMAND(merge, "Make")

#define DS_DECLARE_COMMAND(name, group) void add_##name(CLI::App& program, Action& action);
DS_COMMANDS(DS_DECLARE_COMMAND)
#undef DS_DECLARE_COMMAND

namespace {

/// Prints "draftscope: message" to stderr and returns the error's exit code.
int report(const Error& error) {
    std::fprintf(stderr, "draftscope: %s\n", error.message.c_str());
    if (error.kind == ErrorKind::bad_input) return 2;
    return error.kind == ErrorKind::cancelled ? 130 : 1;
}

/// A command: `add` adds its options to the parser. If the command is selected, its callback sets `action`.
/// Its name has hyphens where `name` has underscores.
struct Subcommand {
    const char* name;
    const char* group;  ///< heading of --help
    void (*add)(CLI::App& program, Action& action);
};

#define DS_LIST_COMMAND(name, group) {#name, group, add_##name},
constexpr Subcommand subcommands[] = {DS_COMMANDS(DS_LIST_COMMAND)};
#undef DS_LIST_COMMAND

/// Prints the first name of each option and command. Further names, such as former ones, also work.
class FirstNameFormatter : public CLI::Formatter {
  public:
    std::string make_option_name(const CLI::Option* option, bool is_positional) const override {
        const std::vector<std::string>& names = option->get_lnames();
        if (is_positional || names.size() < 2) return CLI::Formatter::make_option_name(option, is_positional);
        return "--" + names.front();
    }
    std::string make_subcommand(const CLI::App* command) const override {
        std::ostringstream line;
        CLI::detail::format_help(line, command->get_name(), command->get_description(), get_column_width());
        return line.str();
    }
};

/// Options whose values are text, not paths.
constexpr std::array text_options = {"--prompt", "--system", "--tag", "--note", "--name", "--template"};

/// Expands "~/" in the values of all other options: a shell does so only at the start of a word.
void expand_home_in_paths(CLI::App& program) {
    const auto expand = [](std::string& value) {
        value = expand_home(value);
        return std::string();
    };
    for (CLI::App* command : program.get_subcommands(nullptr))
        for (CLI::Option* option : command->get_options()) {
            const bool is_text =
                std::ranges::any_of(text_options, [&](const char* name) { return option->check_name(name); });
            if (!is_text && option->get_items_expected_max() > 0)
                option->transform(CLI::Validator(expand, ""));
        }
}

/// Returns the unknown arguments in the given order.
std::vector<std::string> unknown_arguments(const CLI::App& program) {
    std::vector<std::string> unknown = program.remaining();
    for (const CLI::App* subcommand : program.get_subcommands())
        for (std::string& argument : subcommand->remaining()) unknown.push_back(std::move(argument));
    return unknown;
}

/// Returns the options of a command as --name, without former names.
std::vector<std::string> option_names(const CLI::App& command) {
    std::vector<std::string> names;
    for (const CLI::Option* option : command.get_options())
        if (!option->get_lnames().empty()) names.push_back("--" + option->get_lnames().front());
    return names;
}

/// Returns "; did you mean --prompt?" for the first unknown option, else for an unknown command.
std::string suggestion(const CLI::App& program, const std::vector<std::string>& unknown) {
    const auto chosen = program.get_subcommands();
    auto misspelt = std::find_if(unknown.begin(), unknown.end(),
                                 [](const std::string& argument) { return argument.starts_with("--"); });
    std::vector<std::string> names;
    if (chosen.empty() && unknown.front().front() != '-') {
        misspelt = unknown.begin();
        for (const Subcommand& subcommand : subcommands) {
            names.emplace_back(subcommand.name);
            std::replace(names.back().begin(), names.back().end(), '_', '-');
        }
    } else if (misspelt != unknown.end()) {
        names = option_names(chosen.empty() ? program : *chosen.front());
    }
    const std::vector<std::string_view> known(names.begin(), names.end());
    return known.empty() ? std::string() : did_you_mean(misspelt->substr(0, misspelt->find('=')), known);
}

/// Refuses nan and inf for every number of a command.
void require_finite(CLI::App& command) {
    const auto check = [](const std::string& text) {
        char* end = nullptr;
        const double value = std::strtod(text.c_str(), &end);
        return *end != 0 || std::isfinite(value) ? std::string() : text + ": must be a finite number";
    };
    for (CLI::Option* option : command.get_options())
        if (option->get_type_name().starts_with("FLOAT")) option->check(CLI::Validator(check, ""));
}

/// Prints one line with the command line's error and a pointer to its help. Returns the exit code.
int report_usage(const CLI::App& program, const CLI::ParseError& wrong) {
    const std::vector<std::string> unknown = unknown_arguments(program);
    const auto chosen = program.get_subcommands();
    const std::string command =
        chosen.empty() ? "draftscope" : fmt::format("draftscope {}", chosen.front()->get_name());
    std::string message = wrong.what();
    if (!unknown.empty()) {
        const std::string found = fmt::format("unknown argument{}: {}{}", unknown.size() > 1 ? "s" : "",
                                              fmt::join(unknown, " "), suggestion(program, unknown));
        const bool is_all = dynamic_cast<const CLI::ExtrasError*>(&wrong) != nullptr;
        message = is_all ? found : fmt::format("{}; {}", message, found);
    }
    std::fprintf(stderr, "draftscope: %s (see %s --help)\n", message.c_str(), command.c_str());
    return 2;
}

/// Returns true if stdout is a pipe or socket whose reader has closed it.
bool reader_has_closed() {
    pollfd output{STDOUT_FILENO, POLLOUT, 0};
    return poll(&output, 1, 0) == 1 && (output.revents & POLLERR) != 0;
}

/// Flushes stdout. Returns the exit code, which is nonzero if output was lost. A reader that closed its pipe
/// is not reported.
int finish_output(int exit_code) {
    errno = 0;
    bool written = std::fflush(stdout) == 0;
    int reason = written ? 0 : errno;
    written = std::ferror(stdout) == 0 && written;
    // Network file systems and quotas may report a failed write only when the file is closed.
    if (const int copy = written ? dup(STDOUT_FILENO) : -1; copy >= 0 && close(copy) != 0) {
        written = false;
        reason = errno;
    }
    if (written) return exit_code;
    if (reason != EPIPE && !reader_has_closed())
        std::fprintf(stderr, "draftscope: writing to stdout failed%s%s; the output is incomplete\n",
                     reason != 0 ? ": " : "", reason != 0 ? std::strerror(reason) : "");
    return exit_code != 0 ? exit_code : 1;
}

int run_program(int argc, char** argv) {
    CLI::App program{
        "Draftscope: profiler and debugger for speculative decoding of language models.\n"
        "Without a subcommand it opens the window.",
        "draftscope"};
    program.footer(
        "Example: draftscope run --prompt \"Write a Python function that counts the vowels in a string.\"");
    program.set_version_flag("--version", std::string("draftscope ") + version);
    program.require_subcommand(0, 1);
    program.formatter(std::make_shared<FirstNameFormatter>());
    Action action = open_window;
    for (const Subcommand& subcommand : subcommands) {
        subcommand.add(program, action);
        program.get_subcommands(nullptr).back()->group(subcommand.group);
    }
    expand_home_in_paths(program);
    for (CLI::App* command : program.get_subcommands({})) require_finite(*command);
    try {
        program.parse(argc, argv);
    } catch (const CLI::Success& requested) {  // --help, --version
        return finish_output(program.exit(requested));
    } catch (const CLI::ParseError& wrong) {
        return report_usage(program, wrong);
    }
    const Result<int> done = action();
    return finish_output(done.ok() ? *done : report(done.error()));
}

}  // namespace
}  // namespace draftscope::cli

int main(int argc, char** argv) {
    // Exceeding the file size limit is reported like a full disk instead of killing the program.
    std::signal(SIGXFSZ, SIG_IGN);
    // Must precede the first NVTX call of any library: NVTX looks for its injection library only once.
    std::error_code error;
    const auto program = std::filesystem::read_symlink("/proc/self/exe", error);
    if (!error) {
        const auto folder = program.parent_path();
        const auto built = folder / "libdraftscope_nvtx.so",
                   installed = folder / "../lib/draftscope" / built.filename();
        draftscope::nvtx_listen_to_libraries(std::filesystem::exists(installed, error) ? installed : built);
    }
    return draftscope::cli::run_program(argc, argv);
}
