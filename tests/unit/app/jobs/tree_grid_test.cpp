#include <gtest/gtest.h>

#include "app/jobs/sweep/sweep_job.h"

namespace draftscope {
namespace {

TEST(TreeGrid, ListsTreesThatDiffer) {
    const std::vector<TreeSpec> trees =
        list_trees({.chain = 2, .topks = {2, 3}, .depth = 1, .nodes = {3, 5, 8, 99}});
    std::vector<std::string> texts;
    for (const TreeSpec& tree : trees) texts.push_back(to_text(tree));
    EXPECT_EQ(texts, (std::vector<std::string>{"chain=1", "chain=2", "depth=0,topk=2,nodes=3",
                                               "depth=1,topk=2,nodes=3", "depth=1,topk=2,nodes=5",
                                               "depth=0,topk=3,nodes=3", "depth=1,topk=3,nodes=3",
                                               "depth=1,topk=3,nodes=5", "depth=1,topk=3,nodes=8"}));
    EXPECT_TRUE(list_trees({.chain = 0, .topks = {}}).empty());
}

}  // namespace
}  // namespace draftscope
