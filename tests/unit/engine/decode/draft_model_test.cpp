#include "engine/draft/draft_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "engine/draft/registry.h"
#include "engine/draft/vocabulary_pair.h"
#include "engine/heads/registry.h"
#include "tests/support/results.h"
#include "tests/support/tiny_decode.h"

namespace draftscope::testing {
namespace {

using ::testing::HasSubstr;

constexpr int chain_levels = 4;
const std::string chain = "chain=4", tree = "depth=3,topk=4,nodes=12";

/// A target with two draft models in f32: the same weights, and other ones of another shape.
class DraftModels : public ::testing::Test, protected TinyDecode {
  protected:
    DraftModels() : TinyDecode(few_token_options()) {
        use("draft-model:same", 21, few_token_options());
        TinyModelOptions small = few_token_options();
        small.hidden = 32;
        small.layers = 1;
        small.heads = 2;
        small.kv_heads = 1;
        small.ffn = 48;
        use("draft-model:small", 5, small);
        use("draft-model:short", 21, few_token_options(40));
    }
    void use(const std::string& spec, std::uint64_t seed, const TinyModelOptions& options) {
        auto model =
            require(Target::build(make_tiny_model(seed, options), fixture_.exec(1), kernels::Precision::f32));
        fixture_.use_drafter(spec, require(make_draft_model_drafter(std::move(model), fixture_.target())));
    }
    std::vector<PromptOutcome> plain(double temperature = 0, int max_new = 40) {
        return fixture_.decode(
            {.drafter = "none", .tree = "chain=1", .temperature = temperature, .max_new = max_new},
            varied_prompts());
    }
    /// A round: tokens accepted, and rows of the catch-up before it.
    struct Round {
        int accepted = 0, rows = 0, levels = 0;
    };
    /// Returns the rounds of each prompt, decoded alone.
    std::vector<std::vector<Round>> rounds(const DecodeCase& setting) {
        RecordList records;
        fixture_.decode(setting, varied_prompts(), &records);
        std::map<RowId, std::vector<Round>> by_prompt;
        const auto list = records.take();
        for (const StepRecord& step : RecordList::of<StepRecord>(list)) {
            const RoundRow& row = step.rounds.at(0).round;
            Round round{row.accepted, 0, row.tree_depth};
            for (const SpanRow& span : step.spans)
                if (span.phase_id == static_cast<int>(Phase::backbone) && span.level == 0)
                    round.rows += span.rows;
            by_prompt[row.prompt_id].push_back(round);
        }
        std::vector<std::vector<Round>> out;
        for (auto& [id, one] : by_prompt) out.push_back(std::move(one));
        return out;
    }
};

TEST_F(DraftModels, SameModelIsAlwaysRight) {
    for (const double temperature : {0.0, 0.9})
        for (const std::string verify : {"match", "pq"}) {
            if (verify == "match" && temperature > 0) continue;
            const DecodeCase setting{
                .drafter = "draft-model:same", .tree = chain, .temperature = temperature, .verify = verify};
            if (temperature == 0)
                expect_same_texts(fixture_.decode(setting, varied_prompts()), plain(), setting);
            for (const std::vector<Round>& prompt : rounds(setting)) {
                ASSERT_GT(prompt.size(), 4u);
                // The last round may end early.
                for (std::size_t i = 0; i + 1 < prompt.size(); ++i)
                    EXPECT_EQ(prompt[i].accepted, chain_levels) << verify << " round " << i;
            }
        }
}

TEST_F(DraftModels, TextsAreThoseOfPlainDecoding) {
    for (const double temperature : {0.0, 0.8}) {
        const auto expected = plain(temperature);
        for (const std::string spec : {"draft-model:same", "draft-model:small"})
            for (const std::string& shape : {chain, tree, std::string("choices:mc_sim_7b_63")})
                for (const int batch : {1, 2}) {
                    const DecodeCase setting{
                        .drafter = spec, .tree = shape, .temperature = temperature, .batch = batch};
                    expect_same_texts(fixture_.decode(setting, varied_prompts()), expected, setting);
                }
    }
}

TEST_F(DraftModels, RejectionSamplingDoesNotDependOnTheBatch) {
    DecodeCase setting{.drafter = "draft-model:small", .tree = tree, .temperature = 0.9, .verify = "pq"};
    const auto alone = fixture_.decode(setting, varied_prompts());
    setting.batch = 2;
    expect_same_texts(fixture_.decode(setting, varied_prompts()), alone, setting);
}

/// Accepted nodes are not computed again: the root is, and a node of the last level, which has no row.
TEST_F(DraftModels, CatchUpHasOneRowOrTwo) {
    int all = 0, none = 0;
    for (const std::string spec : {"draft-model:same", "draft-model:small"}) {
        const auto prompts = rounds({.drafter = spec, .tree = chain});
        for (std::size_t p = 0; p < prompts.size(); ++p) {
            EXPECT_EQ(prompts[p][0].rows, static_cast<int>(varied_prompts()[p].size()) + 1);
            for (std::size_t i = 1; i < prompts[p].size(); ++i) {
                const bool accepted_all = prompts[p][i - 1].accepted == chain_levels;
                EXPECT_EQ(prompts[p][i].rows, accepted_all ? 2 : 1) << spec << " round " << i;
                all += accepted_all ? 1 : 0;
                none += prompts[p][i - 1].accepted == 0 ? 1 : 0;
            }
        }
    }
    EXPECT_GT(all, 10);
    EXPECT_GT(none, 10);
    for (const auto& prompt : rounds({.drafter = "draft-model:small", .tree = tree}))
        for (std::size_t i = 1; i < prompt.size(); ++i) EXPECT_LE(prompt[i].rows, 2);
}

TEST_F(DraftModels, RoundsBeyondItsPositionsDraftNothing) {
    const DecodeCase setting{.drafter = "draft-model:short", .tree = chain, .max_new = 60};
    expect_same_texts(fixture_.decode(setting, varied_prompts()), plain(0, 60), setting);
    const auto prompts = rounds(setting);
    EXPECT_EQ(prompts[0].front().levels, chain_levels);
    EXPECT_EQ(prompts[0].back().levels, 0);
    EXPECT_EQ(prompts[2].front().levels, 0);
}

/// A state that lives through rounds drafts the trees of one that reads the text at once.
TEST_F(DraftModels, KeptNodesEqualComputedOnes) {
    Drafter& drafter = fixture_.drafter("draft-model:same");
    LmHead& head = fixture_.head("full", drafter);
    const auto text = plain()[1].tokens;
    PhaseRecorder phases;
    const auto draft = [&](DrafterState& state, int known) {
        DraftJob job;
        job.tokens = std::span(text).first(static_cast<std::size_t>(known));
        job.state = &state;
        job.tree = require(parse_tree_spec(tree));
        DraftContext context{fixture_.exec(1), phases, &head, job.tree, nullptr};
        const Status status = DraftRunner(drafter).draft(context, {&job, 1});
        EXPECT_TRUE(status.ok()) << (status.ok() ? "" : status.error().message);
        return std::move(job.out);
    };
    const auto lasting = drafter.make_state(64), kept = drafter.make_state(64, true);
    for (int known = 3; known < std::ssize(text); known += 1 + known % 4) {
        const auto fresh = drafter.make_state(64);
        const DraftTree expected = draft(*fresh, known);
        for (const auto* state : {lasting.get(), kept.get()})
            for (int again = 0; again < 2; ++again) {
                const DraftTree found = draft(*const_cast<DrafterState*>(state), known);
                EXPECT_EQ(found.tokens, expected.tokens) << known;
                EXPECT_EQ(found.parents, expected.parents) << known;
                EXPECT_EQ(found.logprobs, expected.logprobs) << known;
            }
    }
    // Jobs of a state that keeps all slots may start anywhere.
    const auto fresh = drafter.make_state(64);
    EXPECT_EQ(draft(*kept, 7).logprobs, draft(*fresh, 7).logprobs);
}

TEST_F(DraftModels, HeadsThatMustBeTrainedAreRefused) {
    std::vector<std::string> refused;
    for (const HeadInfo& info : head_registry()) {
        const Status status = check_head(*find_drafter("draft-model"), info);
        if (!status.ok()) refused.emplace_back(info.id);
        EXPECT_TRUE(check_head(*find_drafter("eagle2"), info).ok());
    }
    EXPECT_THAT(refused, ::testing::UnorderedElementsAre("vocabtrim-t", "coral", "dynaspec"));
}

TokenizerSpec words(std::vector<std::string> tokens) {
    TokenizerSpec spec;
    spec.file = "m.gguf";
    spec.model = "gpt2";
    spec.pre = "smollm";
    spec.tokens = std::move(tokens);
    spec.types.assign(spec.tokens.size(), type_normal);
    spec.eos = {0};
    return spec;
}

/// Returns the error of a pair, or its notes.
std::string pair_of(TokenizerSpec draft, TokenizerSpec target, int draft_rows = 0, int target_rows = 0) {
    const auto ours = require(Tokenizer::create(std::move(draft)));
    const auto theirs = require(Tokenizer::create(std::move(target)));
    Notes notes;
    const Status status =
        check_vocabularies({"small.gguf", ours.get(), std::max(draft_rows, ours->size())},
                           {"large.gguf", theirs.get(), std::max(target_rows, theirs->size())}, notes);
    if (status.ok()) return notes.empty() ? "" : notes.front();
    EXPECT_EQ(status.error().kind, ErrorKind::bad_input);
    return status.error().message;
}

TEST(DraftVocabulary, ComparesTexts) {
    const TokenizerSpec usual = words({"e", "a", "b", "c"});
    EXPECT_EQ(pair_of(usual, usual), "");
    EXPECT_THAT(pair_of(usual, usual, 8, 6), HasSubstr("its LM head has 8 rows"));
    EXPECT_THAT(pair_of(words({"e", "a", "b", "c", "d"}), usual), HasSubstr("only ids of both are drafted"));
    const std::string other = pair_of(words({"e", "b", "a", "d"}), usual);
    EXPECT_THAT(other, HasSubstr("id 1 is 'b', not 'a', id 2 is 'a', not 'b', id 3 is 'd', not 'c'"));
    EXPECT_THAT(other, HasSubstr("draft-model:small.gguf"));
    EXPECT_THAT(other, HasSubstr("4 tokens, bos none, eos 0, pre-tokenizer smollm"));
    EXPECT_THAT(pair_of(words({"a", "b", "c", "d", "e"}), words({"f", "g", "h", "i", "j"})),
                HasSubstr("and 2 more"));
}

TEST(DraftVocabulary, ComparesSpecialTokens) {
    const TokenizerSpec usual = words({"e", "a", "b", "c"});
    TokenizerSpec other = usual;
    other.eos = {0, 1};
    EXPECT_THAT(pair_of(other, usual), HasSubstr("eos is 0 1, but 0 in large.gguf"));
    other.eos = {2};
    EXPECT_THAT(pair_of(other, usual), HasSubstr("no token ends the texts of both"));
    TokenizerSpec first = usual, second = usual;
    first.bos = 1;
    second.bos = 2;
    first.add_bos = second.add_bos = true;
    EXPECT_THAT(pair_of(first, second), HasSubstr("texts begin with id 1, not 2"));
}

}  // namespace
}  // namespace draftscope::testing
