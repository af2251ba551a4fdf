#include <gtest/gtest.h>

#include <set>

#include "base/phase.h"
#include "base/phase_names.h"
#include "capture/queries.h"
#include "capture/rejections.h"
#include "file_helpers.h"
#include "random_capture.h"
#include "stats/compare.h"
#include "stats/head_costs.h"
#include "stats/run_statistics.h"
#include "stats/speedup.h"
#include "tests/support/capture_builder.h"
#include "tests/support/results.h"
#include "tests/support/scratch_folder.h"

namespace draftscope {
namespace {

using testing::CaptureShape;
using testing::open_plain;
using testing::query;
using testing::RandomCapture;
using testing::ScratchFolder;
using testing::write_all;

std::optional<double> maybe(const storage::Statement& row, int column) {
    return row.is_null(column) ? std::nullopt : std::optional(row.real(column));
}

void expect_same(const std::optional<double>& sql, const std::optional<double>& cpp,
                 const std::string& what) {
    ASSERT_EQ(sql.has_value(), cpp.has_value()) << what;
    // Both divide sums of integers; only the order of the operations differs.
    const double tolerance = 1e-9 * std::max(1.0, std::abs(cpp.value_or(0)));
    EXPECT_NEAR(sql.value_or(0), cpp.value_or(0), tolerance) << what;
}

class ViewsAndQueries : public ::testing::TestWithParam<int> {};

TEST_P(ViewsAndQueries, PhaseTablesAgree) {
    const ScratchFolder folder;
    const std::string path = folder.file("a.dscope");
    const CaptureShape shape{2, 3, 8 + 7 * GetParam(), 1 + GetParam() % 2, true, 1 + GetParam() % 3};
    write_all(path, RandomCapture(static_cast<std::uint64_t>(GetParam()), shape).records());
    const auto loaded = require(load_capture(path));
    const storage::Database db = open_plain(path);
    for (const RowId run : {1, 2}) {
        const std::vector<PhaseStats> expected = phase_stats(*loaded, run);
        storage::Statement rows = db.prepare(
            "SELECT phase_id, n, total, exposed, coalesce(median, 0), p90, share, bytes, "
            "coalesce(mad, 0), p99 FROM v_phase WHERE run_id = ?");
        ASSERT_TRUE(rows) << db.message();
        rows.bind(1, run);
        for (const PhaseStats& phase : expected) {
            ASSERT_EQ(rows.step(), SQLITE_ROW) << db.message();
            EXPECT_EQ(rows.integer(0), phase.phase_id);
            EXPECT_EQ(rows.integer(1), phase.count);
            EXPECT_EQ(rows.integer(2), phase.total_ns);
            EXPECT_EQ(rows.integer(3), phase.exposed_ns);
            expect_same(rows.real(4), phase.median_ns, "median");
            expect_same(maybe(rows, 5), phase.p90_ns, "p90");
            expect_same(rows.real(6), phase.share, "share");
            expect_same(rows.real(8), phase.mad_ns, "MAD");
            expect_same(maybe(rows, 9), phase.p99_ns, "p99");
            if (phase.total_ns > 0)
                expect_same(rows.real(7) / static_cast<double>(phase.total_ns), phase.gb_per_s, "GB/s");
        }
        EXPECT_EQ(rows.step(), SQLITE_DONE);
    }
}

TEST_P(ViewsAndQueries, RejectionsAgree) {
    const ScratchFolder folder;
    const std::string path = folder.file("a.dscope");
    std::vector<Record> records =
        RandomCapture(static_cast<std::uint64_t>(GetParam()), {2, 3, 20, 1 + GetParam() % 2, true, 1})
            .records();
    Rng rng(static_cast<std::uint64_t>(GetParam()), 8);
    for (Record& record : records)
        if (auto* step = std::get_if<StepRecord>(&record))
            for (RoundRecord& round : step->rounds)
                for (NodeRow& node : round.nodes) {  // few tokens, so that the target's are among the drafts
                    node.token_id %= 3;
                    node.target_token_id = static_cast<TokenId>(rng.below(4)) - (rng.below(10) == 0 ? 10 : 0);
                    if (node.target_token_id < 0) node.target_token_id = no_token;
                    node.target_covered = rng.below(3) == 0 ? std::nullopt : std::optional(rng.below(2) == 0);
                    if (rng.below(3) > 0) node.target_draft_rank = static_cast<int>(rng.below(9));
                    if (node.target_draft_rank && rng.below(2) == 0) node.target_draft_logprob = -1.5f;
                }
    write_all(path, records);
    const auto loaded = require(load_capture(path));
    const storage::Database db = open_plain(path);
    std::set<RoundStop> seen;
    for (const RowId run : {1, 2}) {
        storage::Statement rows = db.prepare(
            "SELECT round_id, stop, depth, token_id, draft_rank FROM v_rejection WHERE run_id = ? "
            "ORDER BY round_id");
        ASSERT_TRUE(rows) << db.message();
        rows.bind(1, run);
        for (const RoundEnding& one : round_endings(*loaded, run)) {
            ASSERT_EQ(rows.step(), SQLITE_ROW) << db.message();
            EXPECT_EQ(rows.integer(0), loaded->rounds[one.round].row.id);
            EXPECT_EQ(rows.text(1), to_text(one.stop));
            EXPECT_EQ(rows.integer(2), one.depth);
            EXPECT_EQ(rows.integer(3), one.token_id);
            EXPECT_EQ(rows.is_null(4), !one.draft_rank);
            EXPECT_EQ(rows.integer(4), one.draft_rank.value_or(0));
            seen.insert(one.stop);
        }
        EXPECT_EQ(rows.step(), SQLITE_DONE);
    }
    EXPECT_GE(seen.size(), 3u);
}

/// Full references of every kind, by seed: driving, in another run of the same or other prompts, self-paced,
/// aligned, calibrating. Shadow rows exist with and without a round.
void vary(std::vector<Record>& records, int seed) {
    Rng rng(static_cast<std::uint64_t>(seed), 7);
    RowId run = 0, round = 0;
    for (std::size_t i = 0; i < records.size(); ++i) {
        if (auto* started = std::get_if<RunStarted>(&records[i])) {
            run = started->run.id;
            round = 0;
        }
        const auto name = [&](PromptRow& prompt) {
            if (seed % 3 == 1) prompt.text += std::to_string(run);  // no two runs share a prompt
        };
        if (auto* prompt = std::get_if<PromptStarted>(&records[i])) name(prompt->prompt);
        if (auto* prompt = std::get_if<PromptEnded>(&records[i])) name(prompt->prompt);
        if (auto* step = std::get_if<StepRecord>(&records[i])) {
            round = step->rounds.back().round.id;
            std::vector<HeadEvalRow> shadows;
            for (RoundRecord& of : step->rounds)
                for (std::size_t e = 0; e < of.head_evals.size(); ++e) {
                    HeadEvalRow& row = of.head_evals[e];
                    if (row.mode == HeadMode::calibration && seed % 2 == 0) row.mode = HeadMode::aligned;
                    if (row.mode == HeadMode::drive && seed % 5 == 0) {
                        HeadEvalRow full = row;
                        full.head = "full";
                        full.mode = HeadMode::selfpaced;
                        full.committed += static_cast<int>(rng.below(2));
                        full.head_ns += 77;
                        shadows.push_back(full);
                    }
                }
            if (!shadows.empty())
                records.insert(records.begin() + static_cast<std::ptrdiff_t>(++i), HeadEvaluated{shadows});
            continue;
        }
        if (auto* rows = std::get_if<HeadEvaluated>(&records[i]))
            for (HeadEvalRow& row : rows->rows)
                if (row.round_id == 0 && rng.below(3) != 0) row.round_id = round;
    }
}

TEST_P(ViewsAndQueries, HeadTablesAgree) {
    const ScratchFolder folder;
    const std::string path = folder.file("a.dscope");
    const CaptureShape shape{.runs = 1 + GetParam() % 3,
                             .steps_per_run = 6 + 3 * GetParam(),
                             .batch = 1 + GetParam() % 2,
                             .span_interval = 1 + GetParam() % 4 / 2};
    std::vector<Record> records =
        RandomCapture(static_cast<std::uint64_t>(100 + GetParam()), shape).records();
    vary(records, GetParam());
    write_all(path, records);
    const auto loaded = require(load_capture(path));
    const storage::Database db = open_plain(path);
    FullReference reference = FullReference::none;
    for (RowId run = 1; run <= shape.runs; ++run) {
        storage::Statement rows = db.prepare(
            "SELECT head, mode, rounds, tau, rho_tau, nu, kappa, predicted_speedup, coverage, covered_mass, "
            "active_rows, bytes, head_ns, measured_speedup, reference, tau_unclipped, flops, row_tokens "
            "FROM v_head WHERE run_id = ?");
        ASSERT_TRUE(rows) << db.message();
        rows.bind(1, run);
        const auto value = [](const std::optional<Estimate>& estimate) {
            return estimate ? std::optional(estimate->value) : std::nullopt;
        };
        for (const HeadComparison& head : head_costs(*loaded, run)) {
            ASSERT_EQ(rows.step(), SQLITE_ROW) << db.message();
            EXPECT_EQ(rows.text(0), head.stats.head);
            EXPECT_EQ(rows.text(1), to_text(head.stats.mode));
            EXPECT_EQ(rows.integer(2), head.stats.rounds);
            expect_same(rows.real(3), head.stats.tau, "tau");
            expect_same(maybe(rows, 3), value(head.cost.tau), "tau of the model");
            expect_same(maybe(rows, 4), value(head.cost.rho_tau), "rho_tau");
            expect_same(maybe(rows, 5), value(head.cost.nu), "nu");
            expect_same(maybe(rows, 6), value(head.cost.kappa), "kappa");
            expect_same(maybe(rows, 7), value(head.cost.predicted), "predicted_speedup");
            expect_same(maybe(rows, 8), head.stats.coverage, "coverage");
            expect_same(maybe(rows, 9), head.stats.covered_mass, "covered_mass");
            expect_same(rows.real(10), head.stats.active_rows, "active_rows");
            expect_same(rows.real(11), head.stats.bytes_per_round, "bytes");
            expect_same(rows.real(12), head.stats.head_ns_per_round, "head_ns");
            expect_same(maybe(rows, 13), value(head.cost.measured), "measured_speedup");
            EXPECT_EQ(rows.is_null(14) ? std::string() : std::string(rows.text(14)), to_text(head.reference));
            expect_same(rows.real(15), head.stats.tau_unclipped, "tau_unclipped");
            expect_same(rows.real(16), head.stats.flops_per_round, "flops");
            expect_same(maybe(rows, 17), head.stats.row_tokens, "row_tokens");
            if (run == 2 && head.stats.mode == HeadMode::drive) reference = head.reference;
        }
        EXPECT_EQ(rows.step(), SQLITE_DONE);
    }
    if (shape.runs < 2) return;
    EXPECT_EQ(reference, GetParam() % 5 == 0   ? FullReference::selfpaced
                         : GetParam() % 3 != 1 ? FullReference::other_run
                         : GetParam() % 2 == 0 ? FullReference::aligned
                                               : FullReference::calibration);
}
TEST_P(ViewsAndQueries, SpeedupsAgree) {
    const ScratchFolder folder;
    const std::string path = folder.file("a.dscope");
    const CaptureShape shape{4, 3, 12, 1 + GetParam() % 2, true};
    std::vector<Record> records = RandomCapture(static_cast<std::uint64_t>(GetParam()), shape).records();
    for (Record& record : records) {
        auto* started = std::get_if<RunStarted>(&record);
        if (started == nullptr) continue;
        RunRow& run = started->run;
        if (run.id != 2) run.seed = static_cast<std::uint64_t>(run.id);
        if (run.id % 2 == 1) {
            run.drafter = "none";
            run.head.clear();
        }
        if (run.id == 4 && GetParam() % 3 == 0) run.config_json = R"({"max_new": 7})";
    }
    write_all(path, records);
    const auto loaded = require(load_capture(path));
    const storage::Database db = open_plain(path);
    std::size_t found = 0;
    for (RowId run = 1; run <= 4; ++run) {
        const auto expected = compute_speedup(*loaded, run, {.resamples = 0});
        storage::Statement row = db.prepare(
            "SELECT prompts, conversations, tokens_per_second, plain_tokens_per_second, speedup FROM "
            "v_speedup WHERE run_id = ?");
        ASSERT_TRUE(row) << db.message();
        row.bind(1, run);
        ASSERT_EQ(row.step(), expected ? SQLITE_ROW : SQLITE_DONE) << db.message();
        if (!expected) continue;
        ++found;
        EXPECT_EQ(expected->plain_runs, (std::vector<RowId>{1, 3}));
        EXPECT_EQ(row.integer(0), static_cast<std::int64_t>(expected->prompts));
        EXPECT_EQ(row.integer(1), static_cast<std::int64_t>(expected->conversations));
        expect_same(row.real(2), expected->tokens_per_second, "tok/s");
        expect_same(row.real(3), expected->plain_tokens_per_second, "plain tok/s");
        expect_same(row.real(4), expected->ratio.value, "speed-up");
    }
    EXPECT_EQ(found, GetParam() % 3 == 0 ? 1u : 2u);
}
INSTANTIATE_TEST_SUITE_P(Seeds, ViewsAndQueries, ::testing::Range(1, 11));

/// Seven conversations whose first rounds accept more. With `calibrated`, the full head also drafted in some
/// of these, and their time is marked as it was in captures before version 7.
std::vector<Record> conversations(bool calibrated) {
    testing::CaptureBuilder built;
    TimeNs now = 0;
    for (int c = 0; c < 7; ++c) {
        PromptRow prompt;
        prompt.ordinal = c;
        prompt.external_id = std::to_string(c);
        prompt.category = c % 2 == 0 ? "code" : "chat";
        built.prompt(prompt);
        for (int r = 0; r < 6; ++r) {
            const int committed = r < 4 ? 4 : 1 + (c + r) % 2;
            const bool second = calibrated && (r == 0 || r == 2);
            std::vector<testing::Eval> evals = {
                {"fr-spec:v=8", HeadMode::drive, 100, committed, committed - 1}};
            if (second) evals.push_back({"full", HeadMode::calibration, 400, 4, 4});
            RoundRecord round = testing::round_of(committed, evals);
            round.round.tree_depth = 3;
            round.round.ordinal = r;
            for (int i = 0; i < committed; ++i) round.tokens.push_back(testing::token(7 + i, i + 1, i > 0));
            built.step(now, now + 1000, {}, round, second ? Excluded::shadow : Excluded::no);
            now += 1000;
        }
    }
    built.add(RunEnded{1, RunEnd::ok, now, {}});
    return built.records();
}

TEST(Views, CalibrationLeavesAcceptanceAsItIs) {
    const ScratchFolder folder;
    std::vector<std::shared_ptr<const Snapshot>> loaded;
    std::vector<std::string> sql[2];
    for (const bool calibrated : {true, false}) {
        const std::string path = folder.file(calibrated ? "a.dscope" : "b.dscope");
        write_all(path, conversations(calibrated));
        loaded.push_back(require(load_capture(path)));
        const storage::Database db = open_plain(path);
        for (const char* const text :
             {"SELECT head, rounds, tau, tau_unclipped, coverage FROM v_head WHERE mode = 'drive'",
              "SELECT ordinal, rounds, tau, tau_unclipped, decode_ns FROM v_prompt",
              "SELECT ordinal, accepted, committed, coverage FROM v_round",
              "SELECT category, prompts, rounds, tau, tau_unclipped, active_rows, coverage FROM v_category",
              "SELECT category, depth, emitted, covered FROM v_coverage",
              "SELECT accepted, count(*) FROM round GROUP BY accepted"})
            for (std::string& row : query(db, text)) sql[calibrated ? 0 : 1].push_back(std::move(row));
    }
    EXPECT_EQ(sql[0], sql[1]);
    EXPECT_EQ(sql[0].front().substr(0, 14), "fr-spec:v=8|42");
    const double tau = run_totals(*loaded[1], 1).tau;
    for (const auto& one : loaded) {
        EXPECT_EQ(run_totals(*one, 1).tau, tau);
        EXPECT_EQ(run_statistics(*one, 1).tau->value, tau);
        EXPECT_EQ(head_costs(*one, 1)[0].cost.tau->value, tau);
        HeadSample all;
        for (const DrivenPrompt& prompt : driven_prompts(*one, 1)) all += prompt.unit;
        EXPECT_EQ(all.committed / all.rounds, tau);
    }
    const Comparison compared = require(compare_runs(*loaded[0], 1, *loaded[1], 1));
    EXPECT_EQ(compared.tau.ratio.value, 1);
    EXPECT_EQ(compared.tau.a, tau);
    ASSERT_EQ(compared.warnings.size(), 1u);  // the older capture lacks the times of these rounds
    EXPECT_NE(compared.warnings[0].find("14 of A's rounds and 0 of B's"), std::string::npos);
}

/// Turns of a conversation count once, and a name that begins again is another conversation.
TEST(Views, RatiosOfCalibrationNeedSixConversations) {
    for (const int conversations : {5, 6}) {
        const ScratchFolder folder;
        testing::CaptureBuilder built;
        for (int p = 0; p < 2 * conversations; ++p) {
            PromptRow prompt;
            prompt.ordinal = p;
            prompt.external_id = std::to_string(p / 2 % 2);
            prompt.turn = p % 2;
            built.prompt(prompt);
            built.step(1000 * p, 1000 * p + 900, {},
                       testing::round_of(2 + p % 3, {{"fr-spec:v=8", HeadMode::drive, 100, 2 + p % 3, 2},
                                                     {"full", HeadMode::calibration, 400, 4, 4}}));
        }
        write_all(folder.file("a.dscope"), built.records());
        const auto loaded = require(load_capture(folder.file("a.dscope")));
        const storage::Database db = open_plain(folder.file("a.dscope"));
        storage::Statement rows = db.prepare("SELECT tau, rho_tau, nu, kappa, predicted_speedup FROM v_head");
        for (const HeadComparison& head : head_costs(*loaded, 1, {.resamples = 0})) {
            ASSERT_EQ(rows.step(), SQLITE_ROW) << db.message();
            const std::optional<Estimate>* const expected[] = {
                &head.cost.tau, &head.cost.rho_tau, &head.cost.nu, &head.cost.kappa, &head.cost.predicted};
            for (int c = 0; c < 5; ++c)
                expect_same(maybe(rows, c),
                            *expected[c] ? std::optional((*expected[c])->value) : std::nullopt,
                            head.stats.head + " column " + std::to_string(c));
            EXPECT_EQ(head.cost.rho_tau.has_value(), conversations == 6);
            EXPECT_TRUE(head.cost.nu && head.cost.kappa);
        }
    }
}

/// Two runs of two steps each, small enough to compute by hand.
class HandComputed : public ::testing::Test {
  protected:
    void SetUp() override {
        add_run(1, "full", {{3, 400}, {3, 400}}, 1000);
        add_run(2, "slimspec:rank=72", {{2, 100}, {3, 100}}, 700);
        write_all(path(), records_);
    }
    std::string path() const { return folder_.file("hand.dscope"); }

    struct Step {
        int committed;
        TimeNs head_ns;
        bool sampled = true;
    };
    void add_run(RowId id, const std::string& head, const std::vector<Step>& steps, TimeNs step_ns) {
        RunRow run;
        run.id = id;
        run.head = head;
        run.target = "tiny";
        run.drafter = "eagle2";
        run.tree = "chain=6";
        records_.push_back(RunStarted{run, nullptr, {}});
        PromptRow prompt;
        prompt.id = id;
        prompt.run_id = id;
        prompt.category = "code";
        records_.push_back(PromptStarted{prompt});
        TimeNs now = 0;
        int position = 0;
        for (const Step& step : steps) {
            StepRecord record;
            record.step = {++step_, id, 0, now, now + step_ns, 0, Excluded::no, step.sampled};
            RoundRecord round;
            round.round.id = step_;
            round.round.run_id = id;
            round.round.step_id = step_;
            round.round.prompt_id = id;
            round.round.draft_tokens = 5;
            round.round.committed = step.committed;
            round.round.accepted = step.committed - 1;
            const int covered = step.committed - 1;
            round.head_evals.push_back({id, step_, head, HeadMode::drive, 72, 1000, step.head_ns,
                                        step.committed - 1, step.committed, covered, std::nullopt});
            for (int i = 0; i < step.committed; ++i)
                round.tokens.push_back({id, position++, step_, 7, TokenSource::draft, i + 1, 3, i < covered});
            record.rounds.push_back(round);
            now += step_ns;
            records_.push_back(record);
            if (!step.sampled) continue;
            add_spans(std::get<StepRecord>(records_.back()), now - step_ns, step.head_ns);
        }
    }
    void add_spans(StepRecord& record, TimeNs now, TimeNs head_ns) {
        const RowId id = record.step.run_id;
        record.spans = {span(id, Phase::backbone, now, now + 100),
                        span(id, Phase::softmax, now + 120, now + 130),
                        span(id, Phase::topk, now + 110, now + 150),
                        span(id, Phase::head, now + 150, now + 150 + head_ns - 40),
                        span(id, Phase::verify, now + 600, now + 650)};
    }
    SpanRow span(RowId run, Phase phase, TimeNs start, TimeNs end) {
        SpanRow row{.id = ++span_,
                    .run_id = run,
                    .step_id = step_,
                    .phase_id = static_cast<int>(phase),
                    .start_ns = start,
                    .end_ns = end};
        return row;
    }

    ScratchFolder folder_;
    std::vector<Record> records_;
    RowId step_ = 0, span_ = 0;
};

TEST_F(HandComputed, Heads) {
    // Full: tau 3, T_head 400, T_non-head 600; slim: tau 2.5, T_head 100, T_non-head 600, reference from run
    // 1. rho = 2.5/3, nu = 0.25, kappa = 400/600, predicted = 5/6 * (5/3) / (7/6); measured =
    // (5/1400)/(6/2000).
    EXPECT_EQ(
        query(open_plain(path()),
              "SELECT run_id, head, rounds, tau, round(rho_tau, 6), nu, round(kappa, 6), "
              "round(predicted_speedup, 6), round(measured_speedup, 6), round(coverage, 6), reference FROM "
              "v_head"),
        (std::vector<std::string>{"1|full|2|3.0|1.0|1.0|0.666667|1.0|1.0|0.666667|drive",
                                  "2|slimspec:rank=72|2|2.5|0.833333|0.25|0.666667|1.190476|1.190476|0.6|"
                                  "other run"}));
}

TEST_F(HandComputed, StepsWithoutSpansCountForSpeedAndAcceptanceOnly) {
    // T_head and T_non-head of two steps, 400 and 600, and 100 and 600; speeds of three: 9/3000 and 9/2100.
    records_.clear();
    add_run(3, "full", {{3, 400}, {3, 0, false}, {3, 400}}, 1000);
    add_run(4, "slimspec:rank=72", {{2, 100}, {3, 0, false}, {4, 100}}, 700);
    write_all(folder_.file("sampled.dscope"), records_);
    const storage::Database db = open_plain(folder_.file("sampled.dscope"));
    EXPECT_EQ(
        query(db,
              "SELECT run_id, head, rounds, tau, rho_tau, nu, round(kappa, 6), "
              "round(predicted_speedup, 6), round(measured_speedup, 6), head_ns, reference FROM v_head"),
        (std::vector<std::string>{
            "3|full|3|3.0|1.0|1.0|0.666667|1.0|1.0|400.0|drive",
            "4|slimspec:rank=72|3|3.0|1.0|0.25|0.666667|1.428571|1.428571|100.0|other run"}));
    EXPECT_EQ(query(db, "SELECT name, n, total, round(share, 6) FROM v_phase WHERE run_id = 4"),
              (std::vector<std::string>{"backbone|2|200|0.142857", "head|2|120|0.085714",
                                        "topk|2|60|0.042857", "softmax|2|20|0.014286", "gather|0|0|0.0",
                                        "verify|2|100|0.071429", "remainder|2|900|0.642857"}));
    EXPECT_EQ(query(db, "SELECT round_id, head_ns, sampled FROM v_round WHERE run_id = 4"),
              (std::vector<std::string>{"8|100|1", "9||0", "10|100|1"}));
    EXPECT_EQ(query(db, "SELECT step_ns FROM v_draft_share WHERE run_id = 4"),
              (std::vector<std::string>{"1400.0"}));
    EXPECT_EQ(query(db, "SELECT decode_ns FROM v_prompt WHERE run_id = 4"),
              (std::vector<std::string>{"2100"}));
    EXPECT_EQ(query(db, "SELECT count(*) FROM step_phase WHERE step_id = 9"),
              (std::vector<std::string>{"0"}));
    const auto loaded = require(load_capture(folder_.file("sampled.dscope")));
    EXPECT_EQ(run_totals(*loaded, 4).counted_ns, 2100);
    for (const CheckFinding& one : require(check_capture(folder_.file("sampled.dscope"))).findings)
        EXPECT_EQ(one.what.find("step_phase"), std::string::npos) << one.what;
}

TEST_F(HandComputed, Phases) {
    // Run 2, each step of 700: backbone 100, softmax 10 inside topk 40, head 60, verify 50; remainder 450.
    EXPECT_EQ(
        query(open_plain(path()),
              "SELECT name, n, total, median, p90, round(share, 6), exposed FROM v_phase WHERE run_id = 2"),
        (std::vector<std::string>{"backbone|2|200|100.0||0.142857|200", "head|2|120|60.0||0.085714|120",
                                  "topk|2|60|30.0||0.042857|60", "softmax|2|20|10.0||0.014286|20",
                                  "gather|0|0|||0.0|0", "verify|2|100|50.0||0.071429|100",
                                  "remainder|2|900|450.0||0.642857|900"}));
}

TEST_F(HandComputed, PromptsCategoriesRoundsCoverageAndDraftShare) {
    const storage::Database db = open_plain(path());
    EXPECT_EQ(
        query(db, "SELECT prompt_id, rounds, committed, tau, decode_ns, tokens_per_second FROM v_prompt"),
        (std::vector<std::string>{"1|2|6|3.0|2000|3000000.0", "2|2|5|2.5|1400|3571428.57142857"}));
    EXPECT_EQ(
        query(db, "SELECT run_id, category, prompts, rounds, tau, decode_ns, active_rows FROM v_category"),
        (std::vector<std::string>{"1|code|1|2|3.0|2000.0|72.0", "2|code|1|2|2.5|1400.0|72.0"}));
    EXPECT_EQ(
        query(db, "SELECT round_id, head, committed, head_ns, duration_ns FROM v_round WHERE run_id = 2"),
        (std::vector<std::string>{"3|slimspec:rank=72|2|100|", "4|slimspec:rank=72|3|100|"}));
    EXPECT_EQ(query(db, "SELECT depth, emitted, covered, coverage FROM v_coverage WHERE run_id = 2"),
              (std::vector<std::string>{"1|2|2|1.0", "2|2|1|0.5", "3|1|0|0.0"}));
    EXPECT_EQ(query(db,
                    "SELECT category, step_ns, backbone_ns, head_ns, verify_ns, round(draft_share, 6), "
                    "head_share_of_draft FROM v_draft_share WHERE run_id = 2"),
              (std::vector<std::string>{"code|1400.0|200.0|200.0|100.0|0.285714|0.5"}));
}

TEST(Views, WithoutAFullReferenceThePlaneIsEmpty) {
    const ScratchFolder folder;
    std::vector<Record> records = RandomCapture(9, {2, 2, 6, 1, true}).records();
    std::vector<Record> kept;
    for (Record& record : records) {
        if (auto* started = std::get_if<RunStarted>(&record)) started->run.head = "fr-spec:v=8192";
        if (auto* step = std::get_if<StepRecord>(&record))
            for (RoundRecord& round : step->rounds) {
                round.head_evals.resize(1);
                round.head_evals[0].head = "fr-spec:v=8192";
            }
        kept.push_back(record);
    }
    write_all(folder.file("a.dscope"), kept);
    const storage::Database db = open_plain(folder.file("a.dscope"));
    EXPECT_EQ(query(db,
                    "SELECT count(*) FROM v_head WHERE rho_tau IS NOT NULL OR nu IS NOT NULL OR kappa IS NOT "
                    "NULL OR predicted_speedup IS NOT NULL OR measured_speedup IS NOT NULL"),
              std::vector<std::string>{"0"});
    EXPECT_EQ(query(db, "SELECT count(*) > 0 FROM v_head WHERE tau > 0"), std::vector<std::string>{"1"});
}

TEST(Views, WorkOnALiveFile) {
    const ScratchFolder folder;
    auto writer = require(CaptureWriter::create(folder.file("a.dscope"), false));
    for (const Record& record : RandomCapture(2, {1, 2, 20, 1, false}).records()) writer->push(record);
    ASSERT_TRUE(writer->flush().ok());
    const storage::Database db = open_plain(folder.file("a.dscope"), SQLITE_OPEN_READONLY);
    for (const char* view : {"v_span", "v_step_phase", "v_phase", "v_round", "v_head", "v_prompt",
                             "v_category", "v_coverage", "v_rejection", "v_draft_share"})
        EXPECT_NE(query(db, fmt::format("SELECT count(*) FROM {}", view)), std::vector<std::string>{"0"})
            << view;
}

}  // namespace
}  // namespace draftscope
