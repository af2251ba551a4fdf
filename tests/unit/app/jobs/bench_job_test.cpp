#include "app/jobs/bench/bench_job.h"

#include <fstream>

#include "tests/support/results.h"
#include "tests/unit/app/jobs/tiny_files.h"

namespace draftscope {
namespace {

using testing::TinyFiles;

class BenchJob : public ::testing::Test {
  protected:
    BenchConfig config(int conversations = 5) {
        std::ofstream prompts(files_.file("prompts.jsonl"));
        for (int i = 0; i < conversations; ++i)
            prompts << R"({"question_id": )" << i << R"(, "category": ")" << (i % 2 == 0 ? "even" : "odd")
                    << R"(", "turns": ["hello you", "and the"]})"
                    << "\n";
        BenchConfig made;
        made.run = files_.config(12);
        made.run.prompt.clear();
        made.run.prompts_file = files_.file("prompts.jsonl");
        made.run.raw = true;
        made.block = 2;
        made.heads = {"full", "microspec:wmax=64"};
        made.methods = {"ngram @ chain=3"};
        return made;
    }
    TinyFiles files_;
    DebugGate gate_;
};

TEST_F(BenchJob, EveryMethodDecodesEveryPromptToTheSameText) {
    const auto done = require(run_bench(config(), gate_, {}));
    ASSERT_EQ(done.methods.size(), 4u);
    EXPECT_EQ(done.methods[0].name, "none");
    EXPECT_EQ(done.methods[1].name, "eagle2 x full");
    EXPECT_EQ(done.methods[3].name, "ngram @ chain=3");
    EXPECT_EQ(done.table.categories, (std::vector<std::string>{"even", "odd"}));
    for (std::size_t m = 0; m < 4; ++m) {
        EXPECT_EQ(done.compared[m], 10) << m;
        EXPECT_EQ(done.same[m], 10) << m;
        EXPECT_EQ(done.table.rows[m].all.prompts, 10u);
        EXPECT_EQ(done.table.rows[m].categories[0].prompts, 6u);
        EXPECT_TRUE(done.table.rows[m].all.speedup);
        // Twelve new tokens; the first comes from prefill.
        for (const HeadSample& unit : done.samples.methods[m].units[0]) EXPECT_EQ(unit.committed, 11);
    }
    EXPECT_DOUBLE_EQ(done.table.rows[0].all.tau, 1);
    EXPECT_EQ(done.samples.methods[2].full, 1u);
    EXPECT_FALSE(done.samples.methods[3].full);
    EXPECT_TRUE(done.table.rows[2].cost.nu);
}

TEST_F(BenchJob, AlternatesTheOrderOfMethods) {
    BenchConfig two = config(4);
    two.repeat = 2;
    std::vector<std::string> order;
    JobHooks hooks;
    hooks.on_progress = [&](double, const std::string& what) {
        order.push_back(what.substr(what.rfind(": ") + 2));
    };
    ASSERT_TRUE(run_bench(two, gate_, hooks).ok());
    std::vector<std::string> forwards = {"none", "eagle2 x full", "eagle2 x microspec:wmax=64",
                                         "ngram @ chain=3"};
    std::vector<std::string> expected = forwards;  // the warm-up
    forwards.push_back("none, again for the noise floor");
    expected.insert(expected.end(), forwards.begin(), forwards.end());
    for (int i = 0; i < 2; ++i) expected.insert(expected.end(), forwards.rbegin(), forwards.rend());
    expected.insert(expected.end(), forwards.begin(), forwards.end());
    EXPECT_EQ(order, expected);
}

TEST_F(BenchJob, CancelledRunKeepsCompleteBlocks) {
    JobHooks hooks;
    int turns = 0;
    hooks.on_progress = [&](double, const std::string&) {
        if (++turns == 11) gate_.cancel();  // the second method of the second block, after the warm-up
    };
    const auto done = require(run_bench(config(), gate_, hooks));
    EXPECT_TRUE(done.cancelled);
    EXPECT_EQ(done.conversations, 5u);
    EXPECT_EQ(done.finished_conversations, 2u);
    for (const BenchRow& row : done.table.rows) EXPECT_EQ(row.all.prompts, 4u);
}

TEST_F(BenchJob, CancelledBeforeTheFirstConversation) {
    JobHooks hooks;
    int turns = 0;
    hooks.on_progress = [&](double, const std::string&) {
        if (++turns == 2) gate_.cancel();
    };
    const auto done = require(run_bench(config(), gate_, hooks));
    EXPECT_TRUE(done.cancelled);
    EXPECT_EQ(done.finished_conversations, 0u);
    for (const BenchRow& row : done.table.rows) EXPECT_EQ(row.all.prompts, 0u);
}

TEST_F(BenchJob, MethodsWithoutATreeUseTheDefault) {
    BenchConfig one = config(1);
    one.run.tree.clear();
    one.methods.clear();
    const auto done = require(run_bench(one, gate_, {}));
    EXPECT_EQ(done.methods[0].resolved_tree, "");  // none
    EXPECT_EQ(done.methods[1].resolved_tree, "depth=3,topk=4,nodes=12");
}

TEST_F(BenchJob, ReportsInvalidComparisons) {
    const auto message = [&](auto change) {
        BenchConfig wrong = config();
        change(wrong);
        const auto done = run_bench(wrong, gate_, {});
        if (done.ok() || done.error().kind != ErrorKind::bad_input) return std::string("no bad input");
        return done.error().message;
    };
    EXPECT_NE(message([](BenchConfig& c) { c.heads = {"nope"}; }).find("nope"), std::string::npos);
    EXPECT_NE(message([](BenchConfig& c) { c.methods = {"eagle9"}; }).find("eagle9"), std::string::npos);
    EXPECT_NE(message([](BenchConfig& c) { c.methods = {"ngram @ chain=x"}; }).find("chain"),
              std::string::npos);
    EXPECT_NE(message([](BenchConfig& c) { c.methods = {" x full"}; }).find("DRAFTER"), std::string::npos);
    EXPECT_NE(message([](BenchConfig& c) { c.heads = {}, c.methods = {}; }).find("--heads"),
              std::string::npos);
    EXPECT_NE(message([](BenchConfig& c) { c.repeat = -1; }).find("--repeat"), std::string::npos);
    EXPECT_NE(message([](BenchConfig& c) { c.block = 0; }).find("--block"), std::string::npos);
    EXPECT_NE(message([](BenchConfig& c) { c.run.prompts_file.clear(); }).find("--prompts"),
              std::string::npos);
}

TEST(BenchMethod, ParsesAndFormatsMethods) {
    RunConfig base;
    base.drafter = "eagle3";
    base.tree = "chain=4";
    const auto name = [&](const std::string& text) { return parse_bench_method(text, base)->name; };
    EXPECT_EQ(name("eagle2:/a/b x microspec:wmax=64,source=ctx @ chain=2"),
              "eagle2 x microspec:wmax=64,source=ctx @ chain=2");
    EXPECT_EQ(name("eagle3"), "eagle3 x full @ chain=4");
    EXPECT_EQ(name("ngram x full"), "ngram @ chain=4");
    EXPECT_EQ(name("none @ chain=2"), "none");
    EXPECT_EQ(parse_bench_method("medusa:/m @ chain=2", base)->drafter, "medusa:/m");
}

}  // namespace
}  // namespace draftscope
