#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>

#include "app/cli/cli.h"
#include "storage/capture_file.h"

namespace draftscope::cli {
namespace {

struct Options {
    std::string file;
    std::string format = "sqlite";
    std::string out;
    bool no_text = false;
};

int do_export(const Options& options) {
    const auto run = [&]() -> Status {
        if (options.format == "sqlite") return export_sqlite(options.file, options.out, options.no_text);
        if (options.format == "csv") return export_csv(options.file, options.out, options.no_text);
        if (options.format == "chrome") return export_chrome(options.file, options.out, options.no_text);
        return bad_input("--format {}: unknown; known are sqlite, csv, chrome", options.format);
    };
    const Status done = run();
    if (!done.ok()) return report(done.error());
    std::fprintf(stderr, "wrote %s\n", options.out.c_str());
    return 0;
}

}  // namespace

void add_export(CLI::App& program, Action& action) {
    auto options = std::make_shared<Options>();
    CLI::App* command = program.add_subcommand("export", "Write a capture in another form");
    command->footer(
        "Example: draftscope export run.dscope --format chrome --out trace.json.gz   (opens in Perfetto)");
    command->add_option("file", options->file, "capture file")->required();
    command
        ->add_option("--format", options->format,
                     "sqlite (compact copy), csv (folder of tables), chrome (trace)")
        ->capture_default_str();
    command->add_option("--out", options->out, "file, or folder for csv")->required();
    command->add_flag("--no-text", options->no_text, "leave out prompts, outputs and notes");
    command->callback([options, &action] { action = [options] { return do_export(*options); }; });
}

}  // namespace draftscope::cli
