#include <gtest/gtest.h>

#include <fstream>

#include "app/jobs/resolve/resolve.h"
#include "tests/support/results.h"
#include "tests/unit/app/jobs/tiny_files.h"

namespace draftscope {
namespace {

using testing::TinyFiles;

TEST(ShippedAcceptance, DemoTableHasHeadsChainsAndTrees) {
    const auto table = require(load_shipped_acceptance("eagle3"));
    ASSERT_TRUE(table.contains("microspec"));
    for (const auto& [head, trees] : table) {
        double before_chain = 1, before_tree = 1;
        for (const TreeAcceptance& one : trees) {
            double& before = one.tree.topk == 1 ? before_chain : before_tree;
            EXPECT_EQ(one.units.size(), 48u);
            double rounds = 0, committed = 0;
            for (const SweepUnit& unit : one.units) {
                rounds += unit.rounds;
                committed += unit.committed;
            }
            EXPECT_GT(committed / rounds, before) << head;  // tau grows with the chain, and with the tree
            before = committed / rounds;
        }
        EXPECT_GT(before_tree, before_chain) << head;
    }
    EXPECT_TRUE(load_shipped_acceptance("ngram")->empty());
}

TEST(ShippedAcceptance, ReportsInvalidFiles) {
    const TinyFiles files;
    const auto message = [&](const std::string& text) {
        std::ofstream(files.file("table.json")) << text;
        const auto table = read_acceptance(files.file("table.json"), "eagle3");
        return table.ok() ? std::string() : table.error().message;
    };
    EXPECT_NE(message("nothing").find("make_acceptance_table"), std::string::npos);
    EXPECT_NE(message(R"({"drafters": {"eagle3": {"nope": {}}}})").find("nope"), std::string::npos);
    const auto tree = [&](const std::string& text) {
        return message(R"({"drafters": {"eagle3": {"full": {"chain=1": )" + text + "}}}}");
    };
    EXPECT_NE(tree("1.5").find("rounds_committed"), std::string::npos);
    EXPECT_NE(tree(R"({"rounds_committed": [[4, 2]]})").find("[4,2]"), std::string::npos);
    EXPECT_EQ(tree(R"({"rounds_committed": [[4, 6], [2, 2]]})"), "");
}

}  // namespace
}  // namespace draftscope
