#pragma once

#include <string>
#include <vector>

#include "app/jobs/sweep/sweep_job.h"
#include "stats/setting_choice.h"

namespace draftscope {

/// What to run, from the settings of a sweep.
struct Advice {
    SettingChoice choice;
    std::string summary;               ///< which setting, why, how sure, the runner-up, in a few sentences
    std::vector<std::string> changes;  ///< what would change the choice, a sentence each
    std::string run_line;              ///< the `draftscope run` command
    /// Options of serving stacks for the drafter and tree, "vLLM: ..."; empty if they know no such drafter.
    /// They draft with the full head.
    std::vector<std::string> serving;
};
/// Advises a setting of the smallest batch (choose_setting()), or plain decoding if no setting is predicted
/// to gain. `report` has rows. `model` is as for `run`; "" = the demo model.
Advice advise(const SweepReport& report, const std::string& model);

/// Returns vLLM's and SGLang's options for a drafter and tree, as of vLLM 0.11 and SGLang 0.5.
std::vector<std::string> serving_options(const std::string& drafter, const TreeSpec& tree);

}  // namespace draftscope
