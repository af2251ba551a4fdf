#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "base/result.h"
#include "engine/fit/fit_head.h"
#include "engine/fit/joint.h"

namespace draftscope {

/// Everything of a `draftscope fit`, as text a person would type. "" and 0 = default.
struct FitConfig {
    std::string head;                 ///< registry id, or "rdk"
    std::vector<std::string> traces;  ///< folders, all of one target; not for rankings from text
    std::string model;                ///< target's files; "" = what the trace carries, or the demo model
    std::string drafter = "eagle3";   ///< NAME[:PATH]
    std::string out;                  ///< artefact or ranking to write
    std::string text;                 ///< raw text to rank tokens by (fr-spec, pa-fr)
    std::string ranking;              ///< ranking file; "" = counted on the trace
    std::string rank;                 ///< "72" or "72/36"
    std::string tree;                 ///< of the drafted rows; "" = the backend's default
    std::string precision = "auto";
    int threads = 0;
    bool overwrite = false;
    bool weights =
        false;  ///< bcl: train rows of its size too, not its ranking alone; joint training implies it
    bool joint = false;   ///< train the drafter with the head
    double lambda = 0.1;  ///< of SpecVocab's joint loss (its best of four)
    fit::JointOptions joint_options;
    fit::FitOptions options;
};

struct FitReport {
    std::string head, target, drafter, out;
    bool joint = false;
    std::map<std::string, std::string, std::less<>> parameters;
    fit::Report held_out;  ///< also the artefact's metadata `report`
    fit::Report notes;     ///< rows, steps, divergences on the way
    std::uint64_t bytes = 0;
    double seconds = 0;
};

struct FitHooks {
    std::function<void(double fraction, const std::string& what)> on_progress;  ///< fraction < 0 = unknown
    std::function<bool()> cancelled;
};

/// Fits one head and writes its file, whole or not at all; a jointly trained drafter goes to the folder
/// OUT.drafter beside it (OUT without its ending). Blocks. The same config gives the same file, byte
/// for byte, on one machine, at any thread count.
Result<FitReport> run_fit(const FitConfig& config, const FitHooks& hooks);

/// Heads that have something to fit: registry ids, and "rdk".
std::vector<std::string> fittable_heads();

}  // namespace draftscope
