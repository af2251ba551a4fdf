#include <CLI/CLI.hpp>
#include <cstdio>
#include <fstream>
#include <memory>
#include <string_view>
#include <vector>

#include "app/cli/cli.h"
#include "app/cli/options.h"
#include "base/did_you_mean.h"
#include "base/temporary_folder.h"
#include "storage/capture_file.h"

#ifdef DRAFTSCOPE_WITH_GUI
#include "app/gui/entry.h"
#include "app/jobs/sweep/saved_sweep.h"
#endif

namespace draftscope::cli {
namespace {

struct ExportArguments {
    std::string file;
    std::string format = "sqlite";
    std::string out;
    bool no_text = false;
#ifdef DRAFTSCOPE_WITH_GUI
    PlotOptions plots;
#endif
};

#ifdef DRAFTSCOPE_WITH_GUI
Status export_png(const ExportArguments& options) {
    DS_ASSIGN(const auto snapshot, load_capture(options.file));
    PlotOptions plots = options.plots;
    plots.out = options.out;
    DS_ASSIGN(plots.sweeps, load_sweeps(options.file));
    DS_ASSIGN(const std::vector<std::string> files, render_plots(*snapshot, plots));
    for (const std::string& file : files) std::fprintf(stderr, "wrote %s\n", file.c_str());
    return {};
}

void add_plot_options(CLI::App& command, PlotOptions& plots) {
    add_list(command, "--plots", plots.plots,
             "png: breakdown, latency, plane, coverage, tree, sweep (default: those that the capture has)");
    command.add_option("--run", plots.run, "png: run id (default: the newest)");
    command.add_option("--round", plots.round,
                       "png: round of the tree, from 1 (default: the round with most committed tokens)");
    add_shown(command, "--theme", plots.theme, "png: light or dark");
    add_shown(command, "--scale", plots.scale, "png: text size, 1 = normal");
    add_shown(command, "--width", plots.width, "png: pixels");
    add_shown(command, "--height", plots.height, "png: pixels");
}
#endif

constexpr std::string_view formats[] = {"sqlite", "csv", "chrome", "nsys", "png"};

Status write_export(const ExportArguments& options, const std::string& out) {
    if (options.format == "sqlite") return export_sqlite(options.file, out, options.no_text);
    if (options.format == "csv") return export_csv(options.file, out, options.no_text);
    if (options.format == "chrome") return export_chrome(options.file, out, options.no_text);
    if (options.format == "nsys") return export_nsys(options.file, out);
    if (options.format == "png") {
#ifdef DRAFTSCOPE_WITH_GUI
        return export_png(options);
#else
        return bad_input("--format png: this build has no plots (DRAFTSCOPE_GUI=OFF)");
#endif
    }
    return bad_input("--format {}: unknown; known are {}{}", options.format, fmt::join(formats, ", "),
                     did_you_mean(options.format, formats));
}

/// Writes one file to stdout by way of a temporary file, because exports appear only when complete.
Status export_to_stdout(const ExportArguments& options) {
    if (options.format == "csv" || options.format == "png")
        return bad_input("--out -: {} is a folder of files; name a folder", options.format);
    TemporaryFolder folder;
    DS_TRY(folder.make("export"));
    const std::string file = folder.file("export");
    Status written = write_export(options, file);
    if (written.ok()) {
        std::ifstream whole(file, std::ios::binary);
        std::vector<char> bytes(1 << 20);
        while (whole.read(bytes.data(), static_cast<std::streamsize>(bytes.size())), whole.gcount() > 0)
            if (std::fwrite(bytes.data(), 1, whole.gcount(), stdout) == 0) break;
    }
    return written;
}

Result<int> do_export(const ExportArguments& options) {
    const bool to_stdout = options.out == "-";
    DS_TRY(to_stdout ? export_to_stdout(options) : write_export(options, options.out));
    const char* how =
        options.format == "chrome" ? "; open it at https://ui.perfetto.dev or in chrome://tracing" : "";
    if (options.format != "png" && !to_stdout) std::fprintf(stderr, "wrote %s%s\n", options.out.c_str(), how);
    return 0;
}

}  // namespace

void add_export(CLI::App& program, Action& action) {
    auto options = std::make_shared<ExportArguments>();
    CLI::App* command = program.add_subcommand("export", "Convert a capture to another format");
    command->footer(
        "Example: draftscope export run.dscope --format chrome --out trace.json.gz   (opens in Perfetto)\n"
        "         draftscope export run.dscope --format png --plots tree --round 12 --out tree.png");
    command->add_option("file", options->file, "capture file")->required();
    add_shown(*command, "--format,--to", options->format,
              "sqlite (compact copy), csv (folder of tables), chrome (trace), nsys (the SQLite tables "
              "of an Nsight Systems export), png (plots); also --to");
    command
        ->add_option("--out", options->out,
                     "file, or folder for csv and png; - = stdout (sqlite, chrome, nsys)")
        ->required();
    command->add_flag("--no-text", options->no_text, "leave out prompts, outputs and notes");
#ifdef DRAFTSCOPE_WITH_GUI
    add_plot_options(*command, options->plots);
#endif
    command->callback([options, &action] { action = [options] { return do_export(*options); }; });
}

}  // namespace draftscope::cli
