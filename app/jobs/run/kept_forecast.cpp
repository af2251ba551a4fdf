#include "app/jobs/run/kept_forecast.h"

#include <fmt/format.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "app/jobs/resolve/assets.h"
#include "app/jobs/resolve/source_key.h"
#include "app/jobs/run/tree_autotuner.h"
#include "base/log.h"
#include "base/user_folders.h"
#include "engine/heads/artefact.h"

namespace draftscope {
namespace {

using nlohmann::json;
namespace fs = std::filesystem;

constexpr std::size_t max_kept = 16;  // our default

fs::path forecasts_file() {
    return cache_folder() / "forecasts.json";
}

/// Returns the kept settings by key; empty if the file is missing or damaged.
json read_kept() {
    std::ifstream file(forecasts_file());
    json kept = json::parse(file, nullptr, false);
    return kept.is_object() ? kept : json::object();
}

}  // namespace

std::string forecast_key(const ResolvedRun& run, const ModelCache& models) {
    const auto model = checkpoint_hash(run.config.model),
               acceptance = checkpoint_hash(find_asset("demo_acceptance.json"));
    return fmt::format("{}, {}, {} threads{}, {}, model {}, drafter {}, acceptance {}, version {}",
                       models.machine().cpu_name, run.config.backend, models.exec().threads(),
                       run.config.pin ? ", pinned" : "", to_text(models.target().precision()),
                       model.ok() ? *model : "", weights_key(run), acceptance.ok() ? *acceptance : "",
                       DRAFTSCOPE_VERSION);
}

std::vector<SweepSetting> load_forecasts(const std::string& key, const ShippedAcceptance& shipped) {
    std::vector<SweepSetting> found;
    const json kept = read_kept();
    try {
        for (const json& one : kept.at(key)) {
            SweepSetting& setting = found.emplace_back();
            setting.head = one.at("head");
            setting.tree = one.at("tree");
            setting.round_ms = one.at("round_ms");
            setting.plain_ms = one.at("plain_ms");
            for (const TreeAcceptance& known : shipped.at(setting.head))
                if (to_text(to_tree_spec(known.tree)) == setting.tree) {
                    setting.shape = known.tree;
                    setting.units = known.units;
                }
            if (setting.units.empty() || setting.round_ms <= 0 || setting.plain_ms <= 0) return {};
        }
    } catch (const std::exception&) {  // not kept, or damaged
        return {};
    }
    return found;
}

void save_forecasts(const std::string& key, std::span<const SweepSetting> forecasts) {
    json kept = read_kept();
    if (kept.size() >= max_kept) kept.clear();
    json& settings = kept[key] = json::array();
    for (const SweepSetting& one : forecasts)
        settings.push_back(
            {{"head", one.head}, {"tree", one.tree}, {"round_ms", one.round_ms}, {"plain_ms", one.plain_ms}});
    const fs::path path = forecasts_file();
    if (!path.is_absolute()) return;  // no home is known
    if (!replace_file(path, kept.dump(1, ' ', false, json::error_handler_t::replace)))
        log_warning("{}: the forecast can't be kept", path.string());
}

}  // namespace draftscope
