#pragma once

#include <span>
#include <string>

#include "app/jobs/resolve.h"
#include "engine/model/tokenizer.h"
#include "engine/session/session.h"
#include "profiler/tier.h"

/// What a capture says about how a run was made.
namespace draftscope {

struct RunDescription {
    const ResolvedRun& run;
    const TierChoice& tier;
    const Tokenizer& tokenizer;
    const Head* head = nullptr;                ///< of the run, null without one
    std::span<const ShadowHead> shadows = {};  ///< beside it
    bool baseline = false;                     ///< decoded as the reference of the run after it
};
/// `config_json` of the run's row.
std::string config_json(const RunDescription& about);

/// The settings under which the first `conversations` of `run` are decoded without a drafter.
ResolvedRun plain_run_of(const ResolvedRun& run, std::size_t conversations);

/// Names the contents of weights, wherever they lie: 16 hexadecimal digits over samples of a file, or of
/// every weights file of a folder. A synthetic model's own spec; "" for no path and for what can't be read.
std::string contents_hash(const std::string& path);

}  // namespace draftscope
