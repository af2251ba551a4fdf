#include <CLI/CLI.hpp>
#include <array>
#include <csignal>
#include <cstdio>
#include <filesystem>

#include "app/cli/cli.h"
#include "app/cli/version.h"
#include "profiler/nvtx_mirror.h"

namespace draftscope::cli {

std::span<const Subcommand> subcommands() {
    static constexpr std::array<Subcommand, 13> table = {{
        {"gui", add_gui},
        {"run", add_run},
        {"bench", add_bench},
        {"trace", add_trace},
        {"replay", add_replay},
        {"fit", add_fit},
        {"stats", add_stats},
        {"compare", add_compare},
        {"merge", add_merge},
        {"check", add_check},
        {"export", add_export},
        {"doctor", add_doctor},
        {"kernels", add_kernels},
    }};
    return table;
}

int exit_code(const Error& error) {
    switch (error.kind) {
        case ErrorKind::bad_input:
            return 2;
        case ErrorKind::cancelled:
            return 130;
        case ErrorKind::failed:
            break;
    }
    return 1;
}

int report(const Error& error) {
    std::fprintf(stderr, "draftscope: %s\n", error.message.c_str());
    return exit_code(error);
}

namespace {

int run_program(int argc, char** argv) {
    CLI::App program{
        "Draftscope: profiler and debugger for speculative decoding of language models.\n"
        "Without a subcommand it opens the window.",
        "draftscope"};
    program.footer(
        "Example: draftscope run --prompt \"Name three rivers.\" --drafter eagle3 --head fr-spec:v=8192");
    program.set_version_flag("--version", std::string("draftscope ") + version);
    program.require_subcommand(0, 1);
    Action action = open_window;
    for (const Subcommand& subcommand : subcommands()) subcommand.add(program, action);
    try {
        program.parse(argc, argv);
    } catch (const CLI::Success& asked) {  // --help, --version
        return program.exit(asked);
    } catch (const CLI::ParseError& wrong) {
        std::fprintf(stderr, "draftscope: %s (see draftscope --help)\n", wrong.what());
        return 2;
    }
    return action();
}

}  // namespace
}  // namespace draftscope::cli

int main(int argc, char** argv) {
    // A file that may grow no further is a full disk to us: an error that is told, not the program's end.
    std::signal(SIGXFSZ, SIG_IGN);
    // Before any library makes its first NVTX call: later it would not look again.
    std::error_code error;
    const auto program = std::filesystem::read_symlink("/proc/self/exe", error);
    if (!error) draftscope::nvtx_listen_to_libraries(program.parent_path() / "libdraftscope_nvtx.so");
    return draftscope::cli::run_program(argc, argv);
}
