#include "storage/schema.h"

namespace draftscope::storage {

// The definitions of capture/queries.h in SQL. The helper views come first: v_span (self times),
// v_step_phase_by_span (a row per step and phase, from the spans) and v_step_phase (the same, computed during
// recording). A bare column next to min() is taken from the row with the minimum, as SQLite documents.
const char* const view_sql = R"sql(
CREATE VIEW v_span AS
WITH line AS (
  SELECT id, step_id, lane, thread_id, start_ns, end_ns, max(end_ns) OVER (
    PARTITION BY step_id, lane, iif(lane = 0, 0, thread_id) ORDER BY start_ns, end_ns DESC, id DESC
    ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS reached_ns
  FROM span),
nested AS MATERIALIZED (
  SELECT c.id AS id, p.id AS parent_span_id, c.end_ns - c.start_ns AS ns, min(p.end_ns - p.start_ns)
  FROM line c JOIN span p
    ON p.step_id = c.step_id AND p.lane = c.lane AND (c.lane = 0 OR p.thread_id = c.thread_id) AND p.id <> c.id
   AND p.start_ns <= c.start_ns AND p.end_ns >= c.end_ns
   AND (p.end_ns - p.start_ns > c.end_ns - c.start_ns OR p.id > c.id)
  WHERE c.end_ns <= c.reached_ns
  GROUP BY c.id),
inner_time AS MATERIALIZED (SELECT parent_span_id AS id, sum(ns) AS ns FROM nested GROUP BY parent_span_id)
SELECT s.id AS span_id, s.run_id, s.step_id, s.round_id, s.phase_id, s.level, s.lane, s.thread_id, s.start_ns,
  s.end_ns, s.rows, s.bytes, s.end_ns - s.start_ns AS duration_ns,
  s.end_ns - s.start_ns - coalesce(i.ns, 0) AS self_ns, n.parent_span_id
FROM span s LEFT JOIN inner_time i ON i.id = s.id LEFT JOIN nested n ON n.id = s.id;

CREATE VIEW v_step_phase_by_span AS
WITH spans AS MATERIALIZED (
  SELECT span_id, run_id, step_id, phase_id, lane, start_ns, end_ns, bytes, self_ns, parent_span_id
  FROM v_span WHERE step_id IN (SELECT id FROM step WHERE sampled)),
overlap AS MATERIALIZED (
  SELECT s.span_id, sum(max(0, min(s.end_ns, c.end_ns) - max(s.start_ns, c.start_ns))) AS ns
  FROM spans s JOIN spans c ON c.step_id = s.step_id AND c.lane = 0 AND c.parent_span_id IS NULL
  WHERE s.lane <> 0 GROUP BY s.span_id),
critical AS MATERIALIZED (
  SELECT step_id, sum(max(0, end_ns - max(start_ns, coalesce(reached_ns, start_ns)))) AS ns
  FROM (SELECT step_id, start_ns, end_ns, max(end_ns) OVER (
          PARTITION BY step_id ORDER BY start_ns ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS reached_ns
        FROM spans WHERE lane = 0)
  GROUP BY step_id)
SELECT s.run_id, s.step_id, s.phase_id, sum(s.self_ns) AS busy_ns,
  sum(CASE WHEN s.lane = 0 THEN s.self_ns ELSE max(0, s.self_ns - coalesce(o.ns, 0)) END) AS exposed_ns,
  sum(s.bytes) AS bytes
FROM spans s LEFT JOIN overlap o ON o.span_id = s.span_id GROUP BY s.step_id, s.phase_id
UNION ALL
SELECT t.run_id, t.id, (SELECT id FROM phase WHERE name = 'remainder'),
  max(0, t.end_ns - t.start_ns - t.paused_ns - coalesce(c.ns, 0)),
  max(0, t.end_ns - t.start_ns - t.paused_ns - coalesce(c.ns, 0)), 0
FROM step t LEFT JOIN critical c ON c.step_id = t.id WHERE t.sampled;

CREATE VIEW v_step_phase AS
SELECT run_id, step_id, phase_id, busy_ns, exposed_ns, bytes FROM step_phase;

CREATE VIEW v_phase AS
WITH counted AS (
  SELECT run_id, sum(CASE WHEN sampled THEN end_ns - start_ns - paused_ns END) AS ns
  FROM step WHERE excluded IS NULL GROUP BY run_id),
sample AS MATERIALIZED (
  SELECT v.run_id, v.phase_id, v.busy_ns, v.exposed_ns, v.bytes,
    row_number() OVER (PARTITION BY v.run_id, v.phase_id ORDER BY v.busy_ns) - 1 AS k,
    count(*) OVER (PARTITION BY v.run_id, v.phase_id) AS n
  FROM v_step_phase v JOIN step t ON t.id = v.step_id WHERE t.excluded IS NULL),
stat AS MATERIALIZED (
  SELECT run_id, phase_id, n, sum(busy_ns) AS total, sum(exposed_ns) AS exposed, sum(bytes) AS bytes,
    sum(busy_ns * max(0.0, 1.0 - abs(k - 0.5 * (n - 1)))) AS median,
    CASE WHEN n >= 36 THEN sum(busy_ns * max(0.0, 1.0 - abs(k - 0.9 * (n - 1)))) END AS p90,
    CASE WHEN n >= 368 THEN sum(busy_ns * max(0.0, 1.0 - abs(k - 0.99 * (n - 1)))) END AS p99
  FROM sample GROUP BY run_id, phase_id),
away AS (
  SELECT s.run_id, s.phase_id, abs(s.busy_ns - m.median) AS ns, s.n,
    row_number() OVER (PARTITION BY s.run_id, s.phase_id ORDER BY abs(s.busy_ns - m.median)) - 1 AS k
  FROM sample s JOIN stat m ON m.run_id = s.run_id AND m.phase_id = s.phase_id),
spread AS (
  SELECT run_id, phase_id, 1.4826 * sum(ns * max(0.0, 1.0 - abs(k - 0.5 * (n - 1)))) AS mad
  FROM away GROUP BY run_id, phase_id)
SELECT c.run_id, p.id AS phase_id, p.name, p.parent_id, p.colour, p.sort, coalesce(s.n, 0) AS n,
  coalesce(s.total, 0) AS total, 1.0 * s.total / s.n AS mean, s.median, d.mad, s.p90, s.p99, coalesce(1.0 * s.exposed / c.ns, 0.0) AS share,
  coalesce(s.exposed, 0) AS exposed, coalesce(s.bytes, 0) AS bytes
FROM counted c CROSS JOIN phase p LEFT JOIN stat s ON s.run_id = c.run_id AND s.phase_id = p.id
LEFT JOIN spread d ON d.run_id = c.run_id AND d.phase_id = p.id
WHERE s.n > 0 OR p.name IN ('backbone', 'head', 'topk', 'gather', 'verify', 'remainder')
ORDER BY c.run_id, p.sort;

CREATE VIEW v_round AS
SELECT r.id AS round_id, r.run_id, r.step_id, r.prompt_id, r.ordinal, s.excluded, r.start_ns, r.end_ns,
  r.end_ns - r.start_ns AS duration_ns, s.paused_ns, r.context_length, r.tree_nodes, r.tree_depth, r.drafted,
  r.accepted, r.committed, r.clipped, h.head, h.active_rows, h.bytes, iif(s.sampled, h.head_ns, NULL) AS head_ns,
  h.covered, 1.0 * h.covered / h.committed AS coverage, h.covered_mass, s.sampled, h.row_tokens,
  r.drafted_by
FROM round r JOIN step s ON s.id = r.step_id
LEFT JOIN head_eval h ON h.round_id = r.id AND h.mode = 'drive';

CREATE VIEW v_head AS
WITH eval AS MATERIALIZED (
  SELECT e.*, r.prompt_id,
    iif(e.mode = 'drive', t.excluded IS NULL AND coalesce(t.sampled, 1), t.excluded IS NOT 'warmup') AS timed
  FROM head_eval e LEFT JOIN round r ON r.id = e.round_id LEFT JOIN step t ON t.id = r.step_id),
conversation AS MATERIALIZED (
  SELECT id AS prompt_id, quote(suite) || quote(external_id) || sum(begins) OVER (
    PARTITION BY run_id, suite, external_id ORDER BY ordinal, id ROWS UNBOUNDED PRECEDING) AS name
  FROM (SELECT *, external_id IS NULL OR turn <= coalesce(lag(turn) OVER (
      PARTITION BY run_id, suite, external_id ORDER BY ordinal, id), turn) AS begins FROM prompt)),
calibrated AS MATERIALIZED (
  SELECT e.run_id, count(DISTINCT coalesce(c.name, '')) AS conversations
  FROM eval e LEFT JOIN conversation c ON c.prompt_id = e.prompt_id
  WHERE e.mode = 'calibration' AND e.head = 'full' GROUP BY e.run_id),
stat AS MATERIALIZED (
  SELECT run_id, head, mode, count(*) AS rounds, sum(timed) AS timed, sum(committed) AS committed,
    sum(accepted) AS accepted, sum(covered) AS covered, sum(CASE WHEN timed THEN head_ns ELSE 0 END) AS head_ns,
    avg(active_rows) AS active_rows, avg(bytes) AS bytes, avg(flops) AS flops,
    avg(covered_mass) AS covered_mass, avg(row_tokens) AS row_tokens
  FROM eval GROUP BY run_id, head, mode),
driven AS MATERIALIZED (
  SELECT run_id, round_id, count(*) AS rounds, sum(committed) AS committed
  FROM eval WHERE mode = 'drive' AND round_id IS NOT NULL GROUP BY run_id, round_id),
beside AS MATERIALIZED (
  SELECT s.run_id, s.head, s.mode, 1.0 * sum(d.committed) / sum(d.rounds) AS tau
  FROM stat s JOIN stat d ON d.run_id = s.run_id AND d.mode = 'drive'
  WHERE s.mode = 'drive' GROUP BY s.run_id, s.head
  UNION ALL
  SELECT s.run_id, s.head, s.mode, 1.0 * sum(d.committed) / sum(d.rounds)
  FROM (SELECT DISTINCT run_id, head, mode, prompt_id FROM eval WHERE mode = 'selfpaced') s
  JOIN (SELECT run_id, prompt_id, count(*) AS rounds, sum(committed) AS committed
    FROM eval WHERE mode = 'drive' GROUP BY run_id, prompt_id) d
    ON d.run_id = s.run_id AND d.prompt_id IS s.prompt_id
  GROUP BY s.run_id, s.head, s.mode
  UNION ALL
  SELECT e.run_id, e.head, e.mode, 1.0 * sum(d.committed) / sum(d.rounds)
  FROM eval e JOIN driven d ON d.run_id = e.run_id AND d.round_id = e.round_id
  WHERE e.mode IN ('aligned', 'calibration') GROUP BY e.run_id, e.head, e.mode),
prompt_time AS MATERIALIZED (
  SELECT run_id, prompt_id, sum(CASE WHEN excluded IS NULL THEN committed ELSE 0 END) AS committed,
    sum(CASE WHEN excluded IS NULL THEN ns ELSE 0.0 END) AS ns, sum(excluded IS NULL AND sampled) AS sampled,
    sum(CASE WHEN excluded IS NULL AND sampled THEN ns ELSE 0.0 END) AS sampled_ns
  FROM (SELECT r.run_id, r.prompt_id, r.committed, t.excluded, t.sampled,
      1.0 * (t.end_ns - t.start_ns - t.paused_ns) / count(*) OVER (PARTITION BY r.step_id) AS ns
    FROM round r JOIN step t ON t.id = r.step_id)
  GROUP BY run_id, prompt_id),
total AS MATERIALIZED (
  SELECT run_id, sum(sampled) AS sampled, sum(sampled_ns) AS sampled_ns, sum(committed) AS committed, sum(ns) AS ns,
    (SELECT sum(head_ns) FROM stat WHERE stat.run_id = prompt_time.run_id AND stat.mode = 'drive') AS head_ns
  FROM prompt_time GROUP BY run_id),
prompt_drive AS MATERIALIZED (
  SELECT run_id, prompt_id, head, count(*) AS rounds, sum(committed) AS committed, sum(timed) AS timed,
    sum(CASE WHEN timed THEN head_ns ELSE 0 END) AS head_ns
  FROM eval WHERE mode = 'drive' AND prompt_id IS NOT NULL GROUP BY run_id, prompt_id, head),
shared AS MATERIALIZED (
  SELECT a.id AS run_id, p.id AS prompt_id, q.id AS full_prompt_id
  FROM run a JOIN run b
    ON b.id <> a.id AND b.head = 'full' AND b.setting = a.setting
  JOIN prompt p ON p.run_id = a.id
  JOIN prompt q ON q.run_id = b.id AND q.external_id IS p.external_id AND q.turn IS p.turn AND q.text IS p.text
  WHERE p.id IN (SELECT prompt_id FROM prompt_time)
    AND q.id IN (SELECT prompt_id FROM prompt_drive WHERE head = 'full')),
mine AS (SELECT DISTINCT run_id, prompt_id FROM shared),
theirs AS (SELECT DISTINCT run_id, full_prompt_id AS prompt_id FROM shared),
mine_drive AS (
  SELECT m.run_id, 1.0 * sum(d.committed) / sum(d.rounds) AS tau
  FROM mine m JOIN prompt_drive d ON d.prompt_id = m.prompt_id GROUP BY m.run_id),
mine_speed AS (
  SELECT m.run_id, sum(d.committed) / sum(d.ns) AS tokens_per_ns
  FROM (SELECT DISTINCT s.run_id, s.prompt_id FROM shared s JOIN prompt_time f ON f.prompt_id = s.full_prompt_id
    WHERE f.ns > 0) m JOIN prompt_time d ON d.prompt_id = m.prompt_id GROUP BY m.run_id),
their_drive AS MATERIALIZED (
  SELECT t.run_id, 1.0 * sum(d.committed) / sum(d.rounds) AS tau, sum(d.head_ns) AS head_ns,
    sum(d.timed) AS timed
  FROM theirs t JOIN prompt_drive d ON d.prompt_id = t.prompt_id AND d.head = 'full' GROUP BY t.run_id),
their_time AS MATERIALIZED (
  SELECT t.run_id, sum(d.sampled) AS sampled, sum(d.sampled_ns) AS sampled_ns,
    sum(d.committed) / sum(d.ns) AS tokens_per_ns
  FROM theirs t JOIN prompt_time d ON d.prompt_id = t.prompt_id GROUP BY t.run_id),
candidate AS (
  SELECT s.run_id, CASE s.mode WHEN 'drive' THEN 1 WHEN 'selfpaced' THEN 2 WHEN 'aligned' THEN 4 ELSE 5 END
      AS preference, 1.0 * s.committed / s.rounds AS tau, 1.0 * s.head_ns / nullif(s.timed, 0) AS head_ns,
    b.tau AS drive_tau, (t.sampled_ns - coalesce(t.head_ns, 0)) / nullif(t.sampled, 0) AS rest_ns
  FROM stat s LEFT JOIN beside b ON b.run_id = s.run_id AND b.head = s.head AND b.mode = s.mode
  LEFT JOIN total t ON t.run_id = s.run_id
  WHERE s.head = 'full'
  UNION ALL
  SELECT f.run_id, 3, f.tau, 1.0 * f.head_ns / nullif(f.timed, 0), m.tau,
    (t.sampled_ns - f.head_ns) / nullif(t.sampled, 0)
  FROM their_drive f LEFT JOIN mine_drive m ON m.run_id = f.run_id LEFT JOIN their_time t ON t.run_id = f.run_id),
reference AS MATERIALIZED (
  SELECT run_id, min(preference) AS preference, tau, nullif(head_ns, 0) AS head_ns, drive_tau,
    CASE WHEN rest_ns > 0 THEN rest_ns END AS rest_ns
  FROM candidate GROUP BY run_id),
plane AS (
  SELECT s.run_id, s.head, s.mode, s.rounds,
    CASE WHEN s.mode <> 'calibration' THEN 1.0 * s.committed / s.rounds END AS tau,
    CASE WHEN s.mode <> 'calibration' THEN 1.0 + 1.0 * s.accepted / s.rounds END AS tau_unclipped,
    CASE WHEN f.preference < 5 OR k.conversations >= 6
      THEN (1.0 * s.committed / s.rounds) / f.tau * coalesce(f.drive_tau / b.tau, 1.0) END AS rho_tau,
    nullif(1.0 * s.head_ns / nullif(s.timed, 0), 0) / f.head_ns AS nu, f.head_ns / f.rest_ns AS kappa,
    CASE f.preference WHEN 1 THEN 'drive' WHEN 2 THEN 'selfpaced' WHEN 3 THEN 'other run' WHEN 4 THEN 'aligned'
      WHEN 5 THEN 'calibration' END AS reference,
    CASE WHEN s.mode = 'drive' AND s.head = 'full' THEN CASE WHEN w.committed > 0 AND w.ns > 0 THEN 1.0 END
      WHEN s.mode = 'drive' THEN nullif(m.tokens_per_ns, 0) / t.tokens_per_ns END AS measured_speedup,
    s.active_rows, s.bytes, coalesce(1.0 * s.head_ns / nullif(s.timed, 0), 0.0) AS head_ns,
    1.0 * s.covered / s.committed AS coverage, s.covered_mass, s.flops, s.row_tokens
  FROM stat s LEFT JOIN reference f ON f.run_id = s.run_id AND (s.mode <> 'calibration' OR f.preference = 5)
  LEFT JOIN calibrated k ON k.run_id = s.run_id
  LEFT JOIN beside b ON b.run_id = s.run_id AND b.head = s.head AND b.mode = s.mode
  LEFT JOIN mine_speed m ON m.run_id = s.run_id LEFT JOIN their_time t ON t.run_id = s.run_id
  LEFT JOIN total w ON w.run_id = s.run_id)
SELECT run_id, head, mode, rounds, tau, rho_tau, nu, kappa,
  rho_tau * (1.0 + kappa) / (1.0 + nu * kappa) AS predicted_speedup, measured_speedup, active_rows, bytes,
  head_ns, coverage, covered_mass, reference, tau_unclipped, flops, row_tokens
FROM plane
ORDER BY run_id, instr('drive selfpaced aligned calibration', mode), head;

CREATE VIEW v_prompt AS
WITH rounds AS (
  SELECT r.prompt_id, count(*) AS rounds, sum(r.drafted) AS drafted, sum(r.accepted) AS accepted,
    sum(r.committed) AS committed, sum(t.end_ns - t.start_ns - t.paused_ns) AS decode_ns,
    1e9 * sum(CASE WHEN t.excluded IS NULL THEN r.committed END) /
      sum(CASE WHEN t.excluded IS NULL THEN t.end_ns - t.start_ns - t.paused_ns END) AS tokens_per_second
  FROM round r JOIN step t ON t.id = r.step_id GROUP BY r.prompt_id)
SELECT p.run_id, p.id AS prompt_id, p.ordinal, p.external_id, p.turn, p.suite, p.category, p.prompt_tokens,
  p.generated_tokens, p.prefill_ns, p.finish, coalesce(r.rounds, 0) AS rounds, coalesce(r.drafted, 0) AS drafted,
  coalesce(r.accepted, 0) AS accepted, coalesce(r.committed, 0) AS committed,
  1.0 * r.committed / r.rounds AS tau, coalesce(r.decode_ns, 0) AS decode_ns,
  r.tokens_per_second, 1.0 + 1.0 * r.accepted / r.rounds AS tau_unclipped
FROM prompt p LEFT JOIN rounds r ON r.prompt_id = p.id ORDER BY p.id;

CREATE VIEW v_category AS
WITH shared AS (
  SELECT r.id, r.run_id, p.suite, p.category, p.id AS prompt_id, r.drafted, r.accepted, r.committed,
    iif(t.excluded IS NULL, r.committed, 0) AS timed_committed,
    1.0 * iif(t.excluded IS NULL, t.end_ns - t.start_ns - t.paused_ns, 0)
      / count(*) OVER (PARTITION BY r.step_id) AS ns
  FROM round r JOIN step t ON t.id = r.step_id JOIN prompt p ON p.id = r.prompt_id)
SELECT s.run_id, s.suite, s.category, count(DISTINCT s.prompt_id) AS prompts, count(*) AS rounds,
  sum(s.drafted) AS drafted, sum(s.accepted) AS accepted, sum(s.committed) AS committed,
  1.0 * sum(s.committed) / count(*) AS tau, sum(s.ns) AS decode_ns,
  1e9 * sum(s.timed_committed) / nullif(sum(s.ns), 0) AS tokens_per_second, avg(h.active_rows) AS active_rows,
  1.0 * sum(h.covered) / sum(h.committed) AS coverage, avg(h.covered_mass) AS covered_mass,
  1.0 + 1.0 * sum(s.accepted) / count(*) AS tau_unclipped, avg(h.row_tokens) AS row_tokens
FROM shared s LEFT JOIN head_eval h ON h.round_id = s.id AND h.mode = 'drive'
GROUP BY s.run_id, s.suite, s.category;

CREATE VIEW v_coverage AS
SELECT p.run_id, p.suite, p.category, t.depth, count(*) AS emitted, sum(t.covered) AS covered,
  1.0 * sum(t.covered) / count(*) AS coverage
FROM token t JOIN prompt p ON p.id = t.prompt_id WHERE t.source <> 'prefill'
GROUP BY p.run_id, p.suite, p.category, t.depth;

CREATE VIEW v_rejection AS
WITH tip AS (
  SELECT n.round_id, n.node, max(n.depth) AS depth, n.target_token_id, n.target_token_prob, n.target_covered,
    n.target_draft_rank, n.target_draft_logprob
  FROM node n WHERE n.accepted OR n.depth = 0 GROUP BY n.round_id),
draft AS (
  SELECT r.id AS round_id, r.run_id, r.prompt_id, r.context_length, r.clipped, t.depth, t.target_token_id,
    t.target_token_prob, t.target_covered, t.target_draft_rank, t.target_draft_logprob, max(n.depth) AS deepest, sum(n.parent = t.node) AS children,
    sum(n.parent = t.node AND n.token_id = t.target_token_id) AS same
  FROM round r JOIN tip t ON t.round_id = r.id JOIN run u ON u.id = r.run_id
  LEFT JOIN node n ON n.round_id = r.id AND n.depth > 0
    AND (u.acceptance <> 'imported' OR r.drafted IS NULL OR n.node <= r.drafted)
  WHERE t.target_token_id IS NOT NULL GROUP BY r.id)
SELECT d.run_id, d.round_id, d.prompt_id, p.category, d.depth + 1 AS depth,
  max(0, d.context_length - p.prompt_tokens) AS position, d.target_token_id AS token_id,
  d.target_token_prob AS token_prob, d.target_draft_rank AS draft_rank,
  d.target_draft_logprob AS draft_logprob,
  CASE WHEN d.clipped OR d.same THEN 'text ended' WHEN d.deepest IS NULL THEN 'nothing drafted'
    WHEN NOT d.children AND d.depth >= d.deepest THEN 'whole draft accepted'
    WHEN NOT d.children AND d.target_draft_rank IS NULL THEN 'node not expanded'
    WHEN NOT coalesce(d.target_covered, 1) THEN 'outside the active set'
    WHEN d.target_draft_rank IS NULL THEN 'another token drafted'
    WHEN d.target_draft_logprob IS NULL THEN 'not among the candidates' ELSE 'drafted and pruned' END AS stop
FROM draft d JOIN prompt p ON p.id = d.prompt_id;

CREATE VIEW v_draft_share AS
WITH weight AS (
  SELECT r.run_id, r.step_id, p.suite, p.category,
    1.0 * count(*) / sum(count(*)) OVER (PARTITION BY r.step_id) AS part
  FROM round r JOIN prompt p ON p.id = r.prompt_id GROUP BY r.step_id, p.suite, p.category),
phase_time AS MATERIALIZED (
  SELECT v.step_id,
    sum(CASE WHEN coalesce(q.name, p.name) = 'backbone' THEN v.exposed_ns ELSE 0 END) AS backbone_ns,
    sum(CASE WHEN coalesce(q.name, p.name) IN ('router', 'head', 'topk', 'gather')
      THEN v.exposed_ns ELSE 0 END) AS head_ns,
    sum(CASE WHEN coalesce(q.name, p.name) = 'verify' THEN v.exposed_ns ELSE 0 END) AS verify_ns
  FROM v_step_phase v JOIN phase p ON p.id = v.phase_id LEFT JOIN phase q ON q.id = p.parent_id
  GROUP BY v.step_id),
share AS (
  SELECT w.run_id, w.suite, w.category, sum(w.part * (t.end_ns - t.start_ns - t.paused_ns)) AS step_ns,
    sum(w.part * f.backbone_ns) AS backbone_ns, sum(w.part * f.head_ns) AS head_ns,
    sum(w.part * f.verify_ns) AS verify_ns
  FROM weight w JOIN step t ON t.id = w.step_id JOIN phase_time f ON f.step_id = w.step_id
  WHERE t.excluded IS NULL GROUP BY w.run_id, w.suite, w.category)
SELECT run_id, suite, category, step_ns, backbone_ns, head_ns, verify_ns,
  (backbone_ns + head_ns) / step_ns AS draft_share, head_ns / (backbone_ns + head_ns) AS head_share_of_draft
FROM share;

CREATE VIEW v_speedup AS
WITH prompt_time AS MATERIALIZED (
  SELECT run_id, prompt_id, sum(committed) AS committed, sum(ns) AS ns
  FROM (SELECT r.run_id, r.prompt_id, r.committed, t.excluded,
      1.0 * (t.end_ns - t.start_ns - t.paused_ns) / count(*) OVER (PARTITION BY r.step_id) AS ns
    FROM round r JOIN step t ON t.id = r.step_id)
  WHERE excluded IS NULL GROUP BY run_id, prompt_id HAVING sum(ns) > 0),
shared AS MATERIALIZED (
  SELECT a.id AS run_id, p.id AS prompt_id, q.id AS plain_prompt_id
  FROM run a JOIN run b ON a.drafter <> 'none' AND b.drafter = 'none' AND b.plain_setting = a.plain_setting
  JOIN prompt p ON p.run_id = a.id
  JOIN prompt q ON q.run_id = b.id AND q.external_id IS p.external_id AND q.turn IS p.turn AND q.text IS p.text
  WHERE p.id IN (SELECT prompt_id FROM prompt_time) AND q.id IN (SELECT prompt_id FROM prompt_time)),
mine AS (
  SELECT m.run_id, count(DISTINCT quote(p.external_id) || p.turn || quote(p.text)) AS prompts,
    count(DISTINCT quote(p.suite) || quote(p.external_id)) AS conversations,
    sum(d.committed) / sum(d.ns) AS tokens_per_ns
  FROM (SELECT DISTINCT run_id, prompt_id FROM shared) m JOIN prompt p ON p.id = m.prompt_id
  JOIN prompt_time d ON d.prompt_id = m.prompt_id GROUP BY m.run_id),
plain AS (
  SELECT m.run_id, sum(d.committed) / sum(d.ns) AS tokens_per_ns
  FROM (SELECT DISTINCT run_id, plain_prompt_id AS prompt_id FROM shared) m
  JOIN prompt_time d ON d.prompt_id = m.prompt_id GROUP BY m.run_id)
SELECT m.run_id, m.prompts, m.conversations, 1e9 * m.tokens_per_ns AS tokens_per_second,
  1e9 * p.tokens_per_ns AS plain_tokens_per_second, m.tokens_per_ns / p.tokens_per_ns AS speedup
FROM mine m JOIN plain p ON p.run_id = m.run_id WHERE p.tokens_per_ns > 0 ORDER BY m.run_id;
)sql";

}  // namespace draftscope::storage
