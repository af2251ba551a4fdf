#pragma once

#include <span>
#include <string>

#include "app/jobs/resolve/resolve.h"
#include "engine/decode/session.h"
#include "engine/tokenizer/tokenizer.h"
#include "profiler/cupti/tier.h"

/// The settings of a run, as stored in the capture.
namespace draftscope {

struct RunDescription {
    const ResolvedRun& run;
    const TierChoice& tier;
    const Tokenizer& tokenizer;
    const LmHead* head = nullptr;              ///< the driving head; null = none
    std::span<const ShadowHead> shadows = {};  ///< shadow heads of the run
    bool baseline = false;                     ///< the baseline of the next run
};
/// Returns `config_json` of the run's database row.
std::string config_json(const RunDescription& about);

/// Returns the settings to decode the first `conversations` of `run` without a drafter.
ResolvedRun make_plain_run(const ResolvedRun& run, std::size_t conversations);

/// Returns a hash of the contents of weights: 16 hexadecimal digits over samples of a file, or of every
/// weights file of a folder. For a synthetic model, returns its spec; "" if there is no path or it can't be
/// read.
std::string hash_contents(const std::string& path);

}  // namespace draftscope
