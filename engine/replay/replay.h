#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/result.h"
#include "engine/recording/recording.h"
#include "engine/replay/draft_overlap.h"
#include "engine/shadow/replay_runner.h"

namespace draftscope {

struct ReplayOptions {
    TreeSpec tree;
    int batch = 16;            ///< prompts replayed in lockstep; the result does not depend on it
    int max_new = 0;           ///< texts are cut to this many generated tokens; 0 = as recorded
    bool covered_prob = true;  ///< also compute covered probabilities: one LM head call per token
    /// Also draft chains of the tree's levels with each head, and sum the overlap of the distributions.
    /// Requires `covered_prob`.
    bool overlap = false;
    /// Receives the phases of all drafting, which is done once more for it without the catch-up; null = none.
    PhaseRecorder* phases = nullptr;
    std::function<bool()> cancelled;
    std::function<void(double fraction)> on_progress;
    /// Called with the tree of every round of replay(), in the order of a prompt's rounds. The candidates are
    /// those that the tree was chosen from.
    std::function<void(std::size_t head, std::size_t prompt, const DraftTree& tree,
                       const DraftCandidates& candidates, const HeadRound& round)>
        on_round;
};

/// Rounds of each head along each prompt: rounds[head][prompt]. A drafter without a head has one row.
struct ReplayResult {
    std::vector<std::vector<std::vector<HeadRound>>> rounds;
    /// Share of generated positions at which the LM head's best token is the recorded one. It is about 1 for
    /// the recorded target's LM head. Absent without covered probabilities.
    std::optional<double> agreement;
    /// By level of the chains: overlaps[head][prompt][level]. Empty if not requested, or for a head that
    /// knows the recorded text.
    std::vector<std::vector<std::vector<LevelOverlap>>> overlaps;
};

/// Drafts along the recording with every head, as a live run under exact-match verification would
/// (docs/FORMATS.md, Traces: conditions of exactness). Of the target, only embedding and LM head are read.
/// `heads` are prepared; the span is empty for a drafter without a head.
Result<ReplayResult> replay(const DecodeRecording& recording, const Target& target, Drafter& drafter,
                            std::span<const ReplayHead> heads, kernels::Backend& backend,
                            const ReplayOptions& options);

/// Checks that the recording has the drafter's features; bad_input names what is missing.
Status check_recording_features(const DecodeRecording& recording, const Drafter& drafter,
                                std::string_view name);

}  // namespace draftscope
