#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "app/jobs/commands/compare_report.h"
#include "app/jobs/commands/kernel_report.h"
#include "app/jobs/commands/shard.h"
#include "app/jobs/commands/sweep_view.h"
#include "base/units.h"
#include "capture/record.h"

/// Commands from the window to the jobs, and the status that the jobs report. Plain data: panels include only
/// this header and capture/.
namespace draftscope {

struct Snapshot;

/// A value of RunConfig::tree: choose from this machine's times and the acceptance shipped with the demo
/// model.
inline constexpr const char* quick_tree = "quick";

/// Options of a run, as text that a user types. Used by the command line and the window. "" = default.
struct RunConfig {
    std::string model;               ///< "" = demo model
    std::string drafter = "eagle3";  ///< NAME[:PATH]
    std::string head = "full";
    std::vector<std::string> artefacts;  ///< HEAD=PATH
    std::string tree;                    ///< "" = the backend's default
    std::string verify = "match";
    std::string backend = "cpu";      ///< cpu, cuda, auto
    std::string numerics = "exact";   ///< exact, fast, fast:ROWS
    bool gpu_graphs = true;           ///< launch passes as CUDA graphs
    bool l2_window = false;           ///< keep a head's packed rows in the GPU's L2
    std::string acceptance = "real";  ///< real, rate:R, trace:FILE
    std::string precision = "auto";   ///< f32, bf16, int8, auto
    double temperature = 0;
    double top_p = 1.0;
    int top_k = 0;
    std::uint64_t seed = 0;
    int max_new = 128;
    int batch = 1;           ///< sequences decoded in lockstep
    int threads = 0;         ///< 0 = all cores (window: all but one)
    bool pin = false;        ///< pin each worker thread to a CPU
    std::string tier = "0";  ///< 0, 1, 2, 3: depth of the measurement (profiler/cupti/tier.h)
    bool ignore_eos = false;
    bool raw = false;          ///< no chat template
    std::string system;        ///< system turn of every conversation; "" = the chat template's own, if any
    std::string prompt;        ///< one prompt, or ...
    std::string prompts_file;  ///< ... JSONL
    int limit = 0;             ///< conversations, 0 = all
    bool balanced = false;
    Shard shard;                 ///< of the conversations that limit and balanced select
    int baseline = 0;            ///< conversations also decoded without a drafter
    std::string shadow;          ///< shadow heads, in the syntax of --heads; "" = none
    int calibration_rounds = 4;  ///< rounds of each prompt in which the full head also drafts; 0 = off
    std::string save;            ///< capture file, "" = none
    bool overwrite = false;
    bool resume = false;            ///< continue the run that `save` holds
    std::int64_t save_rows = 0;     ///< the capture's limit in rows, 0 = none
    std::uint64_t save_size = 0;    ///< ... and in bytes
    bool save_ring = false;         ///< at the limit, drop the oldest steps; otherwise stop recording
    bool drop_when_full = false;    ///< drop and count rows instead of blocking when the disk is slow
    std::vector<std::string> tags;  ///< KEY=VALUE, stored with the run
    bool operator==(const RunConfig&) const = default;
};
/// What the command line depends on in a drafter: it rejects options without effect. The defaults are those
/// of an unknown drafter.
struct DrafterTraits {
    bool drafts = true;     ///< false: one token per round
    bool uses_head = true;  ///< drafts through --head
};
/// Returns the equivalent `draftscope run ...` command line; `drafter` describes config.drafter.
std::string to_command_line(const RunConfig& config, DrafterTraits drafter);

/// Starts a run; replaces the current one.
struct CmdStart {
    RunConfig config;
};
struct CmdStop {};
struct CmdPause {};
struct CmdResume {};
struct CmdStepPhase {};
struct CmdStepLevel {};
struct CmdStepRound {};
/// Replaces the breakpoints of the engine; the default = none. Fields as in the engine's Breakpoints.
struct CmdBreakpoints {
    std::optional<int> rejection_depth;
    bool out_of_vocabulary = false;
    bool slow_phase = false;
    bool end_of_text = false;
    std::string text{};
    bool operator==(const CmdBreakpoints&) const = default;
};
/// Selects the sequence of a batch whose round in flight a held engine shows.
struct CmdWatch {
    RowId prompt_id = 0;  ///< 0 = the first active sequence
};
struct CmdOpenFile {
    std::string path;
};
/// Shows another profiler's file as a read-only timeline under the capture; "" removes it.
struct CmdOpenOverlay {
    std::string path;
};
/// Opens another capture for comparisons with the one that is shown.
struct CmdOpenOther {
    std::string path;
};
/// Compares two runs of open captures, on a separate thread.
struct CmdCompare {
    CompareChoice choice;
};
struct CmdSaveCopy {
    std::string path;
};
/// Measures the kernels; no other job runs meanwhile.
struct CmdMeasureKernels {
    KernelSettings settings;
};
/// Sweeps or searches settings; no other job runs meanwhile.
struct CmdSweep {
    SweepRequest request;
};
/// Replays a setting along a conversation. It becomes a run of the shown capture, without times.
struct CmdReplaySetting {
    SettingReplay setting;
};
/// Runs `present`, then `advised`, for the Compare panel.
struct CmdTry {
    RunConfig present, advised;
};
using Command = std::variant<CmdStart, CmdStop, CmdPause, CmdResume, CmdStepPhase, CmdStepLevel, CmdStepRound,
                             CmdBreakpoints, CmdWatch, CmdOpenFile, CmdOpenOverlay, CmdOpenOther, CmdCompare,
                             CmdSaveCopy, CmdMeasureKernels, CmdSweep, CmdReplaySetting, CmdTry>;

/// Panels append; the shell hands them to the jobs between frames.
using Commands = std::vector<Command>;

/// A head that the Session panel offers.
struct HeadChoice {
    std::string spec;  ///< "fr-spec:v=8192"
    std::string name;
    std::string paper;
    std::uint32_t rgb = 0;
    bool usable = true;
    std::string why_not;                              ///< "no weights file: run draftscope fit ..."
    std::map<std::string, std::string> lacking = {};  ///< drafter without weights of this head -> why_not
};
/// Returns why the head cannot run with a drafter; "" = it can.
std::string why_not(const HeadChoice& head, const std::string& drafter);
/// A drafter that the Session panel offers.
struct DrafterChoice {
    std::string spec;
    std::string name;
    bool usable = true;
    std::string why_not;
    DrafterTraits traits = {};
};
/// Returns the traits of drafter "NAME" or "NAME:PATH" among `choices`.
DrafterTraits find_traits(const std::vector<DrafterChoice>& choices, const std::string& drafter);

/// An acceptance rule that the Session panel offers.
struct RuleChoice {
    std::string id;
    std::string summary;
    bool lossy = false;
    bool own_threshold = false;  ///< replaces top-p and top-k
};

enum class JobState { idle, loading, running, held, stopping };

/// Beginnings of JobStatus::activity during a sweep, and during the replay of a setting.
inline constexpr const char* sweeping_activity = "sweeping: ";
inline constexpr const char* replaying_activity = "replaying: ";

/// Status of the jobs for the window, besides the snapshot. Copied under a lock once a frame.
struct JobStatus {
    JobState state = JobState::idle;
    std::string activity;     ///< "packing weights", "prompt 3 of 24"
    double progress = -1;     ///< 0..1, < 0 = unknown
    std::string hold_reason;  ///< while held: "paused", "breakpoint: ..."
    HoldPoint hold_point;     ///< while held
    std::string error;        ///< last error, one mistake per line; "" = none
    RunConfig config;         ///< of the current or last run
    /// `config` with the drafter, head and tree that --tree quick or auto chose.
    std::optional<RunConfig> chosen;
    std::vector<HeadChoice> heads;
    std::vector<DrafterChoice> drafters;
    std::vector<RuleChoice> rules;
    std::string default_model;  ///< path of the demo model
    std::string capability_line;
    std::string capability_details;           ///< in detail, one capability per line, with remedies
    std::string opened_file;                  ///< "" = live
    std::shared_ptr<const Snapshot> overlay;  ///< timeline of another profiler; null = none
    std::vector<std::shared_ptr<const Snapshot>> others;  ///< captures open for comparison
    std::shared_ptr<const CompareReport> comparison;      ///< the last comparison; null before the first
    bool comparing = false;                               ///< a comparison is in progress
    std::shared_ptr<const KernelReport> kernels;          ///< the last measurement; null before the first
    /// Sweeps of this window, newest first, then those of the opened file.
    std::vector<std::shared_ptr<const SweepView>> sweeps;
    std::vector<std::string> profiles;  ///< machine profiles that ship with the program
    std::string saved_file;             ///< path of the last saved copy
    int saved_files = 0;                ///< number of saved copies
};

}  // namespace draftscope
