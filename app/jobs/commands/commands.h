#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "app/jobs/commands/kernel_report.h"
#include "app/jobs/commands/run_config.h"
#include "app/jobs/commands/sweep_report.h"
#include "base/units.h"
#include "capture/record.h"
#include "stats/compare.h"

/// Commands from the window to the jobs, and the status that the jobs report. Plain data: panels include only
/// this header and capture/.
namespace draftscope {

/// One of the two runs of the Compare panel, which shows the comparison of `draftscope compare`.
struct CompareSide {
    std::string source;  ///< Snapshot::source; "" = the capture that this window records
    RowId run_id = 0;
    bool operator==(const CompareSide&) const = default;
};
struct CompareChoice {
    CompareSide a, b;
    bool force = false;
    bool operator==(const CompareChoice&) const = default;
};
struct CompareReport {
    CompareChoice choice;
    std::optional<Comparison> comparison;
    std::string refusal;       ///< why `comparison` is absent
    bool may_force = false;    ///< true if `force` allows the comparison
    std::size_t rounds_a = 0;  ///< rounds of each capture at the comparison, to detect that a run continued
    std::size_t rounds_b = 0;
};

/// Compares two runs. Incomparable runs give a report with `refusal`.
CompareReport make_compare_report(const CompareChoice& choice, const Snapshot& a, const Snapshot& b);

struct Snapshot;

/// What the command line depends on in a drafter: it rejects options without effect. The defaults are those
/// of an unknown drafter.
struct DrafterTraits {
    bool drafts = true;          ///< false: one token per round
    bool uses_head = true;       ///< drafts through --head
    bool needs_weights = false;  ///< a checkpoint or a model of its own
};
/// Returns the equivalent `draftscope run ...` command line; `drafter` describes config.drafter.
std::string to_command_line(const RunConfig& config, DrafterTraits drafter);

/// Starts a run; replaces the current one.
struct CmdStart {
    RunConfig config;
    bool forecast = false;  ///< afterwards, forecast the fastest setting (JobStatus::forecast)
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
    std::optional<int> round = {};
    std::optional<TokenId> token_id = {};
    std::optional<double> step_ms = {};
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
/// Opens another capture for comparisons with the one that is shown, until CmdOpenFile shows a third.
struct CmdOpenOther {
    std::string path;
};
/// Compares two runs of open captures, on a separate thread.
struct CmdCompare {
    CompareChoice choice;
};
struct CmdSaveCopy {
    std::string path;
    std::string source = {};  ///< Snapshot::source of the capture to save
};
/// Adds a note on a round to the shown capture and to its file.
struct CmdAddNote {
    NoteRow note;
};
/// Sends prompts to a running server of another engine. Its rounds become a run of the shown capture.
struct CmdWatchServer {
    std::string url;
    /// Its prompts, `max_new`, `temperature` and `seed`. `model` gives the texts of tokens; "" = unknown.
    RunConfig prompts;
};
/// Measures the kernels; no other job runs meanwhile.
struct CmdMeasureKernels {
    KernelSettings settings;
};
/// Sweeps or searches settings; no other job runs meanwhile.
struct CmdSweep {
    SweepRequest request;
};
/// Finds the fastest setting for a run's model, drafter and prompts (app/jobs/sweep/find_fastest.h); no other
/// job runs meanwhile.
struct CmdFindFastest {
    RunConfig config;
};
/// Replays a setting along a conversation. It becomes a run of the shown capture, without times.
struct CmdReplaySetting {
    SettingReplay setting;
};
/// Drafts a round of the shown capture again with another setting (JobStatus::what_ifs).
struct CmdWhatIf {
    WhatIf wanted;
};

/// Values of the window's forms. A form that was not shown yet is absent.
struct FormValues {
    RunConfig run;
    std::optional<SweepRequest> sweep = {};
    std::optional<KernelSettings> kernels = {};
    bool operator==(const FormValues&) const = default;
};
/// Checks the forms on a separate thread (JobStatus::checked).
struct CmdCheck {
    FormValues values;
};
/// A field whose value prevents a job.
struct Mistake {
    std::string field;         ///< its label; "" = not a single field
    std::string message;       ///< one line
    std::string nearest = {};  ///< the nearest valid value; "" = unknown
};
/// What is wrong in the forms. The messages speak of fields, not of options.
struct FormCheck {
    FormValues values;  ///< that were checked
    std::vector<Mistake> run = {}, sweep = {}, kernels = {};
};
/// Returns a message for the window: with the labels of its fields instead of the options of the command
/// line. Commands that it quotes stay.
std::string to_window_words(std::string_view message);
using Command = std::variant<CmdStart, CmdStop, CmdPause, CmdResume, CmdStepPhase, CmdStepLevel, CmdStepRound,
                             CmdBreakpoints, CmdWatch, CmdOpenFile, CmdOpenOverlay, CmdOpenOther, CmdCompare,
                             CmdSaveCopy, CmdAddNote, CmdWatchServer, CmdMeasureKernels, CmdSweep,
                             CmdFindFastest, CmdReplaySetting, CmdWhatIf, CmdCheck>;

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

/// A round that was drafted again.
struct WhatIfResult {
    WhatIf wanted;
    std::shared_ptr<const Snapshot> snapshot;  ///< one run with one round
};

enum class JobState { idle, loading, running, held, stopping };

/// Beginnings of JobStatus::activity during a sweep, the replay of a setting, and while a server is watched.
inline constexpr const char* sweeping_activity = "sweeping: ";
inline constexpr const char* watching_activity = "watching the server: ";
inline constexpr const char* replaying_activity = "replaying: ";

/// What the machine has and what is installed, found once.
struct WindowChoices {
    std::vector<HeadChoice> heads;
    std::vector<DrafterChoice> drafters;
    std::vector<RuleChoice> rules;
    std::string default_model;          ///< path of the demo model
    std::vector<std::string> models;    ///< GGUF files and model folders of the caches
    std::vector<std::string> profiles;  ///< machine profiles that ship with the program
    std::string capability_line;        ///< what the machine can measure
    std::string capability_details;     ///< one capability per line, with remedies
};

/// Status of the jobs for the window, besides the snapshot. Copied under a lock once a frame.
struct JobStatus : WindowChoices {
    JobState state = JobState::idle;
    std::string activity;     ///< "packing weights", "prompt 3 of 24"
    double progress = -1;     ///< 0..1, < 0 = unknown
    std::string hold_reason;  ///< while held: "paused", "breakpoint: ..."
    HoldPoint hold_point;     ///< while held
    std::string error;        ///< last error, one mistake per line; "" = none
    std::string error_field;  ///< label of the Session panel's field that `error` begins with; "" = none
    RunConfig config;         ///< of the current or last run
    std::shared_ptr<const FormCheck> checked =
        std::make_shared<const FormCheck>();  ///< of the last CmdCheck; never null
    /// The fastest setting here by the forecast after a run, in one line; "" = unknown.
    std::string forecast;
    std::string opened_file;                              ///< "" = live
    std::shared_ptr<const Snapshot> overlay;              ///< timeline of another profiler; null = none
    std::vector<std::shared_ptr<const Snapshot>> others;  ///< captures open for comparison
    std::shared_ptr<const CompareReport> comparison;      ///< the last comparison; null before the first
    bool comparing = false;                               ///< a comparison is in progress
    std::shared_ptr<const KernelReport> kernels;          ///< the last measurement; null before the first
    std::vector<WhatIfResult> what_ifs;                   ///< of this window, in the order of their commands
    std::optional<FindStep> finding;  ///< step of CmdFindFastest; absent = none is in progress
    /// Sweeps of this window, newest first, then those of the opened file.
    std::vector<std::shared_ptr<const SweepReport>> sweeps;
    std::string saved_file;  ///< path of the last saved copy
    int saved_files = 0;     ///< number of saved copies
};

}  // namespace draftscope
