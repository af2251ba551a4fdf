#pragma once

#include <string>
#include <vector>

#include "app/jobs/resolve/resolve.h"
#include "base/result.h"
#include "engine/formats/model_config.h"

/// The ways in which stacks read one checkpoint differently.
namespace draftscope {

/// One other value of a drafter option.
struct OtherValue {
    std::string option;  ///< "layers"; precision_option is no option of the drafter
    std::string value;   ///< "3/16/28"
    std::string fault;   ///< what is wrong with the checkpoint as given, if this value fits
};
inline constexpr std::string_view precision_option = "precision";

/// The readings of a checkpoint.
struct Readings {
    std::vector<std::vector<OtherValue>> others;  ///< other values of each option, by option
    std::vector<int> layers;  ///< feature layers of all readings, ascending: what a recording must have
};
/// Returns the readings that the checkpoint leaves open. `run` names the drafter, `target` is its config and
/// `precision` that of the replay. A drafter that is no EAGLE checkpoint has only other precisions.
Result<Readings> find_readings(const ResolvedRun& run, const ModelConfig& target,
                               kernels::Precision precision);

/// Returns the drafter's spec, "eagle3:PATH,layers=3/16/28", with the changes that are its options.
Result<std::string> changed_drafter(const ResolvedRun& run, const std::vector<OtherValue>& changes);

}  // namespace draftscope
