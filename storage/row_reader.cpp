#include "storage/row_reader.h"

#include "capture/queries.h"
#include "storage/schema.h"

namespace draftscope::storage {

namespace {
/// Larger than any vocabulary in use. It limits what the token ids of a damaged file can allocate.
constexpr int max_token_id = 1 << 23;
}  // namespace

int Fields::in_range(int column, std::int64_t low, std::int64_t high) {
    const std::int64_t value = statement_.integer(column);
    if (value >= low && value <= high) return static_cast<int>(value);
    set_problem(column);
    return 0;
}

double Fields::real(int column) {
    return statement_.is_null(column) ? std::numeric_limits<double>::quiet_NaN() : statement_.real(column);
}

void Fields::set_problem(int column) {
    if (!problem_.empty()) return;
    problem_ = fmt::format("column {} holds {}", sqlite3_column_name(statement_.get(), column),
                           one_line(std::string(statement_.text(column).substr(0, 40))));
}

std::string select_after(const Database& db, std::string select, RowId after) {
    constexpr std::string_view later = ", device, registers FROM gpu_op";
    const std::size_t at = select.find(later);
    if (at != std::string::npos && !has_column(db, "gpu_op", "device"))
        select.replace(at, later.size(), ", 0, 0 FROM gpu_op");
    const bool by_step = select.find(" FROM step_phase") != std::string::npos;  // the table has no rowids
    if (after > 0)
        select.insert(select.rfind(" ORDER BY"),
                      fmt::format(" WHERE {} > {}", by_step ? "step_id" : "rowid", after));
    return select;
}

std::string select_where(std::string select, std::string_view column) {
    return select.insert(select.rfind(" ORDER BY"), fmt::format(" WHERE {} = ?", column));
}

#define DS_ROW_SOURCE(Row, name, select)            \
    const char* const RowSource<Row>::table = name; \
    const char* const RowSource<Row>::sql = select; \
    Row RowSource<Row>::read([[maybe_unused]] Fields& f)

DS_ROW_SOURCE(
    RunRow, "run",
    "SELECT id, name, started_utc, ended, frontend, target, drafter, head, tree, verify, temperature, seed, "
    "batch, threads, backend, precision, numerics, tier, synthetic, acceptance, vocab_id, config_json, "
    "machine_json FROM run ORDER BY id") {
    RunRow r;
    r.id = f.id(0);
    r.name = f.text(1);
    r.started_utc = f.text(2);
    r.ended = f.choice(3, run_end_from);
    r.frontend = f.text(4);
    r.target = f.text(5);
    r.drafter = f.text(6);
    r.head = f.text(7);
    r.tree = f.text(8);
    r.verify = f.text(9);
    r.temperature = f.real(10);
    r.seed = static_cast<std::uint64_t>(f.i64(11));
    r.batch = f.i32(12);
    r.threads = f.i32(13);
    r.backend = f.text(14);
    r.precision = f.text(15);
    r.numerics = f.text(16);
    r.tier = f.text(17);
    r.synthetic = f.flag(18);
    r.acceptance = f.text(19);
    r.vocab_id = f.id(20);
    r.config_json = f.text(21);
    r.machine_json = f.text(22);
    return r;
}

DS_ROW_SOURCE(PromptRow, "prompt",
              "SELECT id, run_id, ordinal, external_id, turn, suite, category, text, output, prompt_tokens, "
              "generated_tokens, prefill_ns, finish FROM prompt ORDER BY id") {
    PromptRow r;
    r.id = f.id(0);
    r.run_id = f.id(1);
    r.ordinal = f.i32(2);
    r.external_id = f.text(3);
    r.turn = f.i32(4);
    r.suite = f.text(5);
    r.category = f.text(6);
    r.text = f.text(7);
    r.output = f.text(8);
    r.prompt_tokens = f.i32(9);
    r.generated_tokens = f.i32(10);
    r.prefill_ns = f.i64(11);
    r.finish = f.choice(12, finish_from);
    return r;
}

DS_ROW_SOURCE(StepRow, "step",
              "SELECT id, run_id, ordinal, start_ns, end_ns, paused_ns, excluded FROM step ORDER BY id") {
    StepRow r;
    r.id = f.id(0);
    r.run_id = f.id(1);
    r.ordinal = f.i32(2);
    r.start_ns = f.i64(3);
    r.end_ns = f.i64(4);
    r.paused_ns = f.i64(5);
    r.excluded = f.choice(6, excluded_from);
    return r;
}

DS_ROW_SOURCE(RoundRow, "round",
              "SELECT id, run_id, step_id, prompt_id, ordinal, start_ns, end_ns, context_length, tree_nodes, "
              "tree_depth, drafted, accepted, committed, clipped FROM round ORDER BY id") {
    RoundRow r;
    r.id = f.id(0);
    r.run_id = f.id(1);
    r.step_id = f.id(2);
    r.prompt_id = f.id(3);
    r.ordinal = f.i32(4);
    r.start_ns = f.i64(5);
    r.end_ns = f.i64(6);
    r.context_length = f.i32(7);
    r.tree_nodes = f.i32(8);
    r.tree_depth = f.i32(9);
    r.drafted = f.i32(10);
    r.accepted = f.i32(11);
    r.committed = f.i32(12);
    r.clipped = f.flag(13);
    return r;
}

DS_ROW_SOURCE(
    NodeRow, "node",
    "SELECT round_id, node, parent, depth, token_id, draft_logprob, cum_logprob, target_prob, target_rank, "
    "accepted, target_token_id, target_token_prob, target_covered FROM node ORDER BY rowid") {
    NodeRow r;
    r.round_id = f.id(0);
    r.node = f.in_range(1, 0, 1 << 20);
    r.parent = f.index(2);
    r.depth = f.in_range(3, 0, 1 << 20);
    r.token_id = f.in_range(4, no_token, max_token_id);
    r.draft_logprob = static_cast<float>(f.real(5));
    r.cum_logprob = static_cast<float>(f.real(6));
    r.target_prob = f.optional_float(7);
    r.target_rank = f.optional_i32(8);
    r.accepted = f.flag(9);
    r.target_token_id = f.index(10);
    r.target_token_prob = f.optional_float(11);
    r.target_covered = f.flag(12);
    return r;
}

DS_ROW_SOURCE(NodeTopRow, "node_top",
              "SELECT round_id, node, rank, token_id, target_prob FROM node_top ORDER BY rowid") {
    NodeTopRow r;
    r.round_id = f.id(0);
    r.node = f.in_range(1, 0, 1 << 20);
    r.rank = f.i32(2);
    r.token_id = f.in_range(3, no_token, max_token_id);
    r.target_prob = static_cast<float>(f.real(4));
    return r;
}

DS_ROW_SOURCE(
    TokenRow, "token",
    "SELECT prompt_id, position, round_id, token_id, source, depth, rank, covered FROM token ORDER BY "
    "rowid") {
    TokenRow r;
    r.prompt_id = f.id(0);
    r.position = f.in_range(1, 0, 1 << 30);
    r.round_id = f.id(2);
    r.token_id = f.in_range(3, no_token, max_token_id);
    r.source = f.choice(4, token_source_from);
    r.depth = f.i32(5);
    r.rank = f.optional_i32(6);
    r.covered = f.flag(7);
    return r;
}

DS_ROW_SOURCE(
    SpanRow, "span",
    "SELECT id, run_id, step_id, round_id, phase_id, level, lane, thread_id, start_ns, end_ns, rows, bytes "
    "FROM span ORDER BY id") {
    SpanRow r;
    r.id = f.id(0);
    r.run_id = f.id(1);
    r.step_id = f.id(2);
    r.round_id = f.id(3);
    r.phase_id = f.in_range(4, 0, max_phases - 1);
    r.level = f.i32(5);
    r.lane = f.i32(6);
    r.thread_id = f.i32(7);
    r.start_ns = f.i64(8);
    r.end_ns = f.i64(9);
    r.rows = f.i32(10);
    r.bytes = f.i64(11);
    return r;
}

DS_ROW_SOURCE(
    StoredStepPhase, "step_phase",
    "SELECT step_id, phase_id, busy_ns, exposed_ns, bytes FROM step_phase ORDER BY step_id, phase_id") {
    StoredStepPhase r;
    r.step_id = f.id(0);
    r.phase_id = f.in_range(1, 0, max_phases - 1);
    r.busy_ns = f.i64(2);
    r.exposed_ns = f.i64(3);
    r.bytes = f.i64(4);
    return r;
}

DS_ROW_SOURCE(
    GpuOpRow, "gpu_op",
    "SELECT id, run_id, step_id, phase_id, stream, name, start_ns, end_ns, graph_node_id, correlation_id, "
    "grid, block, bytes, device, registers FROM gpu_op ORDER BY id") {
    GpuOpRow r;
    r.id = f.id(0);
    r.run_id = f.id(1);
    r.step_id = f.id(2);
    r.phase_id = f.in_range(3, 0, max_phases - 1);
    r.stream = f.i32(4);
    r.name = f.text(5);
    r.start_ns = f.i64(6);
    r.end_ns = f.i64(7);
    r.graph_node_id = f.i64(8);
    r.correlation_id = f.i64(9);
    r.grid = f.text(10);
    r.block = f.text(11);
    r.bytes = f.i64(12);
    r.device = f.i32(13);
    r.registers = f.i32(14);
    return r;
}

DS_ROW_SOURCE(GpuCounterRow, "gpu_counter",
              "SELECT run_id, step_id, phase_id, name, value FROM gpu_counter ORDER BY rowid") {
    GpuCounterRow r;
    r.run_id = f.id(0);
    r.step_id = f.id(1);
    r.phase_id = f.in_range(2, 0, max_phases - 1);
    r.name = f.text(3);
    r.value = f.real(4);
    return r;
}

DS_ROW_SOURCE(
    NvtxRangeRow, "nvtx_range",
    "SELECT run_id, domain, name, thread_id, start_ns, end_ns, payload FROM nvtx_range ORDER BY rowid") {
    NvtxRangeRow r;
    r.run_id = f.id(0);
    r.domain = f.text(1);
    r.name = f.text(2);
    r.thread_id = f.i32(3);
    r.start_ns = f.i64(4);
    r.end_ns = f.i64(5);
    r.payload = f.i64(6);
    return r;
}

DS_ROW_SOURCE(
    HeadEvalRow, "head_eval",
    "SELECT run_id, round_id, head, mode, active_rows, bytes, head_ns, accepted, committed, covered, "
    "covered_mass FROM head_eval ORDER BY rowid") {
    HeadEvalRow r;
    r.run_id = f.id(0);
    r.round_id = f.id(1);
    r.head = f.text(2);
    r.mode = f.choice(3, head_mode_from);
    r.active_rows = f.real(4);
    r.bytes = f.i64(5);
    r.head_ns = f.i64(6);
    r.accepted = f.i32(7);
    r.committed = f.i32(8);
    r.covered = f.i32(9);
    r.covered_mass = f.optional_real(10);
    return r;
}

DS_ROW_SOURCE(CounterRow, "counter", "SELECT run_id, time_ns, name, value FROM counter ORDER BY rowid") {
    CounterRow r;
    r.run_id = f.id(0);
    r.time_ns = f.i64(1);
    r.name = f.text(2);
    r.value = f.real(3);
    return r;
}

DS_ROW_SOURCE(LossRow, "loss", "SELECT run_id, time_ns, kind, count FROM loss ORDER BY rowid") {
    LossRow r;
    r.run_id = f.id(0);
    r.time_ns = f.i64(1);
    r.kind = f.text(2);
    r.count = f.i64(3);
    return r;
}

DS_ROW_SOURCE(
    ClockAnchorRow, "clock_anchor",
    "SELECT run_id, monotonic_ns, utc_ns, gpu_ns FROM clock_anchor ORDER BY run_id, monotonic_ns, rowid") {
    ClockAnchorRow r;
    r.run_id = f.id(0);
    r.monotonic_ns = f.i64(1);
    r.utc_ns = f.i64(2);
    r.gpu_ns = f.optional_i64(3);
    return r;
}

DS_ROW_SOURCE(VocabRow, "vocab",
              "SELECT vocab_id, token_id, bytes, text, rank, count FROM vocab ORDER BY vocab_id, token_id") {
    VocabRow r;
    r.vocab_id = f.id(0);
    r.token_id = f.in_range(1, 0, max_token_id);
    r.bytes = f.blob(2);
    r.text = f.text(3);
    r.rank = f.optional_i32(4);
    r.count = f.optional_i64(5);
    return r;
}

DS_ROW_SOURCE(NoteRow, "note", "SELECT run_id, round_id, time_ns, text FROM note ORDER BY rowid") {
    NoteRow r;
    r.run_id = f.id(0);
    r.round_id = f.id(1);
    r.time_ns = f.i64(2);
    r.text = f.text(3);
    return r;
}

}  // namespace draftscope::storage
