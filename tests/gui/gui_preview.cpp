/// Draws the window with a synthetic run into a picture: gui_preview OUT.png [--theme T] [--layout L]
/// [--rounds N] [--scale S] [--size WxH] [--state running|held|level|sweep|empty|error] [--window]
#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "app/gui/entry.h"
#include "tests/gui/fake_controller.h"
#include "tests/gui/synthetic_sweep.h"

namespace {

struct Arguments {
    draftscope::GuiOptions options;
    int rounds = 60;
    std::string state = "running";
};

Arguments parse(int argc, char** argv) {
    Arguments arguments;
    arguments.options.frames = 6;
    for (int i = 1; i < argc; ++i) {
        const std::string_view name = argv[i];
        const char* value = i + 1 < argc ? argv[i + 1] : "";
        if (name == "--theme") arguments.options.theme = value;
        if (name == "--layout") arguments.options.layout = value;
        if (name == "--rounds") arguments.rounds = std::atoi(value);
        if (name == "--scale") arguments.options.scale = std::atof(value);
        if (name == "--state") arguments.state = value;
        if (name == "--size")
            std::sscanf(value, "%dx%d", &arguments.options.width, &arguments.options.height);
        if (name.starts_with("--"))
            ++i;
        else
            arguments.options.screenshot = name;
    }
    return arguments;
}

}  // namespace

int main(int argc, char** argv) {
    using namespace draftscope;
    Arguments arguments = parse(argc, argv);
    test::FakeController controller;
    arguments.options.run_demo = false;
    if (arguments.state != "empty") {
        RunConfig config;
        config.head = "fr-spec:v=8192";
        controller.submit({CmdStart{config}});
        controller.advance(arguments.rounds);
        if (arguments.state == "held") controller.submit({CmdStepRound{}});
        if (arguments.state == "level") controller.submit({CmdStepLevel{}});
        if (arguments.state == "sweep") controller.edit_status().sweeps = {test::synthetic_sweep()};
        if (arguments.state == "stored") controller.submit({CmdOpenFile{"/captures/run.dscope"}});
    }
    if (const Status status = run_gui(controller, arguments.options); !status.ok()) {
        std::fprintf(stderr, "%s\n", status.error().message.c_str());
        return 1;
    }
    return 0;
}
