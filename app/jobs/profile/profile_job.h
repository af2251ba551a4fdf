#pragma once

#include <string>
#include <vector>

#include "app/jobs/commands/run_config.h"
#include "base/job_hooks.h"
#include "base/result.h"
#include "engine/heads/registry.h"
#include "engine/tree/draft_tree.h"
#include "stats/machine_profile.h"

/// Measures the machine profile of a model. It decodes short texts under many settings and fits the times of
/// the parts of their steps.
namespace draftscope {

/// Options of `draftscope profile-machine`. Empty lists stand for defaults, which its --help names.
struct ProfileConfig {
    RunConfig run;       ///< model, backend, precision, threads, weights of heads; the rest is ignored
    std::string out;     ///< file to write; one that exists is continued
    std::string source;  ///< program and version
    std::string name;    ///< what the machine is called; "" = its CPU or GPU
    std::string note;
    std::vector<std::string> drafters;  ///< NAME[:PATH]; the first one also drafts the verified trees
    std::vector<std::string> heads;     ///< ids
    std::vector<int> contexts;          ///< tokens of a prompt
    std::vector<int> batches;
    int rounds = 12;  ///< counted steps of a measurement
};

/// Measures what `config.out` does not hold yet, and saves after each measurement. A file of another
/// machine, model, precision or backend is bad_input. If cancelled, the file is marked incomplete.
Result<MachineProfile> run_profile(const ProfileConfig& config, const JobHooks& hooks);

/// A head with one value of its size parameter.
struct SizedHead {
    HeadSpec spec;
    double size = 0;  ///< 0 = as the spec's defaults have it
};
/// Returns a head at each of the sizes that profiles measure. Empty if its size cannot vary.
std::vector<SizedHead> sized_heads(const HeadInfo& info, int vocab, int hidden);

/// Returns the name of a drafter's costs in a profile. It is the id, and of a language model also the name of
/// its file and its precision: "draft-model:small.gguf,precision=int4".
std::string cost_name(std::string_view drafter);
/// Returns the step of a method, in the syntax of parse_bench_method(). A method that drafts must name a
/// tree.
Result<StepSetting> to_step_setting(const std::string& method, double committed, double context, int batch);
/// Predicts the step of a method, in the syntax of parse_bench_method(), which must name a tree.
Result<StepCost> predict_method(const MachineProfile& profile, const std::string& method, double committed,
                                double context, int batch);

}  // namespace draftscope
