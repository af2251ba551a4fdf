#pragma once

#include <string>
#include <vector>

#include "engine/control/debug_gate.h"
#include "engine/draft/drafter.h"
#include "engine/record/capture_emitter.h"
#include "engine/verify/acceptance_rule.h"

namespace draftscope {

/// Maximum number of sequences decoded in lockstep (our default).
inline constexpr int max_batch = 1024;

/// A head evaluated in addition to the driving one. A self-paced head follows the text with its own rounds;
/// an aligned head drafts in rounds of the driving head.
struct ShadowHead {
    std::string text;  ///< canonical spec, for head_eval rows
    LmHead* head = nullptr;
    bool aligned = false;
};

struct DecodeOptions {
    TreeSpec tree;
    Sampling sampling;
    RulePtr rule = match_rule();  ///< at temperature 0, exact match replaces it (rule_in_effect())
    int batch = 1;                ///< sequences in lockstep
    int max_new = 128;
    bool ignore_eos = false;
    int warmup_steps = 2;  ///< first steps of a run, excluded from statistics; our default
    /// Rounds of each prompt in which the full head also drafts (every second one), as a reference.
    int calibration_rounds = 0;
    /// Time of the run in which the full head may follow texts that have ended, with batch 1; 0 = it does
    /// not.
    TimeNs full_shadow_ns = 0;
    bool record_nodes = true;
    /// On a device, every Nth step records spans, whose marks on its queue cost time. On the CPU, every step.
    int span_interval = 1;
    /// Evaluated by exact match: they need a recorded run under that rule and a drafter that uses a head.
    std::vector<ShadowHead> shadows;
};

/// What a session decodes with. Everything that it refers to outlives the session.
struct DecodeSetup {
    Target& target;
    Drafter& drafter;
    LmHead* head = nullptr;       ///< may be null only for drafters that use none
    LmHead* full_head = nullptr;  ///< for calibration rounds; may be null
    kernels::Backend& backend;
    PhaseRecorder& phases;
    DebugGate& gate;
    DecodeOptions options;
    CaptureOutput output;
};

}  // namespace draftscope
