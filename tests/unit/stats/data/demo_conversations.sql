-- Makes demo_conversations.csv, the pool of interval_coverage_test.cpp: sums by conversation of two runs of the demo
-- over the same prompts, taken evenly from the thirteen categories.
--
--   P="--prompts assets/prompts/spec_bench_half.jsonl --limit 96 --balanced --max-new 48"
--   draftscope run $P --head full --save full.dscope
--   draftscope run $P --head fr-spec:v=8192 --calibrate 1000 --save head.dscope
--   sqlite3 head.dscope "ATTACH 'full.dscope' AS other" ".read demo_conversations.sql" > demo_conversations.csv
--
-- head_ and full_: the two runs. cal_: the first four calibration rounds of each prompt, where the default of
-- --calibrate ends: what the head and what the full head committed there, T_head of the full head. counted_us: times
-- of the head's counted steps.
.headers on
.mode csv
CREATE TEMP VIEW evals AS
SELECT 'head' AS run, p.external_id AS id, p.turn, e.mode, e.committed, e.head_ns, t.excluded, r.id AS round,
  t.end_ns - t.start_ns - t.paused_ns AS step_ns
FROM main.head_eval e JOIN main.round r ON r.id = e.round_id JOIN main.step t ON t.id = r.step_id
JOIN main.prompt p ON p.id = r.prompt_id
UNION ALL
SELECT 'full', p.external_id, p.turn, e.mode, e.committed, e.head_ns, t.excluded, r.id,
  t.end_ns - t.start_ns - t.paused_ns
FROM other.head_eval e JOIN other.round r ON r.id = e.round_id JOIN other.step t ON t.id = r.step_id
JOIN other.prompt p ON p.id = r.prompt_id;
CREATE TEMP VIEW driven AS
SELECT run, id, count(*) AS rounds, sum(committed) AS committed, sum(excluded IS NULL) AS timed_rounds,
  sum(iif(excluded IS NULL, committed, 0)) AS timed_committed, sum(iif(excluded IS NULL, head_ns, 0)) AS head_ns,
  sum(iif(excluded IS NULL, step_ns, 0)) AS step_ns,
  group_concat(iif(excluded IS NULL, step_ns / 1000, NULL), ' ') AS counted_us
FROM evals WHERE mode = 'drive' GROUP BY run, id;
CREATE TEMP VIEW calibration AS
SELECT c.id, count(*) AS rounds, sum(d.committed) AS committed, sum(c.committed) AS full_committed,
  sum(c.head_ns) AS head_ns
FROM (SELECT *, row_number() OVER (PARTITION BY id, turn ORDER BY round) AS k
      FROM evals WHERE run = 'head' AND mode = 'calibration') c
JOIN evals d ON d.run = 'head' AND d.mode = 'drive' AND d.round = c.round
WHERE c.k <= 4 GROUP BY c.id;
SELECT h.id, h.rounds AS head_rounds, h.committed AS head_committed, h.timed_rounds AS head_timed_rounds,
  h.timed_committed AS head_timed_committed, h.head_ns AS head_draft_ns, h.step_ns AS head_step_ns,
  f.rounds AS full_rounds, f.committed AS full_committed, f.timed_rounds AS full_timed_rounds,
  f.timed_committed AS full_timed_committed, f.head_ns AS full_draft_ns, f.step_ns AS full_step_ns,
  coalesce(c.rounds, 0) AS cal_rounds, coalesce(c.committed, 0) AS cal_committed,
  coalesce(c.full_committed, 0) AS cal_full_committed, coalesce(c.head_ns, 0) AS cal_draft_ns, h.counted_us
FROM driven h JOIN driven f ON f.id = h.id AND f.run = 'full' LEFT JOIN calibration c ON c.id = h.id
WHERE h.run = 'head' ORDER BY CAST(h.id AS INTEGER), h.id;
