// Time of the window's frames without a display, from ImGui's NewFrame to its draw lists: at rest, under a
// moving mouse, and with a new round in every frame. All panels are open; each layout shows those in front.
//
// Usage: window_bench           a made run of 89 rounds
//        window_bench FILE      that capture, which does not grow
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "storage/capture_file.h"
#include "tests/gui/harness.h"

namespace draftscope {
namespace {

struct Times {
    double median_ms = 0, p99_ms = 0, max_ms = 0;
};

Times time_frames(test::Harness& window, int frames, const std::function<void(int)>& before) {
    std::vector<double> ms;
    for (int i = 0; i < frames; ++i) {
        before(i);
        const TimeNs start = monotonic_ns();
        window.draw_frames(1);
        ms.push_back(static_cast<double>(monotonic_ns() - start) * 1e-6);
    }
    std::ranges::sort(ms);
    return {ms[ms.size() / 2], ms[ms.size() * 99 / 100], ms.back()};
}

Snapshot load(const std::string& path) {
    struct Sink : RecordSink {
        void push(Record record) override { capture.apply(record); }
        Capture capture;
    } sink;
    auto file = CaptureFollower::open(path, default_preload_limit);
    if (file.ok()) {
        sink.capture.set_stored((*file)->stored());
        sink.capture.set_source(path);
        if ((*file)->poll(sink, [] { return true; }).ok()) return sink.capture.snapshot(1);
    }
    fmt::print(stderr, "window_bench: {}: not a capture file that opens\n", path);
    std::exit(2);
}

void bench(const std::string& file) {
    test::Harness window{test::quiet()};
    window.controller.submit({CmdStart{}});
    window.controller.advance(100);
    if (!file.empty()) window.controller.show(load(file));
    for (const Panel& panel : panels()) window.app().ui().open[panel.id] = true;
    fmt::print("{} rounds, {} spans; ms a frame: median, p99, max\n",
               window.controller.snapshot()->rounds.size(), window.controller.snapshot()->spans.size());
    constexpr ActionId layouts[] = {ActionId::layout_explain, ActionId::layout_profile,
                                    ActionId::layout_compare, ActionId::layout_choose};
    for (const ActionId layout : layouts) {
        window.app().perform(layout);
        for (const Panel& panel : panels()) window.app().ui().open[panel.id] = true;
        window.draw_frames(60);
        const auto rest = time_frames(window, 200, [](int) {});
        const auto mouse = time_frames(window, 400, [](int i) {
            ImGui::GetIO().AddMousePosEvent(static_cast<float>(i * 37 % 1600),
                                            static_cast<float>(i * 23 % 1000));
        });
        if (file.empty()) window.controller.submit({CmdStart{}});
        const auto stream = time_frames(window, 80, [&](int) {
            if (file.empty()) window.controller.advance(1);
        });
        for (const auto& [name, t] : {std::pair{"at rest", rest}, {"mouse", mouse}, {"streaming", stream}})
            fmt::print("layout {}  {:<9}  {:6.2f} {:6.2f} {:6.2f}\n",
                       static_cast<int>(layout) - static_cast<int>(ActionId::layout_explain), name,
                       t.median_ms, t.p99_ms, t.max_ms);
    }
}

}  // namespace
}  // namespace draftscope

int main(int argc, char** argv) {
    draftscope::bench(argc > 1 ? argv[1] : "");
    return 0;
}
