#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>

#include "app/cli/cli.h"
#include "app/cli/options.h"

#ifdef DRAFTSCOPE_WITH_GUI
#include "app/gui/entry.h"
#include "app/jobs/controller/controller.h"
#include "storage/capture_file.h"
#include "storage/import/import_rounds.h"
#include "storage/import/import_timeline.h"
#endif

namespace draftscope::cli {

#ifdef DRAFTSCOPE_WITH_GUI
namespace {

/// Reports an invalid file on the terminal. The window reads the file again.
Status check_rounds(const std::string& file) {
    if (const auto imported = import_rounds(file); !imported.ok()) return imported.error();
    return {};
}
Status check_timeline(const std::string& file) {
    if (const auto imported = import_timeline(file); !imported.ok()) return imported.error();
    return {};
}

Result<int> do_gui(const GuiOptions& options) {
    for (const std::string& file :
         options.files) {  // report an invalid file on the terminal instead of opening an empty window
        if (is_rounds_file(file)) {
            DS_TRY(check_rounds(file));
            if (options.files.size() > 1)
                return bad_input(
                    "{}: rounds of another engine are opened by themselves; draftscope import "
                    "makes captures to compare",
                    file);
            continue;
        }
        const TimelineFormat kind = detect_timeline_format(file);
        DS_TRY(kind == TimelineFormat::none ? probe_capture(file) : check_timeline(file));
        if (kind != TimelineFormat::none && options.files.size() > 1)
            return bad_input("{}: another profiler's timeline is opened by itself, or with --overlay", file);
    }
    if (!options.watch.empty() && options.watched.prompt.empty() && options.watched.prompts_file.empty())
        return bad_input("--watch {}: needs --prompts FILE or --prompt TEXT, which the server is sent",
                         options.watch);
    if (!options.overlay.empty()) DS_TRY(check_timeline(options.overlay));
    if (options.screenshot.empty() && !display_available())
        return bad_input(
            "no display was found (DISPLAY and WAYLAND_DISPLAY are empty); use draftscope gui --screenshot "
            "FILE.png or draftscope run");
    const auto controller = make_controller([] { wake_gui(); });
    DS_TRY(run_gui(*controller, options));
    return 0;
}

}  // namespace

Result<int> open_window() {
    return do_gui({});
}

void add_gui(CLI::App& program, Action& action) {
    auto options = std::make_shared<GuiOptions>();
    CLI::App* command = program.add_subcommand("gui", "Open the window with capture files or with the demo");
    command->footer(
        "Example: draftscope gui run.dscope --screenshot run.png --frames 5 --theme light\n"
        "         draftscope gui full.dscope slimspec.dscope --layout compare\n"
        "         draftscope gui --model my-model.gguf --drafter eagle3:path/to/checkpoint "
        "--prompts my-prompts.jsonl\n"
        "         draftscope gui --watch http://127.0.0.1:8080 --prompts "
        "assets/prompts/spec_bench_half.jsonl "
        "--limit 4");
    command->add_option("files", options->files,
                        "capture files: the first is shown, the others are compared with it; or one timeline "
                        "of Nsight Systems (SQLite export) or PyTorch's profiler (JSON); or one file that "
                        "draftscope import reads");
    auto* watch = command->add_option("--watch", options->watch,
                                      "address of a running server of another engine: send it prompts and "
                                      "show its rounds as they come");
    watch->excludes("files");
    add_prompt_options(*command, options->watched);
    add_shown(*command, "--max-new", options->watched.max_new, "tokens to generate per prompt");
    command->add_option(
        "--model", options->watched.model,
        "target of the session, a GGUF file or model folder; with --watch: the server's target, for the "
        "texts of tokens");
    command->add_option("--drafter", options->watched.drafter, "of the session: NAME or NAME:PATH");
    command->add_option("--head", options->watched.head, "of the session: head spec");
    command->add_option("--head-weights", options->watched.artefacts,
                        "of the session: HEAD=PATH (repeatable)");
    command->add_option("--tree", options->watched.tree, "of the session");
    for (const char* one : {"--drafter", "--head", "--head-weights", "--tree"})
        command->get_option(one)->excludes(watch);
    command->add_option("--overlay,--beside", options->overlay,
                        "timeline of Nsight Systems or PyTorch's profiler, shown under the capture's "
                        "timeline");
    command->add_option("--screenshot", options->screenshot, "render off-screen into this PNG and exit");
    add_shown(*command, "--frames", options->frames, "frames to draw before the screenshot");
    add_shown(*command, "--wait", options->wait_seconds,
              "with --screenshot: wait up to this many seconds for the demo to end");
    command->add_option("--layout", options->layout,
                        "explain, profile, compare or choose; default: the layout last used");
    command->add_option("--theme", options->theme, "dark or light; default: the theme last used");
    add_shown(*command, "--scale", options->scale, "scale of the interface, 1 = normal");
    add_shown(*command, "--width", options->width, "width of the screenshot or window");
    add_shown(*command, "--height", options->height);
    command->add_flag("!--no-demo", options->run_demo, "do not start the demo");
    command->callback([options, command, &action] {
        for (const char* one : {"--prompt", "--prompts", "--max-new", "--model", "--drafter", "--head",
                                "--head-weights", "--tree"})
            options->sets_session |= options->watch.empty() && command->count(one) > 0;
        options->sets_drafter = command->count("--drafter") > 0;
        action = [options] { return do_gui(*options); };
    });
}

#else

Result<int> open_window() {
    return bad_input(
        "this build has no window (DRAFTSCOPE_GUI=OFF); see draftscope --help for the other commands");
}

void add_gui(CLI::App& program, Action& action) {
    CLI::App* command = program.add_subcommand("gui", "Open the window (not in this build)");
    command->footer("Example: draftscope gui run.dscope   (needs a build with DRAFTSCOPE_GUI=ON)");
    command->allow_extras();
    command->callback([&action] { action = open_window; });
}

#endif

}  // namespace draftscope::cli
