#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "app/jobs/commands/run_config.h"
#include "base/job_hooks.h"
#include "base/notes.h"
#include "base/result.h"
#include "engine/fit/fit_head.h"

namespace draftscope {

/// Options of `draftscope fit`, as text that a user types. "" and 0 = default.
struct FitConfig {
    std::string head;  ///< a head of the registry, or its suffix rdk
    std::vector<std::string>
        recordings;  ///< recordings (folders) of one target; unused for rankings from text
    /// Prompts, their limit and max_new: a draft model answers them by itself, in place of recordings.
    RunConfig own_run;
    std::string model;               ///< target's files; "" = weights in the recording, or the demo model
    std::string drafter = "eagle3";  ///< NAME[:PATH]
    std::string out;                 ///< artefact or ranking to write
    std::string text;                ///< raw text to rank tokens by
    std::string ranking;             ///< ranking file; "" = counted on the recording
    std::string rank;                ///< "72" or "72/36"
    std::string start;               ///< weights of this head to go on from; "" = the closed form
    std::string tree;                ///< tree of the drafted rows; "" = the backend's default
    std::string precision = "auto";
    int threads = 0;
    bool overwrite = false;
    bool weights = false;         ///< if a ranking suffices, train weights instead; implied by `joint`
    bool joint = false;           ///< train the drafter with the head
    std::string eos = "no";       ///< "yes": tokens that end the text are always in the vocabulary
    double lambda = 0.1;          ///< weight in SpecVocab's joint loss (the paper's best of four)
    std::string python;           ///< with PyTorch; "" = that of tools/with_torch.sh, or python3
    std::string device = "auto";  ///< of the training: "cpu", "cuda", or "auto"
    bool must_train = false;      ///< training was asked for, so the closed form alone is not enough
    fit::JointOptions joint_options;
    fit::FitOptions options;
};

/// Result of a fit.
struct FitReport {
    std::string head, target, drafter, out;
    bool joint = false;
    std::map<std::string, std::string, std::less<>> parameters;
    fit::Report held_out;  ///< also the weights file's metadata `report`
    Notes file_notes;      ///< of the target's and the drafter's files
    fit::Report notes;     ///< rows, steps, divergences during training
    std::string remark;    ///< why a head stopped at the closed form; "" = it did not
    std::uint64_t bytes = 0;
    double seconds = 0;
};

/// Fits one head and writes its file atomically. A jointly trained drafter is written to the folder
/// OUT.drafter (OUT without its ending). A training that is interrupted leaves its checkpoint in
/// OUT.training, from which the same config continues. Blocks. Without training, the same config gives the
/// same bytes at any thread count; with it, at the same one.
Result<FitReport> run_fit(const FitConfig& config, const JobHooks& hooks);

}  // namespace draftscope
