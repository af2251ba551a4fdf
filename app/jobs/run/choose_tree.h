#pragma once

#include <nlohmann/json_fwd.hpp>
#include <span>

#include "app/jobs/run/model_cache.h"
#include "app/jobs/run/run_plan.h"

namespace draftscope {

/// Chooses the tree with the best forecast (--tree auto and quick), and under --head auto its head. Without a
/// forecast the defaults apply. Quick sets drafter none if plain decoding is forecast to be faster. The
/// models of the choice are loaded afterwards. Quick keeps the measured costs in the user's cache folder
/// (forecasts.json), so that each start on a machine chooses the same setting.
Status choose_tree(RunPlan& plan, ModelCache& models, DebugGate& gate, const RunHooks& hooks,
                   RunReport& report);

/// Converts a shape to a tree spec.
TreeSpec to_tree_spec(const TreeShape& shape);
/// Returns a list of {head, tree, tau, round_ms, speedup}.
nlohmann::json to_json(std::span<const SweepSetting> forecasts);

}  // namespace draftscope
