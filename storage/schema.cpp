#include "storage/schema.h"

#include "base/clock.h"
#include "base/phase_names.h"
#include "storage/capture_file.h"

namespace draftscope::storage {

// CHECK constraints cover only our enums and flags. A capture must not stop because of an odd value; `check`
// reports those. REAL columns allow NULL because SQLite stores NaN as NULL.
const char* const table_sql = R"sql(
CREATE TABLE meta(
  key TEXT NOT NULL PRIMARY KEY,
  value TEXT NOT NULL
) STRICT, WITHOUT ROWID;
CREATE TABLE run(
  id INTEGER PRIMARY KEY,
  name TEXT NOT NULL,
  started_utc TEXT NOT NULL,
  ended TEXT CHECK (ended IN ('ok', 'cancelled', 'error', 'recovered')),
  frontend TEXT NOT NULL,
  target TEXT NOT NULL,
  drafter TEXT NOT NULL,
  head TEXT NOT NULL,
  tree TEXT NOT NULL,
  verify TEXT NOT NULL,
  temperature REAL NOT NULL,
  seed INTEGER NOT NULL,
  batch INTEGER NOT NULL,
  threads INTEGER NOT NULL,
  backend TEXT NOT NULL,
  precision TEXT NOT NULL,
  numerics TEXT NOT NULL,
  tier TEXT NOT NULL,
  synthetic INTEGER NOT NULL CHECK (synthetic IN (0, 1)),
  acceptance TEXT NOT NULL,
  vocab_id INTEGER,
  config_json TEXT NOT NULL,
  machine_json TEXT NOT NULL,
  plain_setting TEXT NOT NULL DEFAULT '',
  setting TEXT NOT NULL DEFAULT '',
  baseline INTEGER NOT NULL DEFAULT 0 CHECK (baseline IN (0, 1))
) STRICT;
CREATE TABLE prompt(
  id INTEGER PRIMARY KEY,
  run_id INTEGER NOT NULL REFERENCES run(id),
  ordinal INTEGER NOT NULL,
  external_id TEXT NOT NULL,
  turn INTEGER NOT NULL,
  suite TEXT NOT NULL,
  category TEXT NOT NULL,
  text TEXT NOT NULL,
  output TEXT NOT NULL,
  prompt_tokens INTEGER NOT NULL,
  generated_tokens INTEGER NOT NULL,
  prefill_ns INTEGER NOT NULL,
  finish TEXT CHECK (finish IN ('eos', 'length', 'context', 'cancelled'))
) STRICT;
CREATE TABLE step(
  id INTEGER PRIMARY KEY,
  run_id INTEGER NOT NULL REFERENCES run(id),
  ordinal INTEGER NOT NULL,
  start_ns INTEGER NOT NULL,
  end_ns INTEGER NOT NULL,
  paused_ns INTEGER NOT NULL,
  excluded TEXT CHECK (excluded IN ('warmup', 'paused', 'shadow'))
) STRICT;
CREATE TABLE round(
  id INTEGER PRIMARY KEY,
  run_id INTEGER NOT NULL REFERENCES run(id),
  step_id INTEGER NOT NULL REFERENCES step(id),
  prompt_id INTEGER NOT NULL REFERENCES prompt(id),
  ordinal INTEGER NOT NULL,
  start_ns INTEGER NOT NULL,
  end_ns INTEGER NOT NULL,
  context_length INTEGER NOT NULL,
  tree_nodes INTEGER NOT NULL,
  tree_depth INTEGER NOT NULL,
  drafted INTEGER NOT NULL,
  accepted INTEGER NOT NULL,
  committed INTEGER NOT NULL,
  clipped INTEGER NOT NULL CHECK (clipped IN (0, 1))
) STRICT;
CREATE TABLE node(
  round_id INTEGER NOT NULL REFERENCES round(id),
  node INTEGER NOT NULL,
  parent INTEGER,
  depth INTEGER NOT NULL,
  token_id INTEGER NOT NULL,
  draft_logprob REAL,
  cum_logprob REAL,
  target_prob REAL,
  target_rank INTEGER,
  accepted INTEGER NOT NULL CHECK (accepted IN (0, 1)),
  target_token_id INTEGER,
  target_token_prob REAL,
  target_covered INTEGER NOT NULL CHECK (target_covered IN (0, 1))
) STRICT;
CREATE TABLE node_top(
  round_id INTEGER NOT NULL REFERENCES round(id),
  node INTEGER NOT NULL,
  rank INTEGER NOT NULL,
  token_id INTEGER NOT NULL,
  target_prob REAL
) STRICT;
CREATE TABLE token(
  prompt_id INTEGER NOT NULL REFERENCES prompt(id),
  position INTEGER NOT NULL,
  round_id INTEGER REFERENCES round(id),
  token_id INTEGER NOT NULL,
  source TEXT NOT NULL CHECK (source IN ('prefill', 'draft', 'bonus')),
  depth INTEGER NOT NULL,
  rank INTEGER,
  covered INTEGER NOT NULL CHECK (covered IN (0, 1))
) STRICT;
CREATE TABLE phase(
  id INTEGER PRIMARY KEY,
  name TEXT NOT NULL UNIQUE,
  parent_id INTEGER REFERENCES phase(id),
  colour TEXT NOT NULL,
  sort INTEGER NOT NULL
) STRICT;
CREATE TABLE span(
  id INTEGER PRIMARY KEY,
  run_id INTEGER NOT NULL REFERENCES run(id),
  step_id INTEGER REFERENCES step(id),
  round_id INTEGER REFERENCES round(id),
  phase_id INTEGER NOT NULL REFERENCES phase(id),
  level INTEGER NOT NULL,
  lane INTEGER NOT NULL,
  thread_id INTEGER NOT NULL,
  start_ns INTEGER NOT NULL,
  end_ns INTEGER NOT NULL,
  rows INTEGER NOT NULL,
  bytes INTEGER NOT NULL
) STRICT;
CREATE TABLE step_phase(
  run_id INTEGER NOT NULL REFERENCES run(id),
  step_id INTEGER NOT NULL REFERENCES step(id),
  phase_id INTEGER NOT NULL REFERENCES phase(id),
  busy_ns INTEGER NOT NULL,
  exposed_ns INTEGER NOT NULL,
  bytes INTEGER NOT NULL,
  PRIMARY KEY (step_id, phase_id)
) STRICT, WITHOUT ROWID;
CREATE TABLE gpu_op(
  id INTEGER PRIMARY KEY,
  run_id INTEGER NOT NULL REFERENCES run(id),
  step_id INTEGER REFERENCES step(id),
  phase_id INTEGER NOT NULL REFERENCES phase(id),
  stream INTEGER NOT NULL,
  name TEXT NOT NULL,
  start_ns INTEGER NOT NULL,
  end_ns INTEGER NOT NULL,
  graph_node_id INTEGER NOT NULL,
  correlation_id INTEGER NOT NULL,
  grid TEXT NOT NULL,
  block TEXT NOT NULL,
  bytes INTEGER NOT NULL,
  device INTEGER NOT NULL DEFAULT 0,
  registers INTEGER NOT NULL DEFAULT 0
) STRICT;
CREATE TABLE gpu_counter(
  run_id INTEGER NOT NULL REFERENCES run(id),
  step_id INTEGER NOT NULL REFERENCES step(id),
  phase_id INTEGER NOT NULL REFERENCES phase(id),
  name TEXT NOT NULL,
  value REAL
) STRICT;
CREATE TABLE nvtx_range(
  run_id INTEGER NOT NULL REFERENCES run(id),
  domain TEXT NOT NULL,
  name TEXT NOT NULL,
  thread_id INTEGER NOT NULL,
  start_ns INTEGER NOT NULL,
  end_ns INTEGER NOT NULL,
  payload INTEGER NOT NULL
) STRICT;
CREATE TABLE head_eval(
  run_id INTEGER NOT NULL REFERENCES run(id),
  round_id INTEGER REFERENCES round(id),
  head TEXT NOT NULL,
  mode TEXT NOT NULL CHECK (mode IN ('drive', 'selfpaced', 'aligned', 'calibration')),
  active_rows REAL,
  bytes INTEGER NOT NULL,
  head_ns INTEGER NOT NULL,
  accepted INTEGER NOT NULL,
  committed INTEGER NOT NULL,
  covered INTEGER NOT NULL,
  covered_mass REAL
) STRICT;
CREATE TABLE counter(
  run_id INTEGER NOT NULL REFERENCES run(id),
  time_ns INTEGER NOT NULL,
  name TEXT NOT NULL,
  value REAL
) STRICT;
CREATE TABLE loss(
  run_id INTEGER NOT NULL REFERENCES run(id),
  time_ns INTEGER NOT NULL,
  kind TEXT NOT NULL,
  count INTEGER NOT NULL
) STRICT;
CREATE TABLE clock_anchor(
  run_id INTEGER NOT NULL REFERENCES run(id),
  monotonic_ns INTEGER NOT NULL,
  utc_ns INTEGER NOT NULL,
  gpu_ns INTEGER
) STRICT;
CREATE TABLE vocab(
  vocab_id INTEGER NOT NULL,
  token_id INTEGER NOT NULL,
  bytes BLOB NOT NULL,
  text TEXT NOT NULL,
  rank INTEGER,
  count INTEGER,
  PRIMARY KEY (vocab_id, token_id)
) STRICT, WITHOUT ROWID;
CREATE TABLE note(
  run_id INTEGER NOT NULL REFERENCES run(id),
  round_id INTEGER REFERENCES round(id),
  time_ns INTEGER NOT NULL,
  text TEXT NOT NULL
) STRICT;
)sql";

const char* const index_sql = R"sql(
CREATE INDEX IF NOT EXISTS i_prompt_run ON prompt(run_id);
CREATE INDEX IF NOT EXISTS i_step_run ON step(run_id, ordinal);
CREATE INDEX IF NOT EXISTS i_round_step ON round(step_id);
CREATE INDEX IF NOT EXISTS i_round_prompt ON round(prompt_id, ordinal);
CREATE INDEX IF NOT EXISTS i_node_round ON node(round_id, node);
CREATE INDEX IF NOT EXISTS i_node_top_round ON node_top(round_id, node);
CREATE INDEX IF NOT EXISTS i_token_prompt ON token(prompt_id, position);
CREATE INDEX IF NOT EXISTS i_token_round ON token(round_id);
CREATE INDEX IF NOT EXISTS i_span_step ON span(step_id);
CREATE INDEX IF NOT EXISTS i_gpu_op_step ON gpu_op(step_id);
CREATE INDEX IF NOT EXISTS i_nvtx_range_run ON nvtx_range(run_id, start_ns);
CREATE INDEX IF NOT EXISTS i_head_eval_run ON head_eval(run_id);
CREATE INDEX IF NOT EXISTS i_head_eval_round ON head_eval(round_id);
CREATE INDEX IF NOT EXISTS i_counter_run ON counter(run_id, name, time_ns);
)sql";

const char* const losslessness_sql =
    "CASE WHEN acceptance <> 'real' THEN 'LOSSY' WHEN temperature <= 0 OR verify = 'match' THEN 'exact' "
    "WHEN verify = 'pq' THEN 'in distribution' ELSE 'LOSSY' END";

std::vector<std::string> index_names() {
    constexpr std::string_view before = "IF NOT EXISTS ";
    const std::string_view sql = index_sql;
    std::vector<std::string> names;
    for (std::size_t at = sql.find(before); at != std::string_view::npos; at = sql.find(before, at)) {
        at += before.size();
        names.emplace_back(sql.substr(at, sql.find(' ', at) - at));
    }
    return names;
}

bool has_table(const Database& db, std::string_view name) {
    return db.integer("SELECT count(*) FROM sqlite_schema WHERE type = 'table' AND name = " +
                      sql_quoted(name, '\'')) == 1;
}

bool has_column(const Database& db, std::string_view table, std::string_view column) {
    return db.integer(fmt::format("SELECT count(*) FROM pragma_table_info({}) WHERE name = {}",
                                  sql_quoted(table, '\''), sql_quoted(column, '\''))) == 1;
}

int create_schema(const Database& db) {
    const std::string identity = fmt::format("PRAGMA application_id = {}; PRAGMA user_version = {};",
                                             capture_application_id, capture_schema_version);
    if (const int code = db.exec(identity); code != SQLITE_OK) return code;
    if (const int code = db.exec(table_sql); code != SQLITE_OK) return code;
    if (const int code = db.exec(view_sql); code != SQLITE_OK) return code;
    Statement phase = db.prepare("INSERT INTO phase VALUES (?, ?, ?, ?, ?)");
    for (const PhaseRow& row : phase_rows) {
        const std::string colour = fmt::format("#{:06X}", row.rgb);
        const int code = phase.run(row.id, row.name, IdOrNull{row.parent_id}, colour, row.sort);
        if (code != SQLITE_DONE) return code;
    }
    Statement meta = db.prepare("INSERT INTO meta VALUES (?, ?)");
    const std::string created = utc_text(utc_ns()).text;
    for (const auto& [key, value] : {std::pair<std::string, std::string>{"created_utc", created},
                                     {"schema_version", std::to_string(capture_schema_version)},
                                     {"sqlite_version", sqlite3_libversion()},
                                     {"writer", "draftscope"}})
        if (const int code = meta.run(key, value); code != SQLITE_DONE) return code;
    return SQLITE_OK;
}

}  // namespace draftscope::storage
