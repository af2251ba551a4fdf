#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "app/jobs/commands/commands.h"
#include "app/jobs/commands/run_config.h"
#include "base/notes.h"
#include "base/result.h"
#include "engine/decode/session.h"
#include "engine/heads/head.h"
#include "engine/tree/draft_tree.h"
#include "engine/verify/simulated_acceptance.h"
#include "kernels/matrix.h"
#include "profiler/cupti/tier.h"
#include "stats/sweep_table.h"

namespace draftscope {

/// A tree with its measured acceptance by conversation.
struct TreeAcceptance {
    TreeShape tree;
    std::vector<SweepUnit> units;
};
/// Acceptance of trees by head spec, of a drafter of the demo model. It is shipped: --tree quick forecasts
/// from it instead of from pilot rounds.
using ShippedAcceptance = std::map<std::string, std::vector<TreeAcceptance>>;

/// Returns the table of one drafter in assets/demo_acceptance.json, which tools/make_acceptance_table.py
/// makes; empty if none is shipped.
Result<ShippedAcceptance> load_shipped_acceptance(const std::string& drafter);
/// Reads the table of one drafter from `path`.
Result<ShippedAcceptance> read_acceptance(const std::string& path, const std::string& drafter);

/// A head that --head auto may choose, with its files.
struct HeadCandidate {
    HeadSpec spec;
    HeadFiles artefacts;
};

/// A config converted to the engine's types, with every field checked.
struct ResolvedRun {
    RunConfig config;        ///< with defaults filled in; backend is cpu or cuda
    TreeSpec tree;           ///< under --tree auto, the default until the pilot has chosen
    bool auto_tree = false;  ///< --tree auto or quick
    /// --tree quick: the acceptance that forecasts use; empty under auto, whose pilot measures acceptance.
    ShippedAcceptance shipped;
    std::vector<SweepSetting> forecasts;  ///< of the pilot
    /// --head auto: every head whose files are present; under quick, only those in `shipped`. `head` is the
    /// first until the pilot has chosen.
    std::vector<HeadCandidate> head_candidates;
    RulePtr verify = match_rule();                  ///< --verify
    std::optional<SimulatedAcceptance> acceptance;  ///< absent = the target decides
    std::optional<HeadSpec> head;                   ///< absent for drafters without one
    HeadFiles artefacts;
    std::string pair;        ///< "pair:TEXT+" before the drafter that the next fields describe; "" = none
    std::string drafter_id;  ///< its heads are those of this drafter
    std::string drafter_path;
    std::string ranking_path;                     ///< token ranking for coverage; "" = none for this target
    std::optional<kernels::Precision> precision;  ///< absent = auto
    Tier tier = Tier::t0;                         ///< as requested
    bool gpu = false;                             ///< computes on a CUDA device
    int library_rows = 0;  ///< --numerics fast: minimum rows of a library's product; 0 = exact
    bool demo_model = false;
    Notes notes;  ///< how paths were found

    /// Returns the acceptance rule in effect: that of --verify, unless acceptance is simulated or the
    /// temperature is 0.
    RulePtr rule() const;
    /// Returns the drafter's name in reports, "eagle3" or "pair:suffix+eagle3".
    std::string drafter_name() const { return pair + drafter_id; }
    /// Returns the precision to load the target with. The demo is int8 at auto, as its recorded acceptance.
    std::optional<kernels::Precision> load_precision() const;
};
/// Returns the tree that a back end, cpu or cuda, uses if none is named.
std::string default_tree(std::string_view backend);
/// Checks and converts a config. `replay` allows heads that need future tokens.
Result<ResolvedRun> resolve_run(const RunConfig& config, bool replay = false);

/// Fills in defaults: the demo model, the demo checkpoint of a drafter, the demo ranking for fr-spec.
Result<RunConfig> resolve_defaults(RunConfig config);

/// Splits "slimspec:rank=72,fr-spec:v=8192,bytes=1" into specs. A piece `key=value` without a colon continues
/// the previous spec.
std::vector<std::string> split_specs(const std::string& list);
/// A head of --shadow. "slimspec" follows the text at its own pace; "aligned:slimspec" drafts in the rounds
/// of the driving head.
struct ResolvedShadow {
    ResolvedRun run;  ///< as if the head ran by itself
    bool aligned = false;
};
/// Returns the heads of --shadow, checked against `run`.
Result<std::vector<ResolvedShadow>> resolve_shadows(const ResolvedRun& run);
/// Checks a config without loading a model: unknown head or drafter, bad tree, missing files.
Status validate(const RunConfig& config);
/// Replaces drafter "auto" by the checkpoint that comes with the target, else by suffix decoding.
void choose_drafter(RunConfig& config);

/// Returns the mistakes of a config, at most one per field; empty if a run can start. Fields are those of the
/// Session panel. After each mistake its field is set to the default and the search continues.
std::vector<Mistake> find_mistakes(RunConfig config);
/// Returns the valid value nearest to `value`; "" = the message on it names none. Parts that messages refuse
/// are replaced by what they name, until `check` has no message or names nothing.
std::string nearest_valid(std::string value, std::string message,
                          const std::function<std::string(const std::string&)>& check);
/// Returns the message without the option or the name that it begins with, which the field's label says.
std::string without_option(const std::string& message);

/// Returns one line per mistake: the field's label and the message.
std::string to_text(const std::vector<Mistake>& mistakes);

}  // namespace draftscope
