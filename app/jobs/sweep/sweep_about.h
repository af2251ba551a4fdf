#pragma once

#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "app/jobs/sweep/sweep_job.h"

/// What a saved sweep says of itself, as JSON in table meta, besides its settings.
namespace draftscope {

/// What continuing and pooling a saved sweep need.
struct SweepAbout {
    ContextSum context;
    std::map<std::string, std::string> weights;  ///< SweepSetting::weights by pair_text()
    std::vector<OracleLine> oracles;             ///< without costs
};
/// Returns the members `context`, `weights` and `oracles`.
nlohmann::json sweep_about_json(const SweepReport& report);
/// Reads these members. Those that are missing or of another type count as empty.
SweepAbout parse_sweep_about(const std::string& text);

}  // namespace draftscope
