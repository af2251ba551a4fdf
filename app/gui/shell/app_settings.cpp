#include "app/gui/shell/app.h"
#include "base/clock.h"
#include "base/log.h"

// Loading and saving of the window's settings.
namespace draftscope {
namespace {

constexpr TimeNs keep_every_ns = ns_per_s;

}  // namespace

void App::apply_settings() {
    if (options_.settings_file.empty()) return;
    settings_ = stored_settings_ = load_settings(options_.settings_file);
    if (settings_.session) config_ = *settings_.session;
    for (const auto& [id, open] : settings_.open_panels)
        if (const auto panel = ui_.open.find(id); panel != ui_.open.end()) panel->second = open;
}

void App::store_settings(bool at_once) {
    if (options_.settings_file.empty()) return;
    if (!at_once && monotonic_ns() - settings_stored_at_ < keep_every_ns) return;
    settings_stored_at_ = monotonic_ns();
    settings_.open_panels = ui_.open;
    if (defaults_applied_) {
        // The capture file belongs to a single run and is not saved.
        RunConfig session = config_;
        session.save.clear();
        session.overwrite = false;
        settings_.session = session == demo_config_ ? std::nullopt : std::optional(session);
    }
    if (settings_ == stored_settings_) return;
    stored_settings_ = settings_;
    const Status saved = save_settings(settings_, options_.settings_file);
    if (!saved.ok()) log_warning("{}", saved.error().message);
}

}  // namespace draftscope
