#include "tests/support/target_step.h"

#include <gtest/gtest.h>

namespace draftscope::testing {

Status TargetStep::run(Target& target, KvCache& cache, const DraftTree& tree, const LogitsQuery& query,
                       std::span<float> hidden) {
    kernels::Backend& backend = target.backend();
    const Status done = backend.submit([&]() -> Status {
        DS_TRY(round.begin(backend, "the tree"));
        round.spans.begin(backend);
        round.layout.upload_tree(round.memory, 0, tree, cache.length());
        TreePass pass;
        const TreePass::Tree rows{&cache, tree.size(), tree.max_depth()};
        pass.trees = {&rows, 1};
        pass.rows = round.layout.arrays();
        pass.outputs.hidden = round.memory.backend.alloc<float>(hidden.size());
        EXPECT_TRUE(logits.begin(backend, round, query, target.lm_head().n()));
        pass.outputs.logits = logits.data();
        pass.best = logits.best_op();
        DS_ASSIGN(bytes, target.enqueue(pass));
        logits.enqueue(round);
        VerifyContext context{backend, round, logits};
        match_rule()->enqueue(context);
        logits.enqueue_set_probabilities(round);
        logits.request(round);
        backend.download(hidden.data(), pass.outputs.hidden, hidden.size_bytes());
        round.results.enqueue(backend);
        return round.check_memory("the tree");
    });
    if (done.ok()) logits.collect(round, answers);
    return done;
}

}  // namespace draftscope::testing
