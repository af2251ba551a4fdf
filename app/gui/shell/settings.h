#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "app/gui/panels/style.h"
#include "app/jobs/commands/commands.h"
#include "base/result.h"

/// The window's settings, stored in settings.json in the user's configuration folder.
namespace draftscope {

struct Settings {
    ThemeId theme = ThemeId::dark;
    float user_scale = 1.0f;
    std::string layout = "explain";
    bool guide_seen = false;
    std::map<std::string, bool, std::less<>> open_panels;
    std::string folder;                     ///< initial folder of file dialogs; "" = the current folder
    std::vector<std::string> recent_files;  ///< absolute paths, newest first
    std::optional<RunConfig> session;       ///< edited session; absent if unchanged from the demo
    bool operator==(const Settings&) const = default;
};

constexpr float min_user_scale = 0.5f, max_user_scale = 3.0f;

/// Puts a file at the front of the list of ten recent files.
void add_recent_file(Settings& settings, const std::string& path);

std::string to_json(const Settings& settings);
/// Reads known and valid members; the others keep their defaults. Sets `problems` to one line for each
/// ignored member, which names the file.
Settings parse_settings(std::string_view text, std::vector<std::string>& problems, const std::string& path);

/// Loads the settings. A missing file gives the defaults. Damaged or unknown members are ignored with a log
/// message.
Settings load_settings(const std::string& path);
/// Replaces the file atomically.
Status save_settings(const Settings& settings, const std::string& path);

/// Returns the folder "draftscope" in the XDG configuration folder, created if missing; "" on failure.
std::string config_folder();

}  // namespace draftscope
