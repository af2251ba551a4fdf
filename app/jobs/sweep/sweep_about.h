#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "app/jobs/sweep/sweep_job.h"

/// What a saved sweep says of itself, as JSON in table meta, besides its settings.
namespace draftscope {

/// What continuing, pooling and showing a saved sweep need.
struct SweepAbout {
    ContextSum context;
    std::map<std::string, std::string> weights;  ///< SweepSetting::weights by pair_text()
    std::vector<OracleLine> oracles;             ///< with the costs when it was saved
    std::string recording;                       ///< folder
    std::string model;                           ///< as for `run`
    RunConfig run;             ///< back end, precision and threads of the profile; weights of heads
    std::string costs;         ///< machine, threads and kind of the profile
    std::string default_tree;  ///< of `run` on the profile's back end
    int max_new = 0;
    double temperature = 0;
    std::vector<std::string> categories;  ///< by conversation
    std::vector<std::string> notes;       ///< estimates and skipped settings, with reasons
    nlohmann::json advice;                ///< as save_sweep() writes it; null = none
};
/// Returns a profile's machine and kind: "Ryzen (measured, 8 threads)".
std::string costs_text(const MachineProfile& profile);
/// Describes a sweep, without an advice. `model` is as for advise().
SweepAbout describe_sweep(const SweepReport& report, const std::string& model);
nlohmann::json to_json(const SweepAbout& about);
/// Reads what to_json() wrote. Files are untrusted: what is missing or of another type counts as empty.
SweepAbout parse_sweep_about(const std::string& text);

}  // namespace draftscope
