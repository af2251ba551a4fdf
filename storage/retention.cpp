#include "storage/retention.h"

#include <fcntl.h>
#include <unistd.h>

#include <iterator>

namespace draftscope::storage {

SpaceReserve::SpaceReserve(const std::string& path, std::int64_t bytes) {
    const std::string name = path + "-reserve";
    file_ = open(name.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (file_ < 0) return;
    unlink(name.c_str());
    if (posix_fallocate(file_, 0, bytes) != 0) release();
}

void SpaceReserve::release() {
    if (file_ >= 0) close(file_);
    file_ = -1;
}

namespace {

/// Tables from which the ring deletes rows. `step` and `round` are first, because late rows refer to them.
constexpr std::string_view ring_tables[] = {"step", "round",  "node",      "node_top", "token",
                                            "span", "gpu_op", "head_eval", "counter",  "nvtx_range"};
static_assert(std::size(ring_tables) == Retention::tables);
constexpr int chunks_per_limit = 8;

}  // namespace

std::int64_t row_weight(const Record& record) {
    std::size_t n = 1;
    if (const auto* step = std::get_if<StepRecord>(&record)) {
        n += step->spans.size();
        for (const RoundRecord& round : step->rounds)
            n += 1 + round.nodes.size() + round.tops.size() + round.tokens.size() + round.head_evals.size();
    } else if (const auto* ops = std::get_if<std::vector<GpuOpRow>>(&record)) {
        n += ops->size();
    } else if (const auto* ranges = std::get_if<std::vector<NvtxRangeRow>>(&record)) {
        n += ranges->size();
    } else if (const auto* spans = std::get_if<SpansRecorded>(&record)) {
        n += spans->spans.size();
    }
    return static_cast<std::int64_t>(n);
}

bool is_measurement(const Record& record) {
    if (const auto* counter = std::get_if<CounterRow>(&record)) return counter->name != baseline_counter;
    return std::holds_alternative<StepRecord>(record) || std::holds_alternative<SpansRecorded>(record) ||
           std::holds_alternative<HeadEvaluated>(record) ||
           std::holds_alternative<std::vector<NvtxRangeRow>>(record) ||
           std::holds_alternative<std::vector<GpuOpRow>>(record);
}

bool Retention::admit(Record& record) {
    if (!bounded() || !is_measurement(record)) return true;
    if (options_.file_full_policy == FileFullPolicy::stop && over()) return false;
    if (deleted_step_ > 0) {
        const auto in_deleted_step = [&](const auto& row) {
            return row.step_id > 0 && row.step_id <= deleted_step_;
        };
        if (auto* spans = std::get_if<SpansRecorded>(&record)) std::erase_if(spans->spans, in_deleted_step);
        if (auto* ops = std::get_if<std::vector<GpuOpRow>>(&record)) std::erase_if(*ops, in_deleted_step);
        if (auto* evals = std::get_if<HeadEvaluated>(&record))
            std::erase_if(evals->rows, [&](const auto& row) {
                return row.round_id > 0 && row.round_id <= deleted_round_;
            });
    }
    rows_ += row_weight(record);
    return true;
}

bool Retention::over() const {
    return (options_.max_rows > 0 && rows_ - dropped_ >= options_.max_rows) ||
           (options_.max_bytes > 0 && bytes_ >= options_.max_bytes);
}

std::int64_t Retention::used_bytes() const {
    const std::int64_t pages =
        db_.integer("PRAGMA page_count").value_or(0) - db_.integer("PRAGMA freelist_count").value_or(0);
    return pages * db_.integer("PRAGMA page_size").value_or(4096);
}

Retention::ChunkEnds Retention::chunk_ends() const {
    ChunkEnds out{};
    for (std::size_t t = 0; t < tables; ++t)
        out[t] = db_.integer(fmt::format("SELECT max(rowid) FROM {}", ring_tables[t])).value_or(0);
    return out;
}

int Retention::after_commit() {
    if (!bounded()) return SQLITE_OK;
    if (options_.max_bytes > 0) bytes_ = used_bytes();
    if (options_.file_full_policy == FileFullPolicy::stop) return SQLITE_OK;
    const bool chunk_full =
        (options_.max_rows > 0 && rows_ - rows_at_chunk_ >= options_.max_rows / chunks_per_limit) ||
        (options_.max_bytes > 0 && bytes_ - bytes_at_chunk_ >= options_.max_bytes / chunks_per_limit);
    if (chunk_full) {
        chunks_.push_back(chunk_ends());
        rows_at_chunk_ = rows_;
        bytes_at_chunk_ = bytes_;
    }
    while (over() && chunks_.size() > 1) {
        if (const int code = drop_oldest(); code != SQLITE_OK) return code;
        if (options_.max_bytes > 0) bytes_at_chunk_ = bytes_ = used_bytes();
    }
    return SQLITE_OK;
}

int Retention::drop_oldest() {
    const ChunkEnds oldest = chunks_.front();
    chunks_.pop_front();
    deleted_step_ = oldest[0];
    deleted_round_ = oldest[1];
    std::string rows;
    for (std::size_t t = 0; t < tables; ++t) {
        // Rows that describe the whole run are kept: a prompt's first token and the speed of plain decoding.
        const std::string keep = ring_tables[t] == "token" ? " AND round_id IS NOT NULL"
                                 : ring_tables[t] == "counter"
                                     ? " AND name <> " + sql_quoted(baseline_counter, '\'')
                                     : "";
        rows += fmt::format("DELETE FROM {} WHERE rowid <= {}{};", ring_tables[t], oldest[t], keep);
        // Device work may arrive after the chunk of its step was closed.
        const bool by_round = ring_tables[t] == "head_eval";
        if (!by_round && ring_tables[t] != "span" && ring_tables[t] != "gpu_op") continue;
        rows += fmt::format("DELETE FROM {} WHERE rowid > {} AND rowid <= {} AND {} <= {};", ring_tables[t],
                            oldest[t], chunks_.front()[t], by_round ? "round_id" : "step_id",
                            by_round ? deleted_round_ : deleted_step_);
    }
    const std::string derived = fmt::format(
        "DELETE FROM step_phase WHERE step_id <= {}; UPDATE note SET round_id = NULL WHERE round_id <= {};",
        deleted_step_, deleted_round_);
    const std::int64_t changed_before = sqlite3_total_changes64(db_.get());
    int code = db_.exec("BEGIN IMMEDIATE;" + rows);
    const std::int64_t changed = sqlite3_total_changes64(db_.get()) - changed_before;
    if (code == SQLITE_OK) code = db_.exec(derived);
    if (code != SQLITE_OK) return code;
    dropped_ += changed;
    return db_.exec("COMMIT");
}

}  // namespace draftscope::storage
