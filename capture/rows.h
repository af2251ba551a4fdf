#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/units.h"

/// One struct per table of the capture file (docs/FORMATS.md), with the same names and units. All `_ns`
/// fields count from the start of their run unless stated otherwise. Optional fields are NULL in SQL.
namespace draftscope {

/// How a run ended; `recovered` = repaired after its program was killed.
enum class RunEnd { live, ok, cancelled, error, recovered };
/// Why a prompt's output ended; `context` = the context was full.
enum class Finish { none, eos, length, context, cancelled };
/// Why a step's time does not count. `shadow`: another head drafted within it, in captures of older versions.
/// `untimed`: an imported step whose time is not known.
enum class Excluded : std::uint8_t { no, warmup, paused, shadow, untimed };
enum class TokenSource : std::uint8_t { prefill, draft, bonus };
/// How a head was evaluated: it drove the run, or shadowed the driving head.
enum class HeadMode : std::uint8_t { drive, selfpaced, aligned, calibration };

std::string_view to_text(RunEnd end);         ///< "" = live (NULL in SQL)
std::string_view to_text(Finish finish);      ///< "" = none
std::string_view to_text(Excluded excluded);  ///< "" = not excluded
std::string_view to_text(TokenSource source);
std::string_view to_text(HeadMode mode);
std::optional<RunEnd> run_end_from(std::string_view text);
std::optional<Finish> finish_from(std::string_view text);
std::optional<Excluded> excluded_from(std::string_view text);
std::optional<TokenSource> token_source_from(std::string_view text);
std::optional<HeadMode> head_mode_from(std::string_view text);

struct RunRow {
    RowId id = 0;
    std::string name;
    TimeNs started_monotonic = 0;  ///< time zero of the run; in the file as clock_anchor
    std::string started_utc;
    RunEnd ended = RunEnd::live;
    std::string frontend;  ///< "cli", "gui"
    std::string target;
    std::string drafter;  ///< resolved spec, e.g. "eagle2"
    std::string head;     ///< resolved spec, e.g. "fr-spec:v=8192"
    std::string tree;     ///< resolved spec, e.g. "depth=3,topk=4,nodes=12"
    std::string verify = "match";
    double temperature = 0.0;
    std::uint64_t seed = 0;
    int batch = 1;
    int threads = 1;
    std::string backend = "cpu";
    std::string precision;
    std::string numerics = "exact";
    std::string tier = "T0";
    bool synthetic = false;
    std::string acceptance = "real";
    RowId vocab_id = 0;
    std::string config_json = "{}";
    std::string machine_json = "{}";
};

struct PromptRow {
    RowId id = 0;
    RowId run_id = 0;
    int ordinal = 0;
    std::string external_id;
    int turn = 0;
    std::string suite;
    std::string category;
    std::string text;
    std::string output;
    int prompt_tokens = 0;  ///< negative = not known
    int generated_tokens = 0;
    TimeNs prefill_ns = 0;  ///< 0 = not known
    Finish finish = Finish::none;
};

struct StepRow {
    RowId id = 0;
    RowId run_id = 0;
    int ordinal = 0;
    TimeNs start_ns = 0;
    TimeNs end_ns = 0;
    TimeNs paused_ns = 0;
    Excluded excluded = Excluded::no;
    /// Whether the step's spans were recorded. If not, it counts, but its phases and T_head are unknown.
    bool sampled = true;

    TimeNs busy_ns() const { return end_ns - start_ns - paused_ns; }
    /// Whether every figure of time and speed includes the step. Its rounds count for acceptance in any case.
    bool time_counts() const { return excluded == Excluded::no; }
};

/// In imported rounds, negative numbers are not known: NULL in SQL.
struct RoundRow {
    RowId id = 0;
    RowId run_id = 0;
    RowId step_id = 0;
    RowId prompt_id = 0;
    int ordinal = 0;  ///< number of the round in its prompt
    TimeNs start_ns = 0;
    TimeNs end_ns = 0;
    int context_length = 0;  ///< committed tokens before the round, root included
    int tree_nodes = 0;      ///< root included
    int tree_depth = 0;
    int draft_tokens = 0;  ///< tree_nodes - 1
    int accepted = 0;      ///< draft tokens accepted, bonus token excluded
    int committed = 0;     ///< accepted + 1, after clipping at EOS and max-new
    bool clipped = false;
    std::string drafter;  ///< id of the drafter of a pair that drafted; "" = the run has one drafter
};

/// One node of a round's draft tree. The root has depth 0 and no parent; it is the last token committed
/// before the round.
struct NodeRow {
    RowId round_id = 0;
    int node = 0;
    int parent = -1;  ///< NULL in SQL for the root
    int depth = 0;
    TokenId token_id = no_token;
    float draft_logprob = 0;  ///< over the tokens the head can propose; 0 at the root
    float cum_logprob = 0;
    std::optional<float> target_prob;  ///< probability of this token given its parent path, by the target
    std::optional<int> target_rank;    ///< 0 = the target's most likely token after the parent
    bool accepted = false;
    TokenId target_token_id = no_token;  ///< token that the target emits after this node
    std::optional<float> target_token_prob;
    /// Whether the head's active set contained target_token_id at this node. Absent = not known.
    std::optional<bool> target_covered = true;
    /// Rank of target_token_id among the drafter's candidates after this node, 0 = its first. Their number if
    /// it is none of them. Absent = not known, or nothing was drafted from this node.
    std::optional<int> target_draft_rank = {};
    std::optional<float> target_draft_logprob = {};  ///< by the drafter; absent = none of its candidates
};

struct NodeTopRow {
    RowId round_id = 0;
    int node = 0;
    int rank = 0;  ///< 0..4
    TokenId token_id = no_token;
    float target_prob = 0;
};

struct TokenRow {
    RowId prompt_id = 0;
    int position = 0;    ///< index among the generated tokens, 0 = first
    RowId round_id = 0;  ///< 0 (NULL) for the token from prefill
    TokenId token_id = no_token;
    TokenSource source = TokenSource::draft;
    int depth = 0;            ///< depth in the round at which it was emitted, 1 = first token of the round
    std::optional<int> rank;  ///< frequency rank in the vocabulary ranking
    /// Whether the head's active set contained it at that depth. Absent = not known.
    std::optional<bool> covered = true;
};

struct SpanRow {
    RowId id = 0;
    RowId run_id = 0;
    RowId step_id = 0;
    RowId round_id = 0;  ///< 0 (NULL) if the span belongs to the whole step
    int phase_id = 0;    ///< Phase of base/phase.h
    int level = 0;
    int lane = 0;
    int thread_id = 0;
    TimeNs start_ns = 0;
    TimeNs end_ns = 0;
    int rows = 0;
    std::int64_t bytes = 0;
    int nesting = 0;  ///< not stored: 0 = outermost
};

struct GpuOpRow {
    RowId id = 0;
    RowId run_id = 0;
    RowId step_id = 0;
    int phase_id = 0;
    int stream = 0;
    std::string name;
    TimeNs start_ns = 0;
    TimeNs end_ns = 0;
    std::int64_t graph_node_id = 0;
    std::int64_t correlation_id = 0;
    std::string grid;
    std::string block;
    std::int64_t bytes = 0;
    int device = 0;     ///< CUDA ordinal
    int registers = 0;  ///< per thread; 0 = unknown, or not a kernel
};

struct NvtxRangeRow {
    RowId run_id = 0;
    std::string domain;
    std::string name;
    int thread_id = 0;
    TimeNs start_ns = 0;
    TimeNs end_ns = 0;
    std::int64_t payload = 0;
};

struct HeadEvalRow {
    RowId run_id = 0;
    RowId round_id = 0;
    std::string head;
    HeadMode mode = HeadMode::drive;
    double active_rows = 0;  ///< mean rows of the LM head matrix read per call of the round
    std::int64_t bytes = 0;  ///< per round
    TimeNs head_ns = 0;      ///< T_head of the round: router + head + topk + gather, exposed
    int accepted = 0;
    int committed = 0;
    int covered = 0;  ///< number of committed tokens that were in the active set
    std::optional<double>
        covered_mass;        ///< target probability of the active set, mean over the round's positions
    std::int64_t flops = 0;  ///< of the round's head calls: two per weight and row
    /// Tokens of one row's own shortlist, mean over the round's calls. Less than active_rows if the rows of a
    /// call choose their own. Absent in captures before version 7.
    std::optional<double> row_tokens = 0.0;
};

struct CounterRow {
    RowId run_id = 0;
    TimeNs time_ns = 0;
    std::string name;
    double value = 0;
};

/// Counter of a run: speed of the same prompts without a drafter, in tokens per second (`--baseline`).
inline constexpr std::string_view baseline_counter = "baseline_tokens_per_second";

struct LossRow {
    RowId run_id = 0;
    TimeNs time_ns = 0;
    std::string kind;  ///< "span_ring_full", "queue_full", ...
    std::int64_t count = 0;
};

struct ClockAnchorRow {
    RowId run_id = 0;
    TimeNs monotonic_ns = 0;  ///< absolute time of CLOCK_MONOTONIC
    TimeNs utc_ns = 0;        ///< absolute time of CLOCK_REALTIME
    std::optional<TimeNs> gpu_ns;
};

struct VocabRow {
    RowId vocab_id = 0;
    TokenId token_id = 0;
    std::string bytes;  ///< raw bytes of the token; may be invalid UTF-8
    std::string text;   ///< printable UTF-8
    std::optional<int> rank;
    std::optional<std::int64_t> count;
};

/// Beginnings of the texts of notes on rounds. The newest bookmark of a round counts.
inline constexpr std::string_view breakpoint_note = "breakpoint: ";
inline constexpr std::string_view bookmark_note = "bookmark: ";
inline constexpr std::string_view no_bookmark_note = "bookmark removed";

struct NoteRow {
    RowId run_id = 0;
    RowId round_id = 0;  ///< 0 = on the run
    TimeNs time_ns = 0;
    std::string text;
};

}  // namespace draftscope
