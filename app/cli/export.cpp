#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>

#include "app/cli/cli.h"
#include "storage/capture_file.h"

#ifdef DRAFTSCOPE_WITH_GUI
#include "app/gui/entry.h"
#endif

namespace draftscope::cli {
namespace {

struct Options {
    std::string file;
    std::string format = "sqlite";
    std::string out;
    bool no_text = false;
#ifdef DRAFTSCOPE_WITH_GUI
    PlotOptions plots;
#endif
};

#ifdef DRAFTSCOPE_WITH_GUI
Status export_png(const Options& options) {
    DS_ASSIGN(const auto snapshot, load_capture(options.file));
    PlotOptions plots = options.plots;
    plots.out = options.out;
    DS_ASSIGN(const std::vector<std::string> files, render_plots(*snapshot, plots));
    for (const std::string& file : files) std::fprintf(stderr, "wrote %s\n", file.c_str());
    return {};
}

void add_plot_options(CLI::App& command, PlotOptions& plots) {
    command.add_option("--plots", plots.plots, "png: breakdown, plane, coverage, tree (default: all)")
        ->delimiter(',');
    command.add_option("--run", plots.run, "png: run id (default: the newest)");
    command.add_option("--round", plots.round,
                       "png: round of the tree, from 1 (default: the one that committed most)");
    command.add_option("--theme", plots.theme, "png: light or dark")->capture_default_str();
    command.add_option("--scale", plots.scale, "png: size of text, 1 = normal")->capture_default_str();
    command.add_option("--width", plots.width, "png: pixels")->capture_default_str();
    command.add_option("--height", plots.height, "png: pixels")->capture_default_str();
}
#endif

int do_export(const Options& options) {
    const auto run = [&]() -> Status {
        if (options.format == "sqlite") return export_sqlite(options.file, options.out, options.no_text);
        if (options.format == "csv") return export_csv(options.file, options.out, options.no_text);
        if (options.format == "chrome") return export_chrome(options.file, options.out, options.no_text);
        if (options.format == "nsys") return export_nsys(options.file, options.out);
        if (options.format == "png") {
#ifdef DRAFTSCOPE_WITH_GUI
            return export_png(options);
#else
            return bad_input("--format png: this build has no plots (DRAFTSCOPE_GUI=OFF)");
#endif
        }
        return bad_input("--format {}: unknown; known are sqlite, csv, chrome, nsys, png", options.format);
    };
    const Status done = run();
    if (!done.ok()) return report(done.error());
    if (options.format != "png") std::fprintf(stderr, "wrote %s\n", options.out.c_str());
    return 0;
}

}  // namespace

void add_export(CLI::App& program, Action& action) {
    auto options = std::make_shared<Options>();
    CLI::App* command = program.add_subcommand("export", "Write a capture in another form");
    command->footer(
        "Example: draftscope export run.dscope --format chrome --out trace.json.gz   (opens in Perfetto)\n"
        "         draftscope export run.dscope --format png --plots tree --round 12 --out tree.png");
    command->add_option("file", options->file, "capture file")->required();
    command
        ->add_option(
            "--format,--to", options->format,
            "sqlite (compact copy), csv (folder of tables), chrome (trace), nsys (the SQLite tables of a "
            "Nsight Systems export), png (plots)")
        ->capture_default_str();
    command->add_option("--out", options->out, "file, or folder for csv and png")->required();
    command->add_flag("--no-text", options->no_text, "leave out prompts, outputs and notes");
#ifdef DRAFTSCOPE_WITH_GUI
    add_plot_options(*command, options->plots);
#endif
    command->callback([options, &action] { action = [options] { return do_export(*options); }; });
}

}  // namespace draftscope::cli
