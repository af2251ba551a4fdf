#include "app/gui/entry.h"

#include <imgui.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <thread>

#include "app/gui/shell/app.h"
#include "app/gui/shell/display.h"
#include "app/gui/shell/imgui_frame.h"
#include "app/gui/shell/layout.h"
#include "app/gui/shell/settings.h"
#include "app/gui/shell/state_dump.h"
#include "base/clock.h"

namespace draftscope {
namespace {

constexpr double idle_seconds = 0.25;
constexpr double streaming_frame_seconds = 1.0 / 30;
constexpr int first_frames = 3;
constexpr TimeNs max_startup_ns = 5 * ns_per_s;
constexpr TimeNs max_loading_ns = 120 * ns_per_s;
constexpr double max_hidden_seconds = 0.1;   ///< maximum seconds between shown frames while input is queued
constexpr double frame_interval_factor = 4;  ///< frame interval / frame time while streaming, at least

/// The contexts of a window with panels.
struct WindowContexts : ImGuiContexts {
    explicit WindowContexts(std::string ini) : ImGuiContexts(std::move(ini)) {
        ImGuiIO& io = ImGui::GetIO();
        io.ConfigFlags |= ImGuiConfigFlags_DockingEnable | ImGuiConfigFlags_NavEnableKeyboard;
        io.ConfigInputTextCursorBlink = false;
        io.ConfigWindowsMoveFromTitleBarOnly = true;
    }
};

void compute_frame(App& app, Display& display) {
    display.new_frame();
    new_imgui_frame();
    app.frame();
    ImGui::Render();
}

void draw_frame(App& app, Display& display) {
    compute_frame(app, display);
    display.present(ImGui::GetDrawData(), app.colours().ground);
}

bool is_busy(const App& app) {
    return app.status().state != JobState::idle;
}

/// Waits for the run without drawing, which would take the engine's cores.
void wait_for_run(App& app, double wait_seconds) {
    const TimeNs until = monotonic_ns() + static_cast<TimeNs>(wait_seconds * 1e9);
    bool was_busy = is_busy(app);
    while (monotonic_ns() < until && !app.wants_quit()) {
        app.prepare(1.0f);
        // A short run may have ended before this looks.
        was_busy |= is_busy(app) || !app.snapshot().runs.empty() || !app.status().error.empty();
        if (was_busy && !is_busy(app)) return;
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
}

void wait_for_files(App& app, const GuiOptions& options) {
    const TimeNs until = monotonic_ns() + max_loading_ns;
    const auto waits = [&] {
        const JobStatus& status = app.status();
        const bool file = !options.files.empty() && status.opened_file.empty();
        const bool overlay = !options.overlay.empty() && status.overlay == nullptr;
        const bool others = status.others.size() + 1 < options.files.size();
        return (file || overlay || others || status.comparing) && status.error.empty();
    };
    while (waits() && monotonic_ns() < until) {
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
        app.prepare(1.0f);
    }
}

/// The first frames request the files or the demo.
Status take_screenshot(Controller& controller, const GuiOptions& options) {
    const WindowContexts contexts("");
    DS_ASSIGN(const std::unique_ptr<Display> display, make_offscreen_display(options.width, options.height));
    App app(controller, options);
    const auto draw = [&](int frames) {
        for (int i = 0; i < frames; ++i) {
            app.prepare(1.0f);
            draw_frame(app, *display);
        }
    };
    const TimeNs ready_by = monotonic_ns() + max_startup_ns;
    while (!app.ready() && monotonic_ns() < ready_by) draw(1);
    draw(first_frames);
    wait_for_files(app, options);
    if (!options.watch.empty() || (options.run_demo && options.files.empty() && !options.sets_session))
        wait_for_run(app, options.wait_seconds);
    draw(first_frames);  // panels request slow jobs such as a comparison
    wait_for_files(app, options);
    draw(std::max(options.frames, first_frames));
    DS_ASSIGN(const Image image, display->read_pixels());
    if (!app.status().error.empty()) return failed("{}", app.status().error);
    return write_png(options.screenshot, image);
}

/// Saves a part of the window as it was shown.
Status save_part(Display& display, const PictureRequest& part) {
    DS_ASSIGN(const Image whole, display.read_pixels());
    const ImGuiIO& io = ImGui::GetIO();
    const auto pixels = [](float value, float scale, int largest) {
        return std::clamp(static_cast<int>(value * scale), 0, largest);
    };
    const int left = pixels(part.x, io.DisplayFramebufferScale.x, whole.width);
    const int top = pixels(part.y, io.DisplayFramebufferScale.y, whole.height);
    Image image;
    image.width = pixels(part.width, io.DisplayFramebufferScale.x, whole.width - left);
    image.height = pixels(part.height, io.DisplayFramebufferScale.y, whole.height - top);
    for (int y = top; y < top + image.height; ++y) {
        const auto row = whole.rgb.begin() + 3 * (static_cast<std::ptrdiff_t>(y) * whole.width + left);
        image.rgb.insert(image.rgb.end(), row, row + 3 * static_cast<std::ptrdiff_t>(image.width));
    }
    return write_png(part.path, image);
}

/// Decides when the next frame is due. Changes are drawn at once, streams of snapshots at a rate that leaves
/// the engine its cores, and ImGui's pending work when ImGui needs it.
class FramePace {
  public:
    void change() { due_.change(); }
    /// Call after ImGui's Render. Returns true if the frame must be shown. Queued input takes several frames,
    /// of which a slow display shows ten per second.
    bool computed(TimeNs start) {
        due_.computed();
        start_ = start;
        return !due_.has_input() || seconds(start - last_shown_) >= max_hidden_seconds;
    }
    void shown() {
        last_shown_ = monotonic_ns();
        frame_seconds_ = seconds(last_shown_ - start_);
    }
    /// Returns the seconds until the next frame, at most `idle_seconds`; 0 = due. `change`: seconds until the
    /// contents change by themselves.
    double wait(bool busy, double change) const {
        double after = due_.seconds();
        if (busy && !due_.has_input())  // queued input is drawn at once
            after = std::max({after, streaming_frame_seconds, frame_interval_factor * frame_seconds_});
        return std::clamp(std::min(after - seconds(monotonic_ns() - start_), change), 0.0, idle_seconds);
    }
    bool is_pending() const { return std::isfinite(due_.seconds()); }

  private:
    FramesDue due_;
    TimeNs start_ = 0, last_shown_ = 0;
    double frame_seconds_ = 0;
};

Status window_loop(Controller& controller, GuiOptions options) {
    const std::string folder = config_folder();
    const WindowContexts contexts(folder.empty() ? "" : folder + "/layout.ini");
    if (!folder.empty()) options.settings_file = folder + "/settings.json";
    DS_ASSIGN(const std::unique_ptr<Display> display,
              make_window_display(options.width, options.height, "Draftscope"));
    App app(controller, options);
    StateDump dump;
    FramePace pace;
    std::uint64_t seen_input = 0;
    std::string title;
    while (!app.wants_quit()) {
        display->wait(pace.wait(is_busy(app), app.seconds_to_change()));
        const bool input = display->input_count() != seen_input;
        seen_input = display->input_count();
        const bool close = display->wants_close();
        if (close) {
            display->cancel_close();
            app.perform(ActionId::quit);
        }
        for (const std::string& path : display->take_dropped()) app.drop(path);
        if (app.prepare(display->content_scale()) || input || close) pace.change();
        if (display->minimised()) display->wait(idle_seconds);
        constexpr double never = std::numeric_limits<double>::infinity();
        const bool due = input || (pace.is_pending() && pace.wait(is_busy(app), never) <= 0);
        if (!due || display->minimised()) continue;
        const TimeNs start = monotonic_ns();
        dump.before_frame();
        compute_frame(app, *display);
        dump.after_frame(app);
        if (pace.computed(start)) {
            display->present(ImGui::GetDrawData(), app.colours().ground);
            pace.shown();
            if (const auto picture = app.take_picture()) app.picture_saved(save_part(*display, *picture));
        }
        if (std::string wanted = app.title(); wanted != title) display->set_title(title = std::move(wanted));
    }
    return {};
}

}  // namespace

Status run_gui(Controller& controller, const GuiOptions& options) {
    if (!options.layout.empty() && !is_layout(options.layout))
        return bad_input("--layout {}: unknown layout. Use explain, profile, compare or choose",
                         options.layout);
    if (!options.theme.empty() && options.theme != "dark" && options.theme != "light")
        return bad_input("--theme {}: unknown theme. Use dark or light", options.theme);
    if (options.scale < 0.5 || options.scale > 4)
        return bad_input("--scale {}: must be between 0.5 and 4", options.scale);
    return options.screenshot.empty() ? window_loop(controller, options)
                                      : take_screenshot(controller, options);
}

}  // namespace draftscope
