#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "app/gui/panels/style.h"
#include "app/jobs/commands.h"
#include "base/result.h"

/// What the window keeps for its next start: settings.json in the user's config folder.
namespace draftscope {

struct Settings {
    ThemeId theme = ThemeId::dark;
    float user_scale = 1.0f;
    std::string layout = "explain";
    bool guide_seen = false;
    std::map<std::string, bool, std::less<>> open_panels;
    std::string folder;                     ///< where the file dialogs start; "" = the current folder
    std::vector<std::string> recent_files;  ///< absolute paths, the newest first
    std::optional<RunConfig> session;       ///< as edited; absent while it is the demo's
    bool operator==(const Settings&) const = default;
};

constexpr float min_user_scale = 0.5f, max_user_scale = 3.0f;

/// Puts a file at the front of the list, which keeps ten.
void add_recent_file(Settings& settings, const std::string& path);

std::string to_json(const Settings& settings);
/// Takes what is known and valid; the rest keeps its default. `problems` gets one line for each thing
/// ignored.
Settings parse_settings(std::string_view text, std::vector<std::string>& problems);

/// The defaults when there is no such file; what is damaged or unknown is ignored with a line in the log.
Settings load_settings(const std::string& path);
/// Writes to a temporary name first, so that the file is whole at any time.
Status save_settings(const Settings& settings, const std::string& path);

/// "draftscope" in the XDG config folder, made when missing; "" when there is no home.
std::string config_folder();

}  // namespace draftscope
