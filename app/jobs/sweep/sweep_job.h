#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "app/jobs/commands/sweep_report.h"
#include "app/jobs/replay/replay_job.h"
#include "app/jobs/replay/replay_models.h"

/// Predicts the speed of many drafting settings: acceptance by replay of a recording, cost from a machine
/// profile. All trees of a head share one pass over the recording (engine/replay/path_ranks.h).
namespace draftscope {

class DebugGate;

/// The trees of a sweep.
struct TreeGrid {
    int chain = 6;                                   ///< longest chain; 0 = no chains
    std::vector<int> topks = {2, 4};                 ///< of dynamic trees; empty = chains alone
    int depth = 3;                                   ///< deepest dynamic tree, as in TreeSpec
    std::vector<int> nodes = {4, 6, 8, 12, 16, 24};  ///< of dynamic trees, root included
    /// Chains of adaptive length: "adaptive:exllama,max=6".
    std::vector<std::string> adaptive = {};
};

/// Options of `draftscope sweep`.
struct SweepConfig {
    /// Recording, model, weights of heads, precision, threads and max_new. Drafter, heads and tree are below.
    ReplayConfig replay;
    std::vector<std::string> drafters = {"eagle3"};  ///< NAME[:PATH]
    std::vector<std::string> heads;  ///< specs; "fr-spec:v=2048|4096" stands for one head per value
    bool only_usable =
        false;  ///< run_search() leaves out heads that lack their files, instead of refusing them
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

/// Upper bound of the settings of one sweep.
inline constexpr std::size_t max_sweep_settings = 100000;

/// What stays loaded between the sweeps of one recording. Start with an empty one.
struct SweepModels {
    std::shared_ptr<const DecodeRecording> recording;
    ReplayModels models;  ///< of the first sweep's precision and threads
    std::map<std::pair<std::string, std::string>, std::shared_ptr<Drafter>> drafters;  ///< by id and path
};

/// Runs the sweep and its advice. Blocks. An empty grid, more than max_sweep_settings settings, and a profile
/// of another precision, vocabulary or back end are bad_input.
Result<SweepReport> run_sweep(const SweepConfig& config, const JobHooks& hooks);
/// As run_sweep(), without the advice. Sweeps with the same recording may share `loaded`.
Result<SweepReport> sweep_settings(const SweepConfig& config, const JobHooks& hooks, SweepModels& loaded);
/// Adds the advice, and saves the sweep if `config` names a file.
Status finish_sweep(const SweepConfig& config, SweepReport& report);

/// Returns the trees of a grid: chains, those of adaptive length, then dynamic trees with fewer nodes than
/// candidates. Bad specs of lengths are left out.
std::vector<TreeSpec> list_trees(const TreeGrid& grid);

/// Sweeps coarse to fine over drafters, heads, their sizes and trees. Chains rank the heads and sizes; the
/// fastest of them are swept with grown trees, and the best of these with further top-k and depths. `config`
/// is as for run_sweep(), but its trees are ignored, and no heads stand for all that are usable. Later steps
/// keep whatever is near the fastest, so that a single conversation hardly decides what they sweep. The
/// result is saved at the end, in place of what `config.save` had. `on_settings` gets the settings so far.
Result<SweepReport> run_search(const SweepConfig& config, const JobHooks& hooks,
                               const std::function<void(const SweepReport&)>& on_settings = {});

/// Advises a setting of the smallest batch (choose_setting()), or plain decoding if no setting is predicted
/// to gain. `report` has settings.
Advice advise(const SweepReport& report);

/// Returns vLLM's and SGLang's options for a drafter and tree, as of vLLM 0.11 and SGLang 0.5.
std::vector<std::string> serving_options(const std::string& drafter, const TreeSpec& tree);

/// Options of `sweep --confirm`.
struct ConfirmConfig {
    int count = 0;             ///< settings to run, the fastest of the Pareto front; 0 = none
    std::string prompts_file;  ///< of the live runs
    int limit = 0;             ///< conversations, 0 = all
};

/// Checks whether the settings of a sweep could be run live. The profile's back end must be here, and the
/// prompts must be given.
Status check_confirm(const SweepConfig& config, const ConfirmConfig& live);

/// Runs the front's fastest settings of the first batch in turns with plain decoding, on this machine.
Result<std::vector<ConfirmedSetting>> confirm(const SweepReport& report, const SweepConfig& config,
                                              const ConfirmConfig& live, DebugGate& gate,
                                              const JobHooks& hooks);
/// Runs methods in turns with plain decoding. `run` has the prompts and everything but the methods, which are
/// in the syntax of parse_bench_method(). If cancelled, returns an error.
Result<std::vector<ConfirmedSetting>> run_live(const SweepReport& report, const RunConfig& run,
                                               std::vector<std::string> methods, DebugGate& gate,
                                               const JobHooks& hooks);

/// Runs a sweep or a search for the window, with the defaults of the commands.
Result<std::shared_ptr<const SweepReport>> run_window_sweep(const SweepRequest& request,
                                                            const JobHooks& hooks);

/// Returns whether a capture holds swept settings and no run.
Result<bool> is_sweep_file(const std::string& path);

/// Joins the sweeps of `files`, saved by the shards of one command, to one sweep in the new file `out`.
/// `profile` is the file that they were swept with. The result equals the sweep of the whole recording.
/// bad_input names what differs between two files, and a shard that is missing, doubled or incomplete.
/// Returns the number of settings.
Result<std::size_t> pool_sweeps(const std::string& out, const std::vector<std::string>& files,
                                const std::string& profile);

}  // namespace draftscope
