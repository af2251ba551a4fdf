// Panels of an imported run say what is not known, and draw no zeros for it.
#include <gmock/gmock.h>

#include <limits>

#include "app/gui/models/coverage.h"
#include "app/gui/models/draft_tree.h"
#include "app/gui/models/phases.h"
#include "app/gui/models/rounds.h"
#include "app/gui/models/text.h"
#include "capture/run_setting.h"
#include "tests/support/capture_builder.h"

namespace draftscope {
namespace {

using testing::CaptureBuilder;
using ::testing::HasSubstr;
using testing::node;

/// A capture with one imported round.
Snapshot imported(RoundRecord round) {
    CaptureBuilder built;
    RunRow run;
    run.acceptance = imported_acceptance;
    run.frontend = "import";
    built.run(run);
    PromptRow prompt;
    prompt.prompt_tokens = -1;
    prompt.output = "an answer";
    built.prompt(prompt);
    StepRecord step;
    step.step.excluded = Excluded::untimed;
    step.step.sampled = false;
    step.rounds = {std::move(round)};
    built.step(std::move(step));
    return built.snapshot();
}

/// Accepted one draft; how many there were is not known.
RoundRecord unknown_round() {
    RoundRecord out;
    out.round.accepted = 1;
    out.round.committed = 2;
    out.round.context_length = out.round.tree_nodes = out.round.tree_depth = out.round.draft_tokens = -1;
    return out;
}

TEST(ImportedRun, HasNoZeroForWhatIsNotKnown) {
    const Snapshot s = imported(unknown_round());
    RoundsModel rounds;
    update_rounds(rounds, s, 1);
    EXPECT_EQ(describe_round(rounds.cells[0]),
              "Round 1: 1 of unknown drafts accepted, 2 committed; its time is not known");
    const AcceptanceModel acceptance = build_acceptance(rounds, s, std::nullopt);
    EXPECT_EQ(acceptance.tau, 2);
    for (const DepthAcceptance& depth : acceptance.depths) EXPECT_EQ(depth.reached, 0);
    EXPECT_THAT(build_draft_tree(s, 0).empty_text, HasSubstr("does not say which tokens"));
    const TextModel text = build_text(s, 1);
    EXPECT_THAT(text.caption, HasSubstr("no token ids"));
    EXPECT_EQ(text.pieces.back().text, "an answer");
    CoverageIndex index;
    index.update(s, 1);
    EXPECT_THAT(build_coverage(s, index, std::nullopt).empty_text, HasSubstr("no token ids"));
    EXPECT_THAT(PhasesBuilder().build(s, 1, std::nullopt).empty_text, HasSubstr("no times"));
}

TEST(ImportedRun, ShowsTheAcceptedPartOfADraft) {
    RoundRecord round = unknown_round();
    round.round.draft_tokens = round.round.tree_depth = 3;
    round.round.tree_nodes = 4;
    round.nodes = {node(0, -1, 0, 5, 1), node(1, 0, 1, 6, 1, true)};
    round.nodes[1].draft_logprob = round.nodes[1].cum_logprob = std::numeric_limits<float>::quiet_NaN();
    round.nodes[1].target_token_id = 7;
    round.nodes[1].target_covered.reset();
    const DraftTreeModel tree = build_draft_tree(imported(round), 0);
    EXPECT_EQ(tree.headline, "1 accepted of 3; the rest of the draft is not known");
    EXPECT_THAT(describe_node(tree, 1)[1], HasSubstr("drafter p not known"));
    EXPECT_EQ(describe_node(tree, 2)[1], "not drafted");
}

TEST(ImportedRun, MarksCandidatesThatWereNotDrafted) {
    RoundRecord round = unknown_round();
    round.round.draft_tokens = round.round.tree_depth = 1;
    round.round.tree_nodes = 2;
    round.nodes = {node(0, -1, 0, 5, 1), node(1, 0, 1, 6, 0.9, true), node(2, 0, 1, 8, 0.1)};
    const DraftTreeModel tree = build_draft_tree(imported(round), 0);
    EXPECT_EQ(tree.drafted, 1);
    EXPECT_EQ(tree.nodes[2].kind, TreeNodeKind::pending);
    EXPECT_THAT(describe_node(tree, 2)[0], HasSubstr("the drafter's candidate, not drafted"));
}

}  // namespace
}  // namespace draftscope
