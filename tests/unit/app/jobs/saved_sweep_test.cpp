#include "app/jobs/sweep/saved_sweep.h"

#include <gtest/gtest.h>

#include "storage/sweep_file.h"
#include "tests/support/results.h"
#include "tests/support/scratch_folder.h"

namespace draftscope {
namespace {

SweepSetting setting(const std::string& head, const std::string& tree, TreeShape shape, double tau) {
    SweepSetting one;
    one.drafter = "eagle3";
    one.head = head;
    one.tree = tree;
    one.shape = shape;
    one.round_ms = 8;
    one.plain_ms = 5;
    for (int c = 0; c < 8; ++c) one.units.push_back({10, 10 * tau + c});
    return one;
}

SweepReport report() {
    SweepReport out;
    out.recording = "demo.recording";
    out.source = "tiny, 8 prompts";
    out.conversations = 8;
    out.categories = {"a", "a", "a", "a", "b", "b", "b", "b"};
    out.max_new = 24;
    out.profile.machine = "test machine";
    out.profile.backend = "cpu";
    out.profile.precision = "int8";
    out.profile.threads = 3;
    out.temperature = 0.5;
    out.artefacts = {"slimspec=own.safetensors"};
    out.settings = {setting("full", "depth=3,topk=4,nodes=12", {3, 4, 12}, 2.4),
                    setting("microspec", "chain=2", {1, 1, 3}, 2.1)};
    out.rows = sweep_table(out.settings);
    out.skipped = {"eagle3 x coral: no cost"};
    OracleLine bound{{"eagle3"}, "full", "", 3, 1, {{0, 2, 0, 2}}, {{0, 50, 0, 70}}, 8, 6};
    out.oracles = {bound};
    bound.drafters = {"ngram", "eagle3"};  // pairs are not drawn
    bound.rounds.push_back({0, 1, 0, 0});
    bound.positions = bound.rounds;
    out.oracles.push_back(bound);
    return out;
}

/// What a file holds is shown as what was swept.
TEST(SavedSweep, ShowsTheSameFromAFile) {
    const testing::ScratchFolder folder;
    const std::string file = folder.file("sweep.dscope");
    const SweepReport swept = report();
    const Advice advice = advise(swept, "my.gguf");
    ASSERT_TRUE(is_ok(save_sweep(file, swept, "my.gguf", &advice)));
    const auto made = make_sweep_view(swept, advice, "my.gguf");
    const auto loaded = load_sweep_views(file);
    ASSERT_TRUE(loaded.ok()) << loaded.error().message;
    ASSERT_EQ(loaded->size(), 1u);
    const SweepView& view = *loaded->front();
    EXPECT_EQ(view.file, file);
    EXPECT_EQ(view.source, made->source);
    EXPECT_EQ(view.recording, made->recording);
    EXPECT_TRUE(view.recording.ends_with("/demo.recording")) << "absolute: " << view.recording;
    EXPECT_EQ(view.costs, "test machine (measured, 3 threads)");
    RunConfig run;
    run.model = "my.gguf";
    run.prompts_file = view.recording;
    run.precision = "int8";
    run.threads = 3;
    run.temperature = 0.5;
    run.max_new = 24;
    run.artefacts = {"slimspec=own.safetensors"};
    EXPECT_EQ(view.run, run) << "the sweep's own model, prompts, threads and precision";
    EXPECT_EQ(made->run, run);
    EXPECT_EQ(view.categories, swept.categories);
    EXPECT_EQ(view.notes, swept.skipped);
    EXPECT_EQ(view.max_new, 24);
    EXPECT_EQ(view.advice.summary, advice.summary);
    EXPECT_EQ(view.advice.changes, advice.changes);
    EXPECT_EQ(view.advice.run_line, advice.run_line);
    ASSERT_EQ(view.rows.size(), 2u);
    ASSERT_TRUE(view.usual.has_value());
    EXPECT_EQ(view.settings[view.rows[*view.usual].setting].head, "full");
    for (std::size_t r = 0; r < 2; ++r) {
        const SweepSetting& one = view.settings[view.rows[r].setting];
        const SweepSetting& other = made->settings[made->rows[r].setting];
        EXPECT_EQ(one.head, other.head);
        EXPECT_EQ(one.shape, other.shape);
        EXPECT_EQ(one.units.size(), 8u);
        EXPECT_DOUBLE_EQ(view.rows[r].speedup.value, made->rows[r].speedup.value);
        EXPECT_DOUBLE_EQ(view.rows[r].tau.interval.value().low, made->rows[r].tau.interval.value().low);
        EXPECT_EQ(view.rows[r].on_front, made->rows[r].on_front);
    }
    for (const SweepView* one : {&view, made.get()}) {
        ASSERT_EQ(one->oracles.size(), 1u);
        EXPECT_EQ(one->oracles[0].head, "full");
        EXPECT_DOUBLE_EQ(one->oracles[0].tau, 2);
        EXPECT_DOUBLE_EQ(one->oracles[0].speedup, 1.5);
    }
    ASSERT_TRUE(view.advice.chosen.has_value());
    EXPECT_EQ(view.settings[*view.advice.chosen].head, swept.settings[advice.choice.chosen].head);
}

TEST(SavedSweep, FilesWithoutADescriptionStillShowTheirFigures) {
    const testing::ScratchFolder folder;
    const std::string file = folder.file("sweep.dscope");
    const SweepReport swept = report();
    ASSERT_TRUE(is_ok(save_sweep(file, swept, "", nullptr)));
    const auto sweeps = read_all_swept(file);
    ASSERT_TRUE(sweeps.ok());
    for (const char* about :
         {"", "[]", "no JSON", R"({"recording": 3, "advice": {"changes": [1], "chosen": 2}})"}) {
        ASSERT_TRUE(is_ok(write_swept(file, swept.source, sweeps->front().rows, about)));
        const auto loaded = load_sweep_views(file);
        ASSERT_TRUE(loaded.ok()) << about;
        EXPECT_EQ(loaded->front()->rows.size(), 2u);
        EXPECT_EQ(loaded->front()->recording, "");
        EXPECT_EQ(loaded->front()->advice.summary, "");
        EXPECT_FALSE(loaded->front()->advice.chosen.has_value());
    }
}

}  // namespace
}  // namespace draftscope
