#include "app/gui/models/matrix.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "tests/gui/synthetic_sweep.h"
#include "tests/support/capture_builder.h"

namespace draftscope {
namespace {

using testing::CaptureBuilder;
using testing::round_of;

/// A run over seven conversations of two categories; every round commits `committed` tokens in 10 ms.
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
        builder.prompt(prompt);
        for (int r = 0; r < 4; ++r, at += 10'000'000)
            builder.step(at, at + 10'000'000, {},
                         round_of(committed, {{head, HeadMode::drive, 1'000'000, committed, committed}}));
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
    EXPECT_EQ(model.columns, (std::vector<std::string>{"all", "Conv.", "humaneval"}));
    ASSERT_EQ(model.rows.size(), 3u) << "the noise floor is no method";
    const MatrixRow& full = model.rows[1];
    EXPECT_EQ(full.name, "eagle3 x full");
    EXPECT_EQ(full.head, "full");
    ASSERT_EQ(full.cells.size(), 3u);
    EXPECT_DOUBLE_EQ(full.cells[0].tau->value, 3);
    EXPECT_TRUE(full.cells[0].tau->interval.has_value());
    EXPECT_FALSE(full.cells[1].tau->interval.has_value()) << "three conversations";
    EXPECT_NEAR(full.cells[0].speedup->value, 3, 1e-9);
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
    EXPECT_DOUBLE_EQ(model.rows[1].cells[0].tau->value, 2);
    EXPECT_FALSE(model.rows[0].cells[0].speedup.has_value());
    EXPECT_NE(model.note.find("needs a run with drafter none"), std::string::npos) << model.note;
    EXPECT_NE(build_matrix(Snapshot()).empty_text.find("draftscope bench"), std::string::npos);
}

TEST(MatrixModel, PredictsTheFrontOfASweepByTask) {
    const auto view = test::synthetic_sweep();
    const SweepData data{view->settings, view->rows};
    const MatrixModel model = build_sweep_matrix(data, view->categories, view->usual);
    EXPECT_EQ(model.columns, (std::vector<std::string>{"all", "chat", "code"}));
    const std::vector<std::size_t> front = sweep_front(data, 1);
    ASSERT_GE(model.rows.size(), front.size());
    for (std::size_t i = 0; i < front.size(); ++i) {
        const MatrixRow& row = model.rows[i];
        EXPECT_DOUBLE_EQ(row.cells[0].speedup->value, data.rows[front[i]].speedup.value);
        EXPECT_LT(row.cells[1].tau->value, row.cells[2].tau->value) << "later conversations accept more";
        EXPECT_NEAR(row.cells[1].speedup->value / row.cells[1].tau->value,
                    data.setting(front[i]).plain_ms / data.setting(front[i]).round_ms, 1e-9);
    }
    EXPECT_TRUE(std::ranges::any_of(model.rows,
                                    [](const MatrixRow& row) { return row.name.starts_with("default: "); }));
    EXPECT_NE(build_sweep_matrix({}, {}, std::nullopt).empty_text, "");
}

TEST(MatrixModel, AllConversationsHaveTheFiguresOfTheSweep) {
    const auto view = test::synthetic_sweep();
    const SweepData data{view->settings, view->rows};
    const MatrixModel model = build_sweep_matrix(data, view->categories, view->usual);
    const SweepRow& row = data.rows[sweep_front(data, 1).front()];
    ASSERT_TRUE(row.tau.interval && model.rows[0].cells[0].tau->interval);
    EXPECT_DOUBLE_EQ(model.rows[0].cells[0].tau->interval->low, row.tau.interval->low);
}

TEST(MatrixTable, IsBuiltAgainOnlyForOtherContents) {
    MatrixModel model;
    model.columns = {"all"};
    model.rows = {{"a", "full", {{Estimate{3, Interval{2.5, 4}}, std::nullopt}}, "help"}};
    const std::vector<PublishedGroup> groups = published_groups();
    MatrixTableCache cache;
    const MatrixTable* table = &cache.table(model, nullptr, false);
    ASSERT_EQ(table->lines.size(), 1u);
    EXPECT_EQ(table->lines[0].cells[0].text, "3.00");
    EXPECT_EQ(table->lines[0].cells[0].help, "3.000 [2.500, 4.000]");
    EXPECT_DOUBLE_EQ(table->max, 4);
    cache.table(model, nullptr, false);
    EXPECT_EQ(cache.builds(), 1);
    EXPECT_EQ(cache.table(model, nullptr, true).lines[0].cells[0].text, "-") << "no speed-up";
    table = &cache.table(model, &groups[0], false);
    EXPECT_EQ(table->lines.size(), 1 + groups[0].rows.size());
    EXPECT_TRUE(table->lines.back().published);
    EXPECT_EQ(cache.builds(), 3);
    model.rows[0].cells[0].tau->value = 5;
    model.version = 1;
    EXPECT_EQ(cache.table(model, &groups[0], false).lines[0].cells[0].text, "5.00");
}

TEST(MatrixModel, PublishedRowsKeepTheirTasks) {
    const std::vector<std::string> columns = {"all", "HumanEval", "poetry"};
    bool found = false;
    for (const PublishedGroup& group : published_groups()) {
        if (!group.name.starts_with("SlimSpec, Llama-3.1-8B-Instruct, ") &&
            group.name != "SlimSpec, Llama-3.1-8B-Instruct")
            continue;
        for (const MatrixRow& row : published_matrix_rows(group, columns)) {
            if (row.name != "slimspec r=d/8" || row.cells[0].tau->value != 4.37) continue;
            found = true;
            EXPECT_DOUBLE_EQ(row.cells[0].speedup->value, 2.94);
            EXPECT_DOUBLE_EQ(row.cells[1].tau->value, 4.89);
            EXPECT_DOUBLE_EQ(row.cells[1].speedup->value, 3.3);
            EXPECT_FALSE(row.cells[2].tau.has_value());
            EXPECT_NE(row.help.find("Table 4"), std::string::npos) << row.help;
        }
    }
    EXPECT_TRUE(found);
}

}  // namespace
}  // namespace draftscope
