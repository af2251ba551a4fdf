#include "app/gui/models/matrix.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "tests/gui/synthetic_sweep.h"
#include "tests/support/capture_builder.h"

namespace draftscope {
namespace {

using testing::CaptureBuilder;
using testing::round_of;

/// A run over seven conversations of two categories; every round commits `committed` tokens in 10 ms. As many
/// drafts are accepted, as if the text ended before the last token.
void add_run(CaptureBuilder& builder, const std::string& drafter, const std::string& head, int committed,
             const std::string& bench) {
    RunRow run;
    run.drafter = drafter;
    run.head = head;
    run.tree = "chain=2";
    if (!bench.empty()) run.config_json = R"({"bench": )" + bench + "}";
    builder.run(run);
    TimeNs at = 0;
    for (int p = 0; p < 7; ++p) {
        PromptRow prompt;
        prompt.ordinal = p;
        prompt.external_id = std::to_string(p);
        prompt.category = p < 3 ? "writing" : "humaneval";
        prompt.prefill_ns = head.empty() ? 30'000'000 : 10'000'000;
        builder.prompt(prompt);
        for (int r = 0; r < 4; ++r, at += 10'000'000) {
            RoundRecord round =
                round_of(committed, {{head, HeadMode::drive, 1'000'000, committed, committed}});
            round.round.accepted = committed;
            builder.step(at, at + 10'000'000, {}, round);
        }
    }
}

TEST(MatrixModel, HasTheMethodsOfABenchByTask) {
    CaptureBuilder builder;
    add_run(builder, "none", "", 1, R"({"method": "none", "repetition": 0})");
    add_run(builder, "eagle3", "full", 3, R"({"method": "eagle3 x full", "repetition": 0})");
    add_run(builder, "eagle3", "full", 3, R"({"method": "eagle3 x full", "repetition": 0, "control": true})");
    add_run(builder, "eagle3", "fr-spec", 2, R"({"method": "eagle3 x fr-spec", "repetition": 0})");
    const MatrixModel model = build_matrix(builder.snapshot());
    EXPECT_EQ(model.empty_text, "");
    EXPECT_EQ(model.columns, (std::vector<std::string>{"mean of tasks", "Conv.", "humaneval"}));
    ASSERT_EQ(model.rows.size(), 3u) << "the noise floor is no method";
    const MatrixRow& full = model.rows[1];
    EXPECT_EQ(full.name, "eagle3 x full");
    EXPECT_EQ(full.head, "full");
    ASSERT_EQ(full.cells.size(), 3u);
    EXPECT_DOUBLE_EQ(full.cells[0].tau->value, 1 + 3.0) << "unclipped";
    EXPECT_TRUE(full.cells[0].tau->interval.has_value());
    EXPECT_FALSE(full.cells[1].tau->interval.has_value()) << "three conversations";
    EXPECT_NEAR(full.cells[0].speedup->value, 3, 1e-9);
    EXPECT_NEAR(full.cells[0].end_to_end->value, (70.0 / 4) / (50.0 / 12), 1e-9) << "prefill counts";
    EXPECT_NEAR(model.rows[2].cells[2].speedup->value, 2, 1e-9);
    EXPECT_NE(model.note.find("measured, 3 runs"), std::string::npos) << model.note;
}

TEST(MatrixModel, TakesOrdinaryRunsWithoutABench) {
    CaptureBuilder builder;
    add_run(builder, "eagle3", "full", 3, "");
    RunRow setting;
    setting.config_json = R"({"recording": "/recorded"})";
    builder.run(setting);
    add_run(builder, "eagle3", "full", 2, "");
    const MatrixModel model = build_matrix(builder.snapshot());
    ASSERT_EQ(model.rows.size(), 2u);
    EXPECT_EQ(model.rows[0].name, "eagle3 x full @ chain=2");
    EXPECT_EQ(model.rows[1].name, "eagle3 x full @ chain=2 (run 3)") << "run 2 replays a setting";
    EXPECT_DOUBLE_EQ(model.rows[1].cells[0].tau->value, 1 + 2.0);
    EXPECT_FALSE(model.rows[0].cells[0].speedup.has_value());
    EXPECT_NE(model.note.find("needs a run with drafter none"), std::string::npos) << model.note;
    EXPECT_NE(build_matrix(Snapshot()).empty_text.find("as a benchmark saves them"), std::string::npos);
}

TEST(MatrixModel, PredictsTheFrontOfASweepByTask) {
    const auto view = test::synthetic_sweep();
    const MatrixModel model = build_sweep_matrix(view->settings, view->categories, view->usual);
    EXPECT_EQ(model.columns, (std::vector<std::string>{"mean of tasks", "chat", "code"}));
    const std::vector<std::size_t> front = sweep_front(view->settings, 1);
    ASSERT_GE(model.rows.size(), front.size());
    for (std::size_t i = 0; i < front.size(); ++i) {
        const MatrixRow& row = model.rows[i];
        EXPECT_NEAR(row.cells[0].speedup->value,
                    (row.cells[1].speedup->value + row.cells[2].speedup->value) / 2, 1e-9);
        EXPECT_LT(row.cells[1].tau->value, row.cells[2].tau->value) << "later conversations accept more";
        EXPECT_NEAR(row.cells[1].speedup->value / row.cells[1].tau->value,
                    view->settings[front[i]].plain_ms / view->settings[front[i]].round_ms, 1e-9);
    }
    EXPECT_TRUE(std::ranges::any_of(model.rows,
                                    [](const MatrixRow& row) { return row.name.starts_with("default: "); }));
    EXPECT_NE(build_sweep_matrix({}, {}, std::nullopt).empty_text, "");
}

TEST(MatrixModel, ConversationsOfOneTaskHaveTheFiguresOfTheSweep) {
    const auto view = test::synthetic_sweep();
    std::vector<SweepSetting> settings = view->settings;
    const std::vector<std::string> one_task(view->categories.size(), "chat");
    SweepSetting& setting = settings[sweep_front(settings, 1).front()];
    const SettingFigures& row = setting.figures;
    const MatrixCell cell = build_sweep_matrix(settings, one_task, view->usual).rows[0].cells[0];
    ASSERT_TRUE(row.tau.interval && cell.tau->interval && cell.speedup->interval);
    EXPECT_NEAR(cell.tau->value, row.tau.value, 1e-9) << "the synthetic sweep does not know its drafts";
    EXPECT_NEAR(cell.tau->interval->low, row.tau.interval->low, 1e-9);
    EXPECT_NEAR(cell.speedup->value, row.speedup.value, 1e-9);
    EXPECT_NEAR(cell.speedup->interval->high, row.speedup.interval->high, 1e-9);
    // Drafts that the end of a text cut off count.
    for (SweepUnit& unit : setting.units) unit.accepted = unit.committed;
    EXPECT_NEAR(build_sweep_matrix(settings, one_task, view->usual).rows[0].cells[0].tau->value,
                row.tau.value + 1, 1e-9);
}

TEST(MatrixTable, HasTheModelsLinesThenThePublishedOnes) {
    MatrixModel model;
    model.columns = {"mean of tasks"};
    model.rows = {{"a", "full", {{Estimate{3, Interval{2.5, 4}}, std::nullopt, std::nullopt, ""}}, "help"}};
    const std::vector<PublishedGroup> groups = published_groups();
    MatrixTable table = build_matrix_table(model, nullptr, MatrixFigure::tau);
    ASSERT_EQ(table.lines.size(), 1u);
    EXPECT_EQ(table.lines[0].cells[0].text, "3.00");
    EXPECT_EQ(table.lines[0].cells[0].help, "3.000 [2.500, 4.000]");
    EXPECT_DOUBLE_EQ(table.max, 4);
    EXPECT_EQ(build_matrix_table(model, nullptr, MatrixFigure::decoding).lines[0].cells[0].text, "-")
        << "no speed-up";
    table = build_matrix_table(model, &groups[0], MatrixFigure::tau);
    EXPECT_EQ(table.columns, (std::vector<std::string>{"mean of tasks", "paper's mean"}));
    EXPECT_EQ(table.lines[0].cells[1].text, "-") << "the paper's mean is not over these tasks";
    EXPECT_EQ(table.lines.size(), 1 + groups[0].rows.size());
    EXPECT_TRUE(table.lines.back().published);
}

TEST(MatrixModel, PublishedRowsKeepTheirTasks) {
    const std::vector<std::string> columns = {"mean of tasks", "Code", "poetry"},
                                   shared = {"mean of tasks", "Code", "Math"};
    bool found = false;
    for (const PublishedGroup& group : published_groups()) {
        if (group.name != "SlimSpec, Llama-3.1-8B-Instruct") continue;
        for (const MatrixRow& row : published_matrix_rows(group, columns)) {
            if (row.name != "slimspec r=d/8") continue;
            found = true;
            EXPECT_DOUBLE_EQ(row.printed.tau->value, 4.37);
            EXPECT_DOUBLE_EQ(row.printed.speedup->value, 2.94);
            EXPECT_FALSE(row.cells[0].tau.has_value()) << "the paper has no poetry";
            EXPECT_DOUBLE_EQ(row.cells[1].tau->value, 4.89);
            EXPECT_DOUBLE_EQ(row.cells[1].speedup->value, 3.3);
            EXPECT_FALSE(row.cells[1].end_to_end.has_value()) << "the paper's speeds are of decoding";
            EXPECT_FALSE(row.cells[2].tau.has_value());
            EXPECT_NE(row.help.find("Table 4"), std::string::npos) << row.help;
        }
        const MatrixRow some = published_matrix_rows(group, shared)[0];
        EXPECT_NEAR(some.cells[0].tau->value, (some.cells[1].tau->value + some.cells[2].tau->value) / 2,
                    1e-9);
    }
    EXPECT_TRUE(found);
}

/// Every published tau and speed-up of a task is in some table of the panel.
TEST(MatrixTable, ShowsAllPublishedValues) {
    MatrixModel model;
    model.columns = {"mean of tasks", "Conv.", "MT", "Summ.", "QA", "Math", "RAG", "Code"};
    int slimspec = 0, taus = 0, printed = 0, derived = 0;
    for (const PublishedGroup& group : published_groups()) {
        for (const MatrixFigure figure :
             {MatrixFigure::tau, MatrixFigure::decoding, MatrixFigure::end_to_end}) {
            const MatrixTable table = build_matrix_table(model, &group, figure);
            const bool end_to_end = group.rows[0]->with_prefill;
            EXPECT_EQ(table.note.empty(),
                      figure == MatrixFigure::tau || end_to_end == (figure == MatrixFigure::end_to_end))
                << group.name << ": " << table.note;
            for (const MatrixLine& line : table.lines)
                for (std::size_t c = 2; c < line.cells.size(); ++c) {
                    if (!line.cells[c].value) continue;
                    slimspec += group.name.starts_with("SlimSpec");
                    const bool computed = line.cells[c].help.find("derived: ") != std::string::npos;
                    (figure == MatrixFigure::tau ? taus : computed ? derived : printed) += 1;
                }
        }
    }
    EXPECT_EQ(slimspec, 984);
    EXPECT_EQ(printed, 520);
    EXPECT_EQ(derived, 242);
    EXPECT_EQ(taus, 818);
}

TEST(MatrixTable, DerivesSpeedupsFromTheSpeedsOfAPaper) {
    const std::vector<std::string> columns = {"mean of tasks", "Conv."};
    for (const PublishedGroup& group : published_groups()) {
        if (group.name != "SpecVocab, Qwen3-8B") continue;
        const MatrixCell cell = published_matrix_rows(group, columns)[0].cells[1];
        EXPECT_NEAR(cell.end_to_end->value, 227.7 / 98.5, 1e-9);
        EXPECT_EQ(cell.derived, "derived: 227.7 / 98.5 tokens per second");
        return;
    }
    FAIL() << "no such group";
}

}  // namespace
}  // namespace draftscope
