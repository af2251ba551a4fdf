#include <filesystem>
#include <system_error>

#include "storage/capture_file.h"
#include "storage/schema.h"
#include "storage/step_phase.h"

namespace draftscope {

namespace {

using storage::Database;
using storage::Statement;

constexpr std::size_t max_findings_per_rule = 5;

/// Rules that a sound capture satisfies. Each query returns one line of text per violation.
constexpr const char* rules[] = {
    "SELECT 'run ' || r.id || ' (' || r.name || ') has no end: it is being written, its program was killed "
    "or "
    "its disk was full; steps in the file: ' || (SELECT count(*) FROM step WHERE run_id = r.id) || ', last "
    "data ' || round(coalesce((SELECT max(end_ns) FROM step WHERE run_id = r.id), 0) / 1e9, 2) || ' s after "
    "its start; run draftscope check --repair to mark it as recovered' FROM run r WHERE r.ended IS NULL",
    "SELECT 'run ' || id || ' has no clock anchor, so its times can not be converted' FROM run WHERE id NOT "
    "IN (SELECT run_id FROM clock_anchor)",
    "SELECT 'prompt ' || id || ': prefill_ns is ' || prefill_ns FROM prompt WHERE prefill_ns < 0",
    "SELECT 'step ' || id || ' lasts ' || (end_ns - start_ns) || ' ns, ' || paused_ns || ' of them paused' "
    "FROM step WHERE end_ns < start_ns OR paused_ns < 0 OR paused_ns > end_ns - start_ns",
    "SELECT 'round ' || id || ' lasts ' || (end_ns - start_ns) || ' ns' FROM round WHERE end_ns < start_ns",
    "SELECT 'span ' || id || ' lasts ' || (end_ns - start_ns) || ' ns' FROM span WHERE end_ns < start_ns",
    "SELECT 'gpu_op ' || id || ' lasts ' || (end_ns - start_ns) || ' ns' FROM gpu_op WHERE end_ns < start_ns",
    "SELECT 'nvtx_range ' || rowid || ' lasts ' || (end_ns - start_ns) || ' ns' FROM nvtx_range "
    "WHERE end_ns < start_ns",
    // Another engine may not say its draft, its tokens or the first one: imported runs are left out of some.
    // Side lanes and device work may extend past their step. The tolerance of 10 us is for clock conversion.
    "SELECT 'span ' || s.id || ' on the critical lane lies outside its step ' || t.id FROM span s "
    "JOIN step t ON t.id = s.step_id WHERE s.lane = 0 AND (s.start_ns < t.start_ns - 10000 OR s.end_ns > "
    "t.end_ns + 10000)",
    "SELECT 'round ' || r.id || ' lies outside its step ' || t.id FROM round r JOIN step t ON t.id = "
    "r.step_id WHERE r.start_ns < t.start_ns - 10000 OR r.end_ns > t.end_ns + 10000",
    "SELECT 'round ' || r.id || ' and its step belong to different runs' FROM round r "
    "JOIN step t ON t.id = r.step_id WHERE r.run_id <> t.run_id",
    "SELECT 'node ' || node || ' of round ' || round_id || ' has parent ' || coalesce(parent, 'NULL') FROM "
    "node WHERE (node = 0) <> (parent IS NULL) OR parent >= node OR parent < 0",
    "SELECT 'node ' || n.node || ' of round ' || n.round_id || ' has depth ' || n.depth || ' under depth ' "
    "|| p.depth FROM node n JOIN node p ON p.round_id = n.round_id AND p.node = n.parent "
    "WHERE n.depth <> p.depth + 1",
    "SELECT 'round ' || r.id || ' records ' || r.tree_nodes || ' tree nodes, but the file has ' || "
    "count(n.node) FROM round r JOIN run ON run.id = r.run_id AND run.acceptance <> 'imported' JOIN node n "
    "ON "
    "n.round_id = r.id GROUP BY r.id HAVING count(n.node) <> "
    "r.tree_nodes",
    "SELECT 'round ' || id || ' drafted ' || drafted || ', accepted ' || accepted || ', committed ' || "
    "committed FROM round WHERE accepted < 0 OR accepted > drafted OR committed < 0 OR committed > accepted "
    "+ 1 OR (NOT clipped AND committed <> accepted + 1)",
    "SELECT 'round ' || r.id || ' committed ' || r.committed || iif(r.committed = 1, ' token', ' tokens') || "
    "', but the file has ' || count(t.token_id) FROM round r JOIN run ON run.id = r.run_id AND "
    "run.acceptance <> 'imported' LEFT JOIN token t ON t.round_id = r.id GROUP BY "
    "r.id HAVING count(t.token_id) <> r.committed",
    "SELECT 'prompt ' || p.id || ' generated ' || p.generated_tokens || iif(p.generated_tokens = 1, ' "
    "token', ' tokens') || ', but its rounds committed ' || coalesce(sum(r.committed), 0) || ' after the "
    "prefill token' FROM prompt p JOIN run ON run.id = p.run_id AND run.ended = 'ok' AND "
    "run.acceptance <> 'imported' LEFT JOIN round r ON "
    "r.prompt_id = p.id "
    // A run with recorded losses may have gaps.
    "WHERE p.finish IS NOT NULL AND NOT EXISTS (SELECT 1 FROM loss WHERE loss.run_id = p.run_id AND kind IN "
    "('storage_queue_full', 'capture_limit', 'ring_dropped', 'storage_error')) GROUP BY p.id "
    "HAVING p.generated_tokens <> coalesce(sum(r.committed), 0) + min(1, p.generated_tokens)",
    "SELECT 'prompt ' || prompt_id || ' has ' || count(*) || ' tokens at position ' || position FROM token "
    "GROUP BY prompt_id, position HAVING count(*) > 1",
    "SELECT 'head_eval of ' || head || ' in run ' || run_id || ' covers ' || covered || ' of ' || committed "
    "FROM head_eval WHERE covered < 0 OR covered > committed OR head_ns < 0 OR bytes < 0",
};

/// Adds the first rows of a query to the findings, and the number of further rows.
Status collect(const std::string& path, const Database& db, const char* sql, std::vector<CheckFinding>& out) {
    Statement statement = db.prepare(sql);
    if (!statement) return storage::file_error(path, db, "checking");
    std::size_t found = 0;
    int code = SQLITE_ROW;
    while ((code = statement.step()) == SQLITE_ROW)
        if (++found <= max_findings_per_rule)
            out.push_back({storage::one_line(std::string(statement.text(0)))});
    if (found > max_findings_per_rule)
        out.push_back({fmt::format("... and {} more of this kind", found - max_findings_per_rule)});
    if ((code & 0xff) == SQLITE_CORRUPT) {
        out.push_back({"the rest can't be read: " + db.message()});
        return {};
    }
    if (code != SQLITE_DONE) return storage::file_error(path, db, "checking");
    return {};
}

constexpr const char* remarks_sql =
    "SELECT 'run ' || r.id || ' (' || r.name || ') is recovered: recording was cut off (program killed or "
    "disk full); it ends with its last data (steps: ' || (SELECT count(*) FROM step WHERE run_id = r.id) || "
    "'), ' || round((SELECT (max(monotonic_ns) - min(monotonic_ns)) / 1e9 FROM clock_anchor WHERE run_id = "
    "r.id), 2) || ' s after its start' FROM run r WHERE r.ended = 'recovered' UNION ALL SELECT 'the file has "
    "no run: its recording ended before a run began' WHERE NOT EXISTS (SELECT 1 FROM run) UNION ALL SELECT "
    "'run ' || run_id || ' lost ' || sum(count) || iif(sum(count) = 1, ' record: ', ' records: ') || kind || "
    "CASE kind WHEN 'storage_error' THEN ' (the disk was full or failed: later records are missing)' WHEN "
    "'vocabulary' THEN ' (the token texts did not fit on the disk)' ELSE '' END FROM loss GROUP BY run_id, "
    "kind";

Status check_integrity(const std::string& path, const Database& db, std::vector<CheckFinding>& out) {
    Statement statement = db.prepare("PRAGMA integrity_check(20)");
    if (!statement) return storage::file_error(path, db, "checking");
    while (statement.step() == SQLITE_ROW)
        if (statement.text(0) != "ok")
            out.push_back({storage::one_line("damaged: " + std::string(statement.text(0)))});
    return collect(path, db,
                   "SELECT 'table ' || \"table\" || ', row ' || coalesce(rowid, '?') || ' refers to a row of "
                   "' || \"parent\" || ' that does not exist' FROM pragma_foreign_key_check",
                   out);
}

/// Indexes are built at the end of a recording. If they are missing although every run ended, the program
/// died before it finished the file.
Status check_finished(const std::string& path, const Database& db, std::vector<CheckFinding>& out,
                      bool& finished) {
    finished = false;
    if (db.integer("SELECT count(*) FROM run WHERE ended IS NULL").value_or(0) > 0) return {};
    std::string missing;
    for (const storage::Index& index : storage::indexes) {
        const auto found = db.integer("SELECT count(*) FROM sqlite_schema WHERE type = 'index' AND name = " +
                                      storage::sql_quoted(index.name, '\''));
        if (!found) return storage::file_error(path, db, "reading the schema");
        if (*found == 0) missing += fmt::format("{}{}", missing.empty() ? "" : ", ", index.name);
    }
    finished = missing.empty();
    if (!missing.empty())
        out.push_back({fmt::format(
            "indexes are missing ({}): the program ended before it finished the file, and queries are slow; "
            "run draftscope check --repair to build them",
            missing)});
    return {};
}

/// Data that exists only in the log is lost if the file is copied without it.
void remark_log(const std::string& path, std::vector<std::string>& out) {
    std::error_code error;
    const auto bytes = std::filesystem::file_size(path + "-wal", error);
    if (!error && bytes > 0)
        out.push_back(
            fmt::format("{} bytes are in the log {}-wal, which belongs to the file; run draftscope check "
                        "--repair to merge it",
                        bytes, path));
}

/// A run without a recorded end is set to end with its last data.
constexpr const char* recover_sql = R"sql(
INSERT INTO clock_anchor(run_id, monotonic_ns, utc_ns)
SELECT r.id, a.monotonic_ns + d.end_ns, a.utc_ns + d.end_ns
FROM run r
JOIN (SELECT run_id, min(monotonic_ns) AS monotonic_ns, utc_ns FROM clock_anchor GROUP BY run_id) a ON a.run_id = r.id
JOIN (SELECT run_id, max(end_ns) AS end_ns FROM (
        SELECT run_id, end_ns FROM step UNION ALL SELECT run_id, end_ns FROM span
        UNION ALL SELECT run_id, time_ns FROM counter UNION ALL SELECT id, 0 FROM run)
      GROUP BY run_id) d ON d.run_id = r.id
WHERE r.ended IS NULL;
UPDATE run SET ended = 'recovered' WHERE ended IS NULL;
)sql";

}  // namespace

Result<CheckReport> check_capture(const std::string& path) {
    DS_ASSIGN(const Database db, storage::open_capture(path, storage::OpenMode::unchecked));
    CheckReport report;
    report.schema_version = static_cast<int>(db.integer("PRAGMA user_version").value_or(0));
    DS_TRY(check_integrity(path, db, report.findings));
    const bool damaged = !report.findings.empty();
    for (const auto& [table, since] : storage::table_names())
        if (since == 1 || storage::has_table(db, table))
            report.row_counts.emplace_back(
                table, db.integer(fmt::format("SELECT count(*) FROM {}", table)).value_or(0));
    // On a damaged file the rules would only repeat the damage.
    if (damaged) return report;
    for (const char* rule : rules) DS_TRY(collect(path, db, rule, report.findings));
    bool finished = false;
    DS_TRY(check_finished(path, db, report.findings, finished));
    // The table is complete only after the recording ends, because late spans are added then.
    if (finished && report.schema_version >= 2) {
        std::vector<RowId> wrong;
        if (storage::wrong_step_phases(db, max_findings_per_rule, wrong) != SQLITE_OK)
            return storage::file_error(path, db, "checking table step_phase");
        for (const RowId step : wrong)
            report.findings.push_back(
                {fmt::format("step {}: table step_phase differs from the step's spans; run draftscope check "
                             "--repair to compute it again",
                             step)});
    }
    std::vector<CheckFinding> remarks;
    DS_TRY(collect(path, db, remarks_sql, remarks));
    for (CheckFinding& remark : remarks) report.remarks.push_back(std::move(remark.what));
    remark_log(path, report.remarks);
    if (report.schema_version < capture_schema_version)
        report.remarks.push_back(
            fmt::format("schema version {}, read without migration; draftscope check --repair migrates it to "
                        "version {} and keeps a copy as {}.v{}.bak",
                        report.schema_version, capture_schema_version, path, report.schema_version));
    return report;
}

Status repair_capture(const std::string& path) {
    DS_ASSIGN(const Database db, storage::open_capture_for_repair(path));
    DS_TRY(storage::migrate(db, path, storage::migrations(), capture_schema_version));
    if (db.exec("BEGIN IMMEDIATE") != SQLITE_OK) return storage::file_error(path, db, "starting the repair");
    const std::string script = recover_sql + storage::index_sql();
    std::vector<RowId> wrong;
    const bool done = db.exec(script) == SQLITE_OK && storage::wrong_step_phases(db, 1, wrong) == SQLITE_OK &&
                      (wrong.empty() || (db.exec("DELETE FROM step_phase") == SQLITE_OK &&
                                         storage::fill_step_phase(db) == SQLITE_OK)) &&
                      db.exec("COMMIT") == SQLITE_OK;
    if (!done) {
        const Error error = storage::file_error(path, db, "repairing");
        db.exec("ROLLBACK");
        return error;
    }
    db.exec("PRAGMA wal_checkpoint(TRUNCATE)");
    if (db.text("PRAGMA journal_mode = DELETE") != "delete")
        return storage::file_error(path, db, "merging the write-ahead log");
    // An exclusive connection keeps the log's index in memory, so it leaves the killed writer's index file.
    std::error_code error;
    std::filesystem::remove(path + "-shm", error);
    return {};
}

}  // namespace draftscope
