#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "app/jobs/compare_report.h"
#include "app/jobs/kernel_report.h"
#include "base/units.h"

/// What the window asks of the jobs and what it may know of them. Plain data: panels include this and
/// capture/ only.
namespace draftscope {

struct Snapshot;

/// A value of RunConfig::tree: chosen from this machine's times and acceptance that ships with the demo
/// model.
inline constexpr const char* quick_tree = "quick";

/// Everything a run is made of, as text a person would type; the same struct comes from the command line and
/// the window. "" = default.
struct RunConfig {
    std::string model;               ///< "" = demo model
    std::string drafter = "eagle3";  ///< NAME[:PATH]
    std::string head = "full";
    std::vector<std::string> artefacts;  ///< HEAD=PATH
    std::string tree;                    ///< "" = the backend's default
    std::string verify = "match";
    std::string backend = "cpu";      ///< cpu, cuda, auto
    std::string numerics = "exact";   ///< exact, fast, fast:ROWS
    bool gpu_graphs = true;           ///< keep passes as CUDA graphs
    bool gpu_rounds = true;           ///< rounds that fit wait for the GPU once
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
    bool pin = false;        ///< keep each worker thread on a CPU of its own
    std::string tier = "0";  ///< 0, 1, 2, 3: how deep to measure (profiler/tier.h)
    bool ignore_eos = false;
    bool raw = false;          ///< no chat template
    std::string prompt;        ///< one prompt, or ...
    std::string prompts_file;  ///< ... JSONL
    int limit = 0;             ///< conversations, 0 = all
    bool stratify = false;
    int baseline = 0;            ///< prompts also decoded with `none`
    std::string shadow;          ///< heads that follow the text at their own pace, as in --heads; "" = none
    int calibration_rounds = 8;  ///< rounds in which the full head also drafts; 0 = off
    std::string save;            ///< capture file, "" = none
    bool overwrite = false;
    std::int64_t save_rows = 0;   ///< the capture's limit in rows, 0 = none
    std::uint64_t save_size = 0;  ///< ... and in bytes
    bool save_ring = false;       ///< at the limit forget the oldest steps, else record no more
    bool never_wait = false;      ///< a slow disk loses rows (counted) before it holds up the decoding
    bool operator==(const RunConfig&) const = default;
};
/// The `draftscope run ...` line that does the same.
std::string to_command_line(const RunConfig& config);

struct CmdStart {
    RunConfig config;
};
struct CmdStop {};
struct CmdPause {};
struct CmdResume {};
struct CmdStepPhase {};
struct CmdStepLevel {};
struct CmdStepRound {};
/// All that is to hold the engine from now on; the default = nothing. Meanings: Breakpoints of the engine.
struct CmdBreakpoints {
    std::optional<int> rejection_depth;
    bool out_of_vocabulary = false;
    bool slow_phase = false;
    bool end_of_text = false;
    std::string text{};
    bool operator==(const CmdBreakpoints&) const = default;
};
/// Of the sequences of a batch, the one whose round in flight a held engine shows.
struct CmdWatch {
    RowId prompt_id = 0;  ///< 0 = the first under way
};
struct CmdOpenFile {
    std::string path;
};
/// Another profiler's file as a read-only timeline beside what is shown; "" takes it away.
struct CmdOpenBeside {
    std::string path;
};
/// Another capture, kept beside the one that is shown for comparisons.
struct CmdOpenOther {
    std::string path;
};
/// Compares two runs of open captures; nothing else waits for it.
struct CmdCompare {
    CompareChoice choice;
};
struct CmdSaveCopy {
    std::string path;
};
/// Measures the kernels; nothing else runs meanwhile.
struct CmdMeasureKernels {
    KernelSettings settings;
};
using Command = std::variant<CmdStart, CmdStop, CmdPause, CmdResume, CmdStepPhase, CmdStepLevel, CmdStepRound,
                             CmdBreakpoints, CmdWatch, CmdOpenFile, CmdOpenBeside, CmdOpenOther, CmdCompare,
                             CmdSaveCopy, CmdMeasureKernels>;

/// Panels append; the shell hands them to the jobs between frames.
using Commands = std::vector<Command>;

struct HeadChoice {
    std::string spec;  ///< "fr-spec:v=8192"
    std::string name;
    std::string paper;
    std::uint32_t rgb = 0;
    bool usable = true;
    std::string why_not;  ///< "no artefact: run draftscope fit ..."
};
struct DrafterChoice {
    std::string spec;
    std::string name;
    bool usable = true;
    std::string why_not;
};

enum class JobState { idle, loading, running, held, stopping };

/// What the jobs tell the window besides the snapshot. Copied under a lock once a frame.
struct JobStatus {
    JobState state = JobState::idle;
    std::string activity;     ///< "packing weights", "prompt 3 of 24"
    double progress = -1;     ///< 0..1, < 0 = unknown
    std::string hold_reason;  ///< while held
    std::string error;        ///< last error, one mistake a line; "" = none
    RunConfig config;         ///< of the current or last run
    /// What `--tree quick` or `auto` chose for it: the same with drafter, head and tree named.
    std::optional<RunConfig> chosen;
    std::vector<HeadChoice> heads;
    std::vector<DrafterChoice> drafters;
    std::string default_model;  ///< path of the demo model
    std::string capability_line;
    std::string capability_details;          ///< the same at length, one capability a line, with remedies
    std::string opened_file;                 ///< "" = live
    std::shared_ptr<const Snapshot> beside;  ///< timeline of another profiler; null = none
    std::vector<std::shared_ptr<const Snapshot>> others;  ///< captures open for comparison
    std::shared_ptr<const CompareReport> comparison;      ///< the last one; null before the first
    bool comparing = false;                               ///< one is being worked out
    std::shared_ptr<const KernelReport> kernels;          ///< the last measurement; null before the first
    std::string saved_file;                               ///< of the last copy that was saved
    int saved_files = 0;                                  ///< grows with every copy saved
};

}  // namespace draftscope
