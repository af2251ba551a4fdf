#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "app/jobs/replay/replay_job.h"
#include "app/jobs/replay/replay_models.h"
#include "app/jobs/sweep/oracle.h"
#include "profiler/stats/machine_profile.h"
#include "profiler/stats/sweep_table.h"

/// Predicts the speed of many drafting settings: acceptance by replay of a recording, cost from a machine
/// profile. All trees of a head share one pass over the recording (engine/replay/path_ranks.h).
namespace draftscope {

/// The trees of a sweep.
struct TreeGrid {
    int chain = 6;                                   ///< longest chain; 0 = no chains
    std::vector<int> topks = {2, 4};                 ///< of dynamic trees; empty = chains alone
    int depth = 3;                                   ///< deepest dynamic tree, as in TreeSpec
    std::vector<int> nodes = {4, 6, 8, 12, 16, 24};  ///< of dynamic trees, root included
};

/// Options of `draftscope sweep`.
struct SweepConfig {
    /// Recording, model, weights of heads, precision, threads and max_new. Drafter, heads and tree are below.
    ReplayConfig replay;
    std::vector<std::string> drafters = {"eagle3"};  ///< NAME[:PATH]
    std::vector<std::string> heads;  ///< specs; "fr-spec:v=2048|4096" stands for one head per value
    TreeGrid trees;
    std::vector<int> batches = {1};
    std::string profile;  ///< file of draftscope profile-machine
    std::string save;     ///< capture whose settings are taken over and replaced; "" = none
    /// Settings of an earlier sweep with this recording. They are not replayed again, but
    /// their costs are predicted again.
    std::vector<SweepSetting> known;
    /// Trees of a head that needs a replay for each, the most promising ones by the full head's acceptance;
    /// 0 = all.
    std::size_t max_replays = 0;
};

/// The mean context of the rounds along a recording, as sums that add up over shards.
struct ContextSum {
    double positions = 0;  ///< committed tokens before each generated token
    double tokens = 0;     ///< generated
    double mean() const { return tokens > 0 ? positions / tokens : 0; }
};

struct SweepReport {
    std::string recording;
    std::string source;  ///< what identifies the acceptance: recording, lengths, precision, shard
    ContextSum context;
    std::size_t conversations = 0;
    std::vector<std::string> categories;  ///< by conversation; "" = unknown
    int max_new = 0;
    double temperature = 0;
    MachineProfile profile;
    std::vector<SweepSetting> settings;  ///< known ones first
    std::vector<SweepRow> rows;          ///< of `settings`, fastest first
    std::vector<OracleLine> oracles;     ///< bounds of each drafter and head with chains
    std::vector<std::string> estimates;  ///< why the acceptance of some settings is an estimate
    std::vector<std::string> skipped;    ///< settings without a cost or that cannot be drafted, with reasons
    std::vector<std::string> notes;      ///< why settings of a file were not taken over
    std::size_t passes = 0;              ///< drafting passes over the recording
    double seconds = 0;
};

/// Upper bound of the settings of one sweep.
inline constexpr std::size_t max_sweep_settings = 100000;

/// What stays loaded between the sweeps of one recording. Start with an empty one.
struct SweepModels {
    std::shared_ptr<const DecodeRecording> recording;
    ReplayModels models;                                       ///< of the first sweep's precision and threads
    std::map<std::string, std::shared_ptr<Drafter>> drafters;  ///< by id and path
};

/// Runs the sweep. Blocks. An empty grid, more than max_sweep_settings settings, and a profile of another
/// precision, vocabulary or back end are bad_input. Sweeps with the same recording may share `loaded`.
Result<SweepReport> run_sweep(const SweepConfig& config, const JobHooks& hooks, SweepModels& loaded);
Result<SweepReport> run_sweep(const SweepConfig& config, const JobHooks& hooks);

/// Returns the trees of a grid: chains, then dynamic trees with fewer nodes than candidates.
std::vector<TreeSpec> list_trees(const TreeGrid& grid);

}  // namespace draftscope
