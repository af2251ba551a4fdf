#pragma once

#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "base/function_ref.h"
#include "base/notes.h"
#include "base/result.h"
#include "storage/sql.h"

namespace draftscope::storage {

/// A table that a capture may have, and the schema version that added it. Later files need not have it.
struct TableName {
    std::string_view name;
    int since = 1;
};
/// Returns the tables of captures in the order of the file, then the one that version 8 dropped.
const std::vector<TableName>& table_names();
/// Hardware counters of versions 3 to 7, which stay in the file for SQL.
inline constexpr std::string_view dropped_table = "gpu_counter";
/// The views, each after the views it uses.
inline constexpr std::array<std::string_view, 11> view_names = {
    "v_span",   "v_step_phase_by_span", "v_step_phase", "v_phase",       "v_round",  "v_head",
    "v_prompt", "v_category",           "v_coverage",   "v_draft_share", "v_speedup"};

bool has_table(const Database& db, std::string_view name);
/// Returns whether the table has the column. Version 3 added columns to gpu_op.
bool has_column(const Database& db, std::string_view table, std::string_view column);

/// CREATE VIEW statements, in views.cpp.
extern const char* const view_sql;
/// An index and the columns that it covers.
struct Index {
    std::string_view name, on;
};
inline constexpr std::array<Index, 14> indexes = {{{"i_prompt_run", "prompt(run_id)"},
                                                   {"i_step_run", "step(run_id, ordinal)"},
                                                   {"i_round_step", "round(step_id)"},
                                                   {"i_round_prompt", "round(prompt_id, ordinal)"},
                                                   {"i_node_round", "node(round_id, node)"},
                                                   {"i_node_top_round", "node_top(round_id, node)"},
                                                   {"i_token_prompt", "token(prompt_id, position)"},
                                                   {"i_token_round", "token(round_id)"},
                                                   {"i_span_step", "span(step_id)"},
                                                   {"i_gpu_op_step", "gpu_op(step_id)"},
                                                   {"i_nvtx_range_run", "nvtx_range(run_id, start_ns)"},
                                                   {"i_head_eval_run", "head_eval(run_id)"},
                                                   {"i_head_eval_round", "head_eval(round_id)"},
                                                   {"i_counter_run", "counter(run_id, name, time_ns)"}}};
/// Returns the SQL that creates the missing indexes. It runs at the end of a run, since indexes halve the
/// insert rate.
std::string index_sql();
/// SQL expression over table run with the result of losslessness(), as exports spell it: `exact`, `in
/// distribution` or `LOSSY`.
extern const char* const losslessness_sql;

/// Initialises an empty database: identity, tables, phase rows, views, meta. Returns SQLITE_OK or the error
/// code.
int create_schema(const Database& db);

/// Removes a capture and the files that SQLite keeps with it, as far as that is possible.
void remove_with_logs(const std::string& path);

/// Keeps other processes from creating or removing captures in a folder. Held while a name is checked, freed
/// and taken. Does nothing where folders can't be locked.
class FolderLock {
  public:
    explicit FolderLock(const std::string& path);
    ~FolderLock();
    FolderLock(const FolderLock&) = delete;
    FolderLock& operator=(const FolderLock&) = delete;

  private:
    int folder_ = -1;
};

/// Returns whether files next to `path` can be locked. SQLite calls a file that can't be locked busy.
bool has_locks(const std::string& path);

/// Makes `path` free for a new capture. The path must not exist, unless `overwrite` is set and it is a
/// capture that no process has open.
Status prepare_new_capture(const std::string& path, bool overwrite);
/// Returns an error if `out` exists or its folder does not.
Status check_new_file(const std::string& out);
/// Calls `write` with a temporary name, and renames what it wrote to `out`. If it fails, nothing is left.
Status write_then_rename(const std::string& out, FunctionRef<Status(const std::string& partial)> write);
/// Creates an empty capture in the best way that its file system allows, and notes what others miss by it.
/// The caller holds the folder's lock.
Result<Database> create_capture(const std::string& path, Notes& notes);

/// Migrates the tables of a file from version `from` to `from + 1`. Runs inside the migration's transaction.
/// Views need no step, because they are dropped and created again.
struct Migration {
    int from = 0;
    std::string sql;
    /// Runs after the SQL of every step, so it sees the newest tables. Returns SQLITE_OK or the error code.
    int (*then)(const Database&) = nullptr;
};
/// Returns the steps to the current version.
const std::vector<Migration>& migrations();
/// Migrates a file of an older version to `target_version`. First it makes a copy at `<path>.v<N>.bak`
/// (VACUUM INTO), then it runs every step in one transaction. A newer version is an error; for the current
/// one nothing happens.
Status migrate(const Database& db, const std::string& path, const std::vector<Migration>& steps,
               int target_version);

}  // namespace draftscope::storage
