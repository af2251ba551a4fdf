#pragma once

#include "capture/queries.h"
#include "capture/run_setting.h"
#include "storage/column.h"
#include "storage/sweep_file.h"

/// The tables of the capture file, each described once (docs/FORMATS.md explains their columns). CREATE
/// TABLE, INSERT, SELECT, range checks, migrations and the merging of files follow from these descriptions.
///
/// A new column is a field of its row in capture/rows.h and a line here, last in its table, with
/// `.added_in(VERSION, DEFAULT)`. VERSION is the next capture_schema_version, with a step in
/// storage/migrate.cpp.
///
/// CHECK constraints cover only enums and flags. A capture must not stop because of an odd value; `check`
/// reports those.
namespace draftscope::storage {

/// Larger than any vocabulary in use. It limits what the token ids of a damaged file can allocate.
inline constexpr int max_token_id = 1 << 23;
inline constexpr int max_tree_size = 1 << 20;
inline constexpr int max_position = 1 << 30;

template <typename Row>
constexpr auto phase_ref(int Row::*field) {
    return ref("phase_id", field, "phase").range(0, max_phases - 1);
}

/// One row of step_phase with its step.
struct StoredStepPhase : StepPhaseRow {
    RowId run_id = 0, step_id = 0;
};

template <>
struct Table<RunRow> : TableOf<RunRow> {
    static constexpr std::string_view name = "run";
    static constexpr auto columns = std::tuple(
        key("id", &R::id), col("name", &R::name), col("started_utc", &R::started_utc),
        choice("ended", &R::ended, run_end_from), col("frontend", &R::frontend), col("target", &R::target),
        col("drafter", &R::drafter), col("head", &R::head), col("tree", &R::tree), col("verify", &R::verify),
        col("temperature", &R::temperature), col("seed", &R::seed), col("batch", &R::batch).or_null(),
        col("threads", &R::threads).or_null(), col("backend", &R::backend), col("precision", &R::precision),
        col("numerics", &R::numerics), col("tier", &R::tier), col("synthetic", &R::synthetic),
        col("acceptance", &R::acceptance), col("vocab_id", &R::vocab_id).or_null(),
        col("config_json", &R::config_json), col("machine_json", &R::machine_json),
        computed("plain_setting", &plain_setting).added_in(4, "''"),
        computed("setting", &head_setting).added_in(4, "''"),
        computed("baseline", &is_baseline).added_in(4, "0"));
};

template <>
struct Table<PromptRow> : TableOf<PromptRow> {
    static constexpr std::string_view name = "prompt";
    static constexpr auto columns = std::tuple(
        key("id", &R::id), ref("run_id", &R::run_id, "run"), col("ordinal", &R::ordinal),
        col("external_id", &R::external_id), col("turn", &R::turn), col("suite", &R::suite),
        col("category", &R::category), col("text", &R::text), col("output", &R::output),
        col("prompt_tokens", &R::prompt_tokens).or_null(), col("generated_tokens", &R::generated_tokens),
        col("prefill_ns", &R::prefill_ns).or_null(), choice("finish", &R::finish, finish_from));
};

template <>
struct Table<StepRow> : TableOf<StepRow> {
    static constexpr std::string_view name = "step";
    static constexpr auto columns = std::tuple(
        key("id", &R::id), ref("run_id", &R::run_id, "run"), col("ordinal", &R::ordinal),
        col("start_ns", &R::start_ns), col("end_ns", &R::end_ns).or_null(), col("paused_ns", &R::paused_ns),
        choice("excluded", &R::excluded, excluded_from), col("sampled", &R::sampled).added_in(6, "1"));
};

template <>
struct Table<RoundRow> : TableOf<RoundRow> {
    static constexpr std::string_view name = "round";
    static constexpr auto columns = std::tuple(
        key("id", &R::id), ref("run_id", &R::run_id, "run"), ref("step_id", &R::step_id, "step"),
        ref("prompt_id", &R::prompt_id, "prompt"), col("ordinal", &R::ordinal).or_null(),
        col("start_ns", &R::start_ns), col("end_ns", &R::end_ns).or_null(),
        col("context_length", &R::context_length).or_null(), col("tree_nodes", &R::tree_nodes).or_null(),
        col("tree_depth", &R::tree_depth).or_null(), col("drafted", &R::draft_tokens).or_null(),
        col("accepted", &R::accepted), col("committed", &R::committed), col("clipped", &R::clipped),
        col("drafted_by", &R::drafter).added_in(9, "''"));
};

template <>
struct Table<NodeRow> : TableOf<NodeRow> {
    static constexpr std::string_view name = "node";
    static constexpr auto columns =
        std::tuple(ref("round_id", &R::round_id, "round"), col("node", &R::node).range(0, max_tree_size),
                   col("parent", &R::parent).or_null(), col("depth", &R::depth).range(0, max_tree_size),
                   col("token_id", &R::token_id).range(no_token, max_token_id),
                   col("draft_logprob", &R::draft_logprob), col("cum_logprob", &R::cum_logprob),
                   col("target_prob", &R::target_prob), col("target_rank", &R::target_rank),
                   col("accepted", &R::accepted), col("target_token_id", &R::target_token_id).or_null(),
                   col("target_token_prob", &R::target_token_prob), col("target_covered", &R::target_covered),
                   col("target_draft_rank", &R::target_draft_rank).added_in(10, "NULL"),
                   col("target_draft_logprob", &R::target_draft_logprob).added_in(10, "NULL"));
};

template <>
struct Table<NodeTopRow> : TableOf<NodeTopRow> {
    static constexpr std::string_view name = "node_top";
    static constexpr auto columns =
        std::tuple(ref("round_id", &R::round_id, "round"), col("node", &R::node).range(0, max_tree_size),
                   col("rank", &R::rank), col("token_id", &R::token_id).range(no_token, max_token_id),
                   col("target_prob", &R::target_prob));
};

template <>
struct Table<TokenRow> : TableOf<TokenRow> {
    static constexpr std::string_view name = "token";
    static constexpr auto columns = std::tuple(
        ref("prompt_id", &R::prompt_id, "prompt"), col("position", &R::position).range(0, max_position),
        ref("round_id", &R::round_id, "round").or_null(),
        col("token_id", &R::token_id).range(no_token, max_token_id),
        choice("source", &R::source, token_source_from), col("depth", &R::depth), col("rank", &R::rank),
        col("covered", &R::covered));
};

template <>
struct Table<SpanRow> : TableOf<SpanRow> {
    static constexpr std::string_view name = "span";
    static constexpr auto columns = std::tuple(
        key("id", &R::id), ref("run_id", &R::run_id, "run"), ref("step_id", &R::step_id, "step").or_null(),
        ref("round_id", &R::round_id, "round").or_null(), phase_ref(&R::phase_id), col("level", &R::level),
        col("lane", &R::lane), col("thread_id", &R::thread_id), col("start_ns", &R::start_ns),
        col("end_ns", &R::end_ns), col("rows", &R::rows), col("bytes", &R::bytes));
};

template <>
struct Table<StoredStepPhase> : TableOf<StoredStepPhase> {
    static constexpr std::string_view name = "step_phase";
    static constexpr std::string_view primary_key = "step_id, phase_id";
    static constexpr int since = 2;
    static constexpr auto columns = std::tuple(
        ref("run_id", &R::run_id, "run"), ref("step_id", &R::step_id, "step"), phase_ref(&R::phase_id),
        col("busy_ns", &R::busy_ns), col("exposed_ns", &R::exposed_ns), col("bytes", &R::bytes));
};

template <>
struct Table<GpuOpRow> : TableOf<GpuOpRow> {
    static constexpr std::string_view name = "gpu_op";
    static constexpr auto columns = std::tuple(
        key("id", &R::id), ref("run_id", &R::run_id, "run"), ref("step_id", &R::step_id, "step").or_null(),
        phase_ref(&R::phase_id), col("stream", &R::stream), col("name", &R::name),
        col("start_ns", &R::start_ns), col("end_ns", &R::end_ns), col("graph_node_id", &R::graph_node_id),
        col("correlation_id", &R::correlation_id), col("grid", &R::grid), col("block", &R::block),
        col("bytes", &R::bytes), col("device", &R::device).added_in(3, "0"),
        col("registers", &R::registers).added_in(3, "0"));
};

template <>
struct Table<NvtxRangeRow> : TableOf<NvtxRangeRow> {
    static constexpr std::string_view name = "nvtx_range";
    static constexpr auto columns =
        std::tuple(ref("run_id", &R::run_id, "run"), col("domain", &R::domain), col("name", &R::name),
                   col("thread_id", &R::thread_id), col("start_ns", &R::start_ns), col("end_ns", &R::end_ns),
                   col("payload", &R::payload));
};

template <>
struct Table<HeadEvalRow> : TableOf<HeadEvalRow> {
    static constexpr std::string_view name = "head_eval";
    static constexpr auto columns = std::tuple(
        ref("run_id", &R::run_id, "run"), ref("round_id", &R::round_id, "round").or_null(),
        col("head", &R::head), choice("mode", &R::mode, head_mode_from), col("active_rows", &R::active_rows),
        col("bytes", &R::bytes), col("head_ns", &R::head_ns), col("accepted", &R::accepted),
        col("committed", &R::committed), col("covered", &R::covered), col("covered_mass", &R::covered_mass),
        col("flops", &R::flops).added_in(5, "0"), col("row_tokens", &R::row_tokens).added_in(7, "NULL"));
};

template <>
struct Table<CounterRow> : TableOf<CounterRow> {
    static constexpr std::string_view name = "counter";
    static constexpr auto columns = std::tuple(ref("run_id", &R::run_id, "run"), col("time_ns", &R::time_ns),
                                               col("name", &R::name), col("value", &R::value));
};

template <>
struct Table<LossRow> : TableOf<LossRow> {
    static constexpr std::string_view name = "loss";
    static constexpr auto columns = std::tuple(ref("run_id", &R::run_id, "run"), col("time_ns", &R::time_ns),
                                               col("kind", &R::kind), col("count", &R::count));
};

template <>
struct Table<ClockAnchorRow> : TableOf<ClockAnchorRow> {
    static constexpr std::string_view name = "clock_anchor";
    static constexpr std::string_view order = "run_id, monotonic_ns, rowid";
    static constexpr auto columns =
        std::tuple(ref("run_id", &R::run_id, "run"), col("monotonic_ns", &R::monotonic_ns),
                   col("utc_ns", &R::utc_ns), col("gpu_ns", &R::gpu_ns));
};

template <>
struct Table<VocabRow> : TableOf<VocabRow> {
    static constexpr std::string_view name = "vocab";
    static constexpr std::string_view primary_key = "vocab_id, token_id";
    static constexpr auto columns = std::tuple(
        col("vocab_id", &R::vocab_id), col("token_id", &R::token_id).range(0, max_token_id),
        blob("bytes", &R::bytes), col("text", &R::text), col("rank", &R::rank), col("count", &R::count));
};

template <>
struct Table<NoteRow> : TableOf<NoteRow> {
    static constexpr std::string_view name = "note";
    static constexpr auto columns =
        std::tuple(ref("run_id", &R::run_id, "run"), ref("round_id", &R::round_id, "round").or_null(),
                   col("time_ns", &R::time_ns), col("text", &R::text));
};

template <>
struct Table<SweptRow> : TableOf<SweptRow> {
    static constexpr std::string_view name = "sweep";
    static constexpr int since = 5;
    static constexpr auto columns = std::tuple(
        key("id", &R::id), col("source", &R::source), col("drafter", &R::drafter), col("head", &R::head),
        col("tree", &R::tree), col("batch", &R::batch), col("tau", &R::tau), col("tau_low", &R::tau_low),
        col("tau_high", &R::tau_high), col("tokens_per_second", &R::tokens_per_second),
        col("tokens_per_second_low", &R::tokens_per_second_low),
        col("tokens_per_second_high", &R::tokens_per_second_high), col("speedup", &R::speedup),
        col("speedup_low", &R::speedup_low), col("speedup_high", &R::speedup_high),
        col("round_ms", &R::round_ms), col("plain_ms", &R::plain_ms), col("exact", &R::exact),
        col("extrapolated", &R::extrapolated), col("on_front", &R::on_front), col("units", &R::units));
};

/// Calls `visit.operator()<Row>()` for every table, in the order of the file; parents before children.
template <typename Visit>
void for_each_table(Visit&& visit) {
    const auto visit_each = [&]<typename... Row>(std::tuple<Row...>*) {
        (visit.template operator()<Row>(), ...);
    };
    visit_each(
        static_cast<std::tuple<RunRow, PromptRow, StepRow, RoundRow, NodeRow, NodeTopRow, TokenRow, SpanRow,
                               StoredStepPhase, GpuOpRow, NvtxRangeRow, HeadEvalRow, CounterRow, LossRow,
                               ClockAnchorRow, VocabRow, NoteRow, SweptRow>*>(nullptr));
}

}  // namespace draftscope::storage
