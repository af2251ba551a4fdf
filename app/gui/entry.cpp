#include "app/gui/entry.h"

#include <imgui.h>
#include <implot.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "app/gui/shell/app.h"
#include "app/gui/shell/backend.h"
#include "app/gui/shell/layout.h"
#include "app/gui/shell/png.h"
#include "base/clock.h"

namespace draftscope {
namespace {

constexpr double idle_seconds = 0.25;
constexpr double streaming_frame_seconds = 1.0 / 30;
constexpr int frames_after_change = 3;

/// ImGui's and ImPlot's contexts; the layout goes to `ini` ("" = nowhere).
class Contexts {
  public:
    explicit Contexts(std::string ini) : ini_(std::move(ini)) {
        ImGui::CreateContext();
        ImPlot::CreateContext();
        ImGuiIO& io = ImGui::GetIO();
        io.IniFilename = ini_.empty() ? nullptr : ini_.c_str();
        io.ConfigFlags |= ImGuiConfigFlags_DockingEnable | ImGuiConfigFlags_NavEnableKeyboard;
        io.ConfigInputTextCursorBlink = false;
        io.ConfigWindowsMoveFromTitleBarOnly = true;
    }
    Contexts(const Contexts&) = delete;
    Contexts& operator=(const Contexts&) = delete;
    ~Contexts() {
        ImPlot::DestroyContext();
        ImGui::DestroyContext();
    }

  private:
    std::string ini_;
};

void draw_frame(App& app, Backend& backend) {
    backend.new_frame();
    ImGui::NewFrame();
    app.frame();
    ImGui::Render();
    backend.present(ImGui::GetDrawData(), app.colours().ground);
}

bool is_busy(const App& app) {
    return app.status().state != JobState::idle;
}

/// Draws until the run has ended (or the time is up), then `frames` more with nothing changing.
Status take_screenshot(Controller& controller, const GuiOptions& options) {
    const Contexts contexts("");
    DS_ASSIGN(const std::unique_ptr<Backend> backend, make_offscreen_backend(options.width, options.height));
    App app(controller, options);
    const TimeNs until = monotonic_ns() + static_cast<TimeNs>(options.wait_seconds * 1e9);
    bool was_busy = false;
    while (monotonic_ns() < until) {
        app.prepare(1.0f);
        draw_frame(app, *backend);
        was_busy |= is_busy(app);
        const bool ended = was_busy && !is_busy(app);
        if (ended || app.wants_quit()) break;
        std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
    for (int i = 0; i < std::max(options.frames, 3); ++i) {
        app.prepare(1.0f);
        draw_frame(app, *backend);
    }
    DS_ASSIGN(const Image image, backend->read_pixels());
    if (!app.status().error.empty()) return failed("{}", app.status().error);
    return write_png(options.screenshot, image);
}

Status window_loop(Controller& controller, const GuiOptions& options) {
    const Contexts contexts(layout_file());
    DS_ASSIGN(const std::unique_ptr<Backend> backend,
              make_window_backend(options.width, options.height, "Draftscope"));
    App app(controller, options);
    std::uint64_t seen_input = 0;
    int frames_due = frames_after_change;
    TimeNs last_frame = 0;
    std::string title;
    while (!backend->wants_close() && !app.wants_quit()) {
        const double since = seconds(monotonic_ns() - last_frame);
        backend->wait(frames_due == 0 ? idle_seconds
                      : is_busy(app)  ? std::max(0.0, streaming_frame_seconds - since)
                                      : 0);
        const bool changed = app.prepare(backend->content_scale());
        if (changed || backend->input_count() != seen_input) frames_due = frames_after_change;
        seen_input = backend->input_count();
        if (frames_due == 0 || backend->minimised()) {
            if (backend->minimised()) backend->wait(idle_seconds);
            continue;
        }
        // Input is answered at once; a stream of snapshots at 30 frames a second.
        if (changed && is_busy(app) && seconds(monotonic_ns() - last_frame) < streaming_frame_seconds * 0.9)
            continue;
        --frames_due;
        last_frame = monotonic_ns();
        draw_frame(app, *backend);
        if (std::string wanted = app.title(); wanted != title) backend->set_title(title = std::move(wanted));
    }
    return {};
}

}  // namespace

Status run_gui(Controller& controller, const GuiOptions& options) {
    if (!is_layout(options.layout))
        return bad_input("--layout {}: not a layout. Choose explain, profile or compare", options.layout);
    if (options.theme != "dark" && options.theme != "light")
        return bad_input("--theme {}: not a theme. Choose dark or light", options.theme);
    if (options.scale < 0.5 || options.scale > 4)
        return bad_input("--scale {}: must be between 0.5 and 4", options.scale);
    return options.screenshot.empty() ? window_loop(controller, options)
                                      : take_screenshot(controller, options);
}

}  // namespace draftscope
