#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <map>
#include <thread>

#include "base/phase.h"
#include "base/rng.h"
#include "capture/capture.h"
#include "capture/queries.h"
#include "tests/support/results.h"
#include "tests/support/tiny_decode.h"

namespace draftscope::testing {
namespace {

using ::testing::HasSubstr;

class Session : public ::testing::Test, protected TinyDecode {
  protected:
    Session() : TinyDecode(few_token_options(96)) { setting_.head = "fr-spec:v=6"; }

    std::vector<PromptOutcome> record() {
        return outcomes_ = fixture_.decode(setting_, prompts_, &sink_), split(), outcomes_;
    }
    void split() {
        records_ = sink_.take();
        steps_ = RecordList::of<StepRecord>(records_);
    }

    DecodeCase setting_;
    std::vector<std::vector<TokenId>> prompts_ = {{1, 2, 3}, {4, 5, 6, 7, 8}, {9}};
    RecordList sink_;
    std::vector<PromptOutcome> outcomes_;
    std::vector<Record> records_;
    std::vector<StepRecord> steps_;
};

TEST_F(Session, RecordsAddUpToTheOutcome) {
    record();
    std::map<RowId, std::vector<const RoundRecord*>> rounds;
    for (const StepRecord& step : steps_) {
        ASSERT_EQ(step.rounds.size(), 1u);
        rounds[step.rounds[0].round.prompt_id].push_back(&step.rounds[0]);
    }
    const auto ended = RecordList::of<PromptEnded>(records_);
    const auto progress = RecordList::of<PromptProgress>(records_);
    ASSERT_EQ(ended.size(), 3u);
    for (std::size_t p = 0; p < ended.size(); ++p) {
        const PromptRow& prompt = ended[p].prompt;
        const PromptOutcome& outcome = outcomes_[p];
        EXPECT_EQ(prompt.ordinal, static_cast<int>(p));
        EXPECT_EQ(prompt.generated_tokens, static_cast<int>(outcome.tokens.size()));
        EXPECT_EQ(prompt.finish, Finish::length);
        std::vector<TokenRow> tokens;
        for (const PromptProgress& one : progress)
            if (one.prompt_id == prompt.id) tokens.insert(tokens.end(), one.tokens.begin(), one.tokens.end());
        ASSERT_EQ(tokens.size(), 1u);
        EXPECT_EQ(tokens[0].source, TokenSource::prefill);
        std::int64_t committed = 0, accepted = 0, drafted = 0;
        int ordinal = 0;
        for (const RoundRecord* record : rounds[prompt.id]) {
            const RoundRow& round = record->round;
            EXPECT_EQ(round.ordinal, ordinal++);
            EXPECT_EQ(round.context_length, outcome.prompt_tokens + static_cast<int>(tokens.size()));
            EXPECT_EQ(round.clipped ? round.committed : round.accepted + 1, round.committed);
            EXPECT_EQ(round.draft_tokens, round.tree_nodes - 1);
            EXPECT_EQ(static_cast<int>(record->tokens.size()), round.committed);
            committed += round.committed;
            accepted += round.accepted;
            drafted += round.draft_tokens;
            tokens.insert(tokens.end(), record->tokens.begin(), record->tokens.end());
        }
        EXPECT_EQ(ordinal, outcome.rounds);
        EXPECT_EQ(committed, outcome.committed);
        EXPECT_EQ(committed, static_cast<std::int64_t>(outcome.tokens.size()) - 1);
        EXPECT_EQ(accepted, outcome.accepted);
        EXPECT_EQ(drafted, outcome.draft_tokens);
        ASSERT_EQ(tokens.size(), outcome.tokens.size());
        for (std::size_t i = 0; i < tokens.size(); ++i) {
            EXPECT_EQ(tokens[i].position, static_cast<int>(i));
            EXPECT_EQ(tokens[i].token_id, outcome.tokens[i]);
            EXPECT_EQ(tokens[i].prompt_id, prompt.id);
        }
    }
}

TEST_F(Session, AcceptedNodesAreARootPathThatSpellsTheTokens) {
    setting_.head = "fr-spec:v=12";
    setting_.tree = "depth=5,topk=10,nodes=60";
    record();
    int deep = 0;
    for (const StepRecord& step : steps_) {
        const RoundRecord& record = step.rounds[0];
        ASSERT_EQ(static_cast<int>(record.nodes.size()), record.round.tree_nodes);
        std::vector<NodeRow> path;
        for (const NodeRow& node : record.nodes)
            if (node.accepted) path.push_back(node);
        ASSERT_EQ(static_cast<int>(path.size()), record.round.accepted + 1);
        EXPECT_EQ(path[0].parent, -1);
        for (std::size_t i = 1; i < path.size(); ++i) {
            EXPECT_EQ(path[i].parent, path[i - 1].node);
            EXPECT_EQ(path[i].depth, static_cast<int>(i));
            EXPECT_EQ(path[i].token_id, record.tokens[i - 1].token_id);
            EXPECT_EQ(path[i].target_rank, 0);
            EXPECT_EQ(path[i].target_prob, path[i - 1].target_token_prob);
            EXPECT_EQ(record.tokens[i - 1].source, TokenSource::draft);
            EXPECT_EQ(path[i - 1].target_covered, true);
        }
        deep += path.size() > 2 ? 1 : 0;
        for (std::size_t i = 0; i < record.tokens.size(); ++i) {
            EXPECT_EQ(record.tokens[i].token_id, path[std::min(i, path.size() - 1)].target_token_id);
            EXPECT_EQ(record.tokens[i].covered, path[std::min(i, path.size() - 1)].target_covered);
            EXPECT_EQ(record.tokens[i].depth, static_cast<int>(i) + 1);
        }
        if (!record.round.clipped) {
            EXPECT_EQ(record.tokens.back().source, TokenSource::bonus);
            EXPECT_EQ(record.tops.size(), path.size() * 5);
        }
        for (const NodeTopRow& top : record.tops) {
            if (top.rank > 0) continue;
            EXPECT_EQ(top.token_id, record.nodes[top.node].target_token_id);
        }
        for (const NodeRow& node : record.nodes) {
            EXPECT_EQ(node.target_prob.has_value(), node.parent >= 0);
            EXPECT_LE(node.target_prob.value_or(0.0f), 1.0f);
        }
    }
    EXPECT_GT(deep, 3);
}

TEST_F(Session, SpansLieInTheirStepAndNest) {
    setting_.calibration_rounds = 3;
    record();
    for (const StepRecord& step : steps_) {
        ASSERT_FALSE(step.spans.empty());
        TimeNs last_end = step.step.start_ns, head_ns = 0;
        const SpanRow* parent = nullptr;
        std::map<int, int> outermost;
        for (const SpanRow& span : step.spans) {
            EXPECT_EQ(span.step_id, step.step.id);
            EXPECT_EQ(span.round_id, step.rounds[0].round.id);
            EXPECT_LE(span.start_ns, span.end_ns);
            EXPECT_LE(span.end_ns, step.step.end_ns);
            if (span.nesting == 0) {
                EXPECT_GE(span.start_ns, last_end);
                last_end = span.end_ns;
                parent = &span;
                ++outermost[span.phase_id];
                const auto phase = static_cast<Phase>(span.phase_id);
                if (phase == Phase::head || phase == Phase::topk || phase == Phase::gather)
                    head_ns += span.end_ns - span.start_ns;
            } else {
                ASSERT_NE(parent, nullptr);
                EXPECT_GE(span.start_ns, parent->start_ns);
                EXPECT_LE(span.end_ns, parent->end_ns);
            }
        }
        EXPECT_EQ(outermost[static_cast<int>(Phase::verify)], 1);
        EXPECT_EQ(outermost[static_cast<int>(Phase::accept)], 1);
        EXPECT_EQ(outermost[static_cast<int>(Phase::commit)], 1);
        ASSERT_EQ(step.rounds[0].head_evals.size(), 1u);
        const HeadEvalRow& drive = step.rounds[0].head_evals[0];
        EXPECT_EQ(drive.mode, HeadMode::drive);
        EXPECT_EQ(drive.head, "fr-spec:v=6");
        EXPECT_EQ(drive.active_rows, 6);
        EXPECT_EQ(drive.head_ns, head_ns);
        EXPECT_EQ(outermost[static_cast<int>(Phase::head)], 4) << "a second draft is no part of the step";
    }
}

TEST_F(Session, WarmUpStepsAreFlaggedAndCalibrationRoundsAreNot) {
    setting_.calibration_rounds = 4;
    record();
    ASSERT_GT(steps_.size(), 24u);
    std::map<RowId, int> ordinals;
    for (std::size_t i = 0; i < steps_.size(); ++i) {
        EXPECT_EQ(steps_[i].step.ordinal, static_cast<int>(i));
        EXPECT_EQ(steps_[i].step.excluded, i < 2 ? Excluded::warmup : Excluded::no);
        EXPECT_EQ(steps_[i].step.paused_ns, 0);
        ordinals[steps_[i].rounds[0].round.id] = steps_[i].rounds[0].round.ordinal;
    }
    std::vector<HeadEvalRow> rows;
    for (const HeadEvaluated& one : RecordList::of<HeadEvaluated>(records_))
        rows.insert(rows.end(), one.rows.begin(), one.rows.end());
    ASSERT_EQ(rows.size(), 3 * 4u);
    for (const HeadEvalRow& row : rows) {
        // Every second round of a prompt, four of each.
        EXPECT_EQ(ordinals.at(row.round_id) % 2, 0);
        EXPECT_LT(ordinals.at(row.round_id), 8);
        EXPECT_EQ(row.mode, HeadMode::calibration);
        EXPECT_EQ(row.head, "full");
        EXPECT_EQ(row.committed, row.covered);
        EXPECT_GT(row.head_ns, 0);
        EXPECT_EQ(row.active_rows, 13);
    }
}

TEST_F(Session, CalibrationOfAnEqualHeadMatchesTheRound) {
    // FR-Spec over every token drafts the full head's trees.
    setting_.head = "fr-spec:v=13";
    setting_.calibration_rounds = 1000;
    record();
    std::map<RowId, const RoundRow*> rounds;
    for (const StepRecord& step : steps_) rounds[step.rounds[0].round.id] = &step.rounds[0].round;
    std::size_t evaluated = 0;
    for (const HeadEvaluated& one : RecordList::of<HeadEvaluated>(records_))
        for (const HeadEvalRow& row : one.rows) {
            ++evaluated;
            ASSERT_EQ(rounds.count(row.round_id), 1u);
            EXPECT_EQ(row.committed, rounds[row.round_id]->committed);
            EXPECT_EQ(row.accepted, rounds[row.round_id]->accepted);
        }
    std::size_t expected = 0;
    for (const auto& [id, round] : rounds) expected += round->ordinal % 2 == 0 ? 1 : 0;
    EXPECT_EQ(evaluated, expected);
}

TEST_F(Session, TheFullHeadIsNotCalibratedAgainstItself) {
    setting_.head = "full";
    setting_.calibration_rounds = 4;
    record();
    EXPECT_TRUE(RecordList::of<HeadEvaluated>(records_).empty());
    for (const StepRecord& step : steps_) {
        EXPECT_EQ(step.rounds[0].head_evals[0].covered_mass, 1.0);
        EXPECT_EQ(step.rounds[0].head_evals[0].covered, step.rounds[0].round.committed);
    }
}

/// The target's distribution after `tokens`, computed without the session.
std::vector<double> distribution(DecodeFixture& fixture, const std::vector<TokenId>& tokens,
                                 double temperature) {
    KvCache cache = fixture.target().make_cache(128);
    ForwardOutput out;
    EXPECT_TRUE(fixture.target().prefill(cache, tokens, {}, out).ok());
    std::vector<double> p;
    double sum = 0;
    for (const float logit : out.logits) {
        p.push_back(std::exp(static_cast<double>(logit) / (temperature > 0 ? temperature : 1.0)));
        sum += p.back();
    }
    for (double& value : p) value /= sum;
    return p;
}

class SessionProbabilities : public Session, public ::testing::WithParamInterface<double> {};

TEST_P(SessionProbabilities, MatchTheTargetAfterThePath) {
    setting_.temperature = GetParam();
    prompts_.resize(1);
    record();
    LmHead& head = fixture_.head("fr-spec:v=6", fixture_.drafter("eagle2"));
    std::vector<TokenId> memory;
    const ActiveSet active = head.active_set(nullptr, 0, memory);
    std::vector<TokenId> text = prompts_[0];
    text.push_back(outcomes_[0].tokens[0]);
    for (std::size_t s = 0; s < steps_.size(); ++s) {
        const RoundRecord& record = steps_[s].rounds[0];
        double mass = 0;
        int positions = 0;
        std::vector<TokenId> prefix = text;
        for (const NodeRow& node : record.nodes) {
            if (!node.accepted) continue;
            if (node.parent >= 0) prefix.push_back(node.token_id);
            if (positions == record.round.committed) break;
            const auto p = distribution(fixture_, prefix, GetParam());
            for (TokenId t = 0; t < 13; ++t) mass += active.has(t) ? p[t] : 0;
            ++positions;
            EXPECT_NEAR(*node.target_token_prob, p[node.target_token_id], 1e-4);
            for (const NodeRow& child : record.nodes) {
                if (child.parent != node.node) continue;
                const double own = p[child.token_id];
                EXPECT_NEAR(*child.target_prob, own, 1e-4);
                EXPECT_EQ(*child.target_rank,
                          std::count_if(p.begin(), p.end(), [&](double q) { return q > own; }));
            }
            for (const NodeTopRow& top : record.tops) {
                if (top.node != node.node) continue;
                EXPECT_NEAR(top.target_prob, p[top.token_id], 1e-4);
            }
        }
        EXPECT_NEAR(*record.head_evals[0].covered_mass, mass / positions, 1e-4);
        for (const TokenRow& token : record.tokens) text.push_back(token.token_id);
    }
}
INSTANTIATE_TEST_SUITE_P(Temperatures, SessionProbabilities, ::testing::Values(0.0, 0.7));

TEST_F(Session, TheCaptureDerivesTheSameTotals) {
    record();
    Capture capture;
    RunRow run;
    run.id = 1;
    capture.apply(RunStarted{run, nullptr, {}});
    for (const Record& record : records_) capture.apply(record);
    const RunTotals totals = run_totals(capture.snapshot(1), 1);
    PromptOutcome sum;
    for (const PromptOutcome& outcome : outcomes_) {
        sum.rounds += outcome.rounds;
        sum.committed += outcome.committed;
        sum.accepted += outcome.accepted;
        sum.draft_tokens += outcome.draft_tokens;
        sum.decode_ns += outcome.decode_ns;
        sum.prefill_ns += outcome.prefill_ns;
    }
    EXPECT_EQ(totals.rounds, sum.rounds);
    EXPECT_EQ(totals.committed, sum.committed);
    EXPECT_EQ(totals.accepted, sum.accepted);
    EXPECT_EQ(totals.draft_tokens, sum.draft_tokens);
    EXPECT_EQ(totals.decode_ns, sum.decode_ns);
    EXPECT_EQ(totals.prefill_ns, sum.prefill_ns);
    EXPECT_EQ(totals.excluded_warmup, 2);
    EXPECT_EQ(totals.generated, 120);
}

TEST_F(Session, RecordingChangesNothingButTheRecords) {
    record();
    const auto silent = fixture_.decode(setting_, prompts_);
    setting_.record_nodes = false;
    RecordList sink;
    const auto lean = fixture_.decode(setting_, prompts_, &sink);
    for (std::size_t p = 0; p < silent.size(); ++p) {
        EXPECT_EQ(silent[p].tokens, outcomes_[p].tokens);
        EXPECT_EQ(silent[p].rounds, outcomes_[p].rounds);
        EXPECT_EQ(lean[p].tokens, outcomes_[p].tokens);
    }
    for (const StepRecord& step : RecordList::of<StepRecord>(sink.take())) {
        EXPECT_TRUE(step.rounds[0].nodes.empty() && step.rounds[0].tops.empty());
        EXPECT_FALSE(step.rounds[0].tokens.empty());
        EXPECT_FALSE(step.rounds[0].head_evals[0].covered_mass.has_value());
    }
}

TEST_F(Session, PlainDecodingIsRecordedAsRoundsOfOne) {
    setting_.drafter = "none";
    record();
    for (const StepRecord& step : steps_) {
        EXPECT_EQ(step.rounds[0].round.tree_nodes, 1);
        EXPECT_EQ(step.rounds[0].round.committed, 1);
        EXPECT_TRUE(step.rounds[0].head_evals.empty());
        EXPECT_EQ(step.rounds[0].tokens[0].source, TokenSource::bonus);
    }
}

TEST_F(Session, StopsAtTheContextWithTheSameTextForEveryDrafter) {
    prompts_ = {std::vector<TokenId>(80, 3), std::vector<TokenId>(95, 2)};
    setting_.max_new = 500;
    setting_.tree = "depth=5,topk=10,nodes=60";
    record();
    DecodeCase plain = setting_;
    plain.drafter = "none";
    const auto expected = fixture_.decode(plain, prompts_);
    ASSERT_EQ(outcomes_.size(), 2u);
    for (std::size_t p = 0; p < 2; ++p) {
        EXPECT_EQ(outcomes_[p].tokens, expected[p].tokens);
        EXPECT_EQ(outcomes_[p].finish, Finish::context);
        EXPECT_EQ(outcomes_[p].prompt_tokens + static_cast<int>(outcomes_[p].tokens.size()), 96);
    }
    for (const StepRecord& step : steps_) {
        const RoundRow& round = step.rounds[0].round;
        EXPECT_LE(round.context_length + round.tree_depth + 1, 96);
    }
}

TEST_F(Session, RejectsInvalidPrompts) {
    EXPECT_THAT(fixture_.decode_error(setting_, {}).message, HasSubstr("no tokens"));
    const Error too_long = fixture_.decode_error(setting_, std::vector<TokenId>(96, 1));
    EXPECT_EQ(too_long.kind, ErrorKind::bad_input);
    EXPECT_THAT(too_long.message, HasSubstr("96 tokens leave no room in the model's context of 96"));
    EXPECT_THAT(fixture_.decode_error(setting_, {1, 13}).message, HasSubstr("token 13 is outside"));
    setting_.max_new = 0;
    EXPECT_THAT(fixture_.decode_error(setting_, {1}).message, HasSubstr("max-new is 0"));
}

template <typename Condition>
bool eventually(Condition condition) {
    const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (!condition()) {
        if (std::chrono::steady_clock::now() > limit) return false;
        std::this_thread::sleep_for(std::chrono::microseconds(200));
    }
    return true;
}

TEST_F(Session, SteppingShowsTheRoundInFlightAndChangesNoToken) {
    const auto expected = fixture_.decode(setting_, prompts_);
    DebugGate& gate = fixture_.gate();
    gate.reset();
    gate.pause();
    std::atomic<bool> finished{false};
    std::thread user([&] {
        // Three rounds by levels, one or two by phases, then resume.
        for (int i = 0; i < 45 && eventually([&] { return gate.holding() || finished; }); ++i) {
            const std::string before = gate.reason();
            gate.step(i < 15 ? StepGranularity::level : StepGranularity::phase);
            EXPECT_EQ(before, "paused");
        }
        if (eventually([&] { return gate.holding() || finished; })) gate.resume();
    });
    record();
    finished = true;
    user.join();
    for (std::size_t p = 0; p < expected.size(); ++p) EXPECT_EQ(outcomes_[p].tokens, expected[p].tokens);

    int live = 0, paused = 0, with_children = 0, with_choices = 0, with_beam = 0;
    bool last_active = false;
    int announced = 0;  ///< the next phase as the previous stop announced it
    RowId step_id = 0;
    for (const LiveRound& round : RecordList::of<LiveRound>(records_)) {
        last_active = round.active;
        if (!round.active) continue;
        ++live;
        EXPECT_EQ(static_cast<int>(round.partial.nodes.size()), round.partial.round.tree_nodes);
        EXPECT_FALSE(round.spans.empty());
        EXPECT_EQ(round.step.excluded, Excluded::paused);
        EXPECT_GE(round.step.end_ns, round.spans.back().start_ns);
        EXPECT_NE(round.at.next_phase_id, 0);
        if (round.at.kind == HoldPoint::Kind::after_phase && announced != 0 && round.step.id == step_id) {
            EXPECT_EQ(round.at.phase_id, announced);
        }
        step_id = round.step.id;
        announced = round.at.kind == HoldPoint::Kind::after_phase ? round.at.next_phase_id : 0;
        const bool accepted = round.at.phase_id == static_cast<int>(Phase::accept);
        EXPECT_EQ(round.partial.tops.empty(), !accepted) << "the target's choices are known once it chose";
        with_choices += accepted;
        with_children += round.partial.nodes.size() > 1 ? 1 : 0;
        with_beam += round.beam.empty() ? 0 : 1;
        if (round.at.kind != HoldPoint::Kind::after_level) continue;
        EXPECT_EQ(round.beam.empty(), round.at.level == 3) << "the last level is drafted from no more";
        for (const int node : round.beam) EXPECT_EQ(round.partial.nodes[node].depth, round.at.level + 1);
        // The best of the level are drafted from, and the tree has all of them at least.
        float worst = 0, best_other = -1e9f;
        for (const NodeRow& node : round.partial.nodes) {
            if (node.depth != round.at.level + 1) continue;
            if (std::ranges::count(round.beam, node.node) > 0)
                worst = std::min(worst, node.cum_logprob);
            else
                best_other = std::max(best_other, node.cum_logprob);
        }
        if (!round.beam.empty()) {
            EXPECT_GE(worst, best_other);
        }
    }
    EXPECT_FALSE(last_active);
    EXPECT_GT(live, 10);
    EXPECT_GT(with_children, 10);
    EXPECT_GT(with_choices, 0);
    EXPECT_GT(with_beam, 5);
    std::size_t pauses = 0;
    for (const CounterRow& counter : RecordList::of<CounterRow>(records_))
        pauses += counter.name == pause_counter && counter.value > 0;
    EXPECT_GE(pauses, 45u);
    for (const StepRecord& step : steps_) {
        if (step.step.paused_ns == 0) continue;
        ++paused;
        EXPECT_LE(step.step.paused_ns, step.step.end_ns - step.step.start_ns);
        EXPECT_NE(step.step.excluded, Excluded::no);
    }
    EXPECT_GE(paused, 3);
}

TEST_F(Session, ACancelledPromptReturnsWhatItHas) {
    const auto expected = fixture_.decode(setting_, {prompts_[0]});
    DebugGate& gate = fixture_.gate();
    gate.reset();
    gate.set_breakpoints({.rejection_depth = 10});  // stops the engine at any rejection
    std::thread user([&] {
        EXPECT_TRUE(eventually([&] { return gate.holding(); }));
        gate.cancel();
    });
    const auto outcomes = fixture_.decode(setting_, {prompts_[0]});
    user.join();
    gate.set_breakpoints({});
    gate.reset();
    ASSERT_EQ(outcomes.size(), 1u);
    EXPECT_EQ(outcomes[0].finish, Finish::cancelled);
    ASSERT_LT(outcomes[0].tokens.size(), expected[0].tokens.size());
    EXPECT_GE(outcomes[0].tokens.size(), 2u);
    EXPECT_TRUE(std::equal(outcomes[0].tokens.begin(), outcomes[0].tokens.end(), expected[0].tokens.begin()));
}

/// A model with a tokenizer, for text and an end-of-turn token.
class SessionText : public ::testing::Test {
  protected:
    void SetUp() override {
        const std::string path = folder_.file("tiny.gguf");
        TinyModelOptions options{.context = 128, .logit_scale = 1.0f};
        ASSERT_TRUE(write_tiny_gguf(path, 5, options).ok());
        auto file = open_model_file(path);
        ASSERT_TRUE(is_ok(file));
        fixture_ = std::make_unique<DecodeFixture>(
            DecodeFixture::build(std::move(file).value(), kernels::Precision::f32),
            std::map<std::string, std::string>{}, "");
        setting_.drafter = "ngram";
        setting_.temperature = 1.5;
        setting_.max_new = 100;
    }
    ScratchFolder folder_;
    std::unique_ptr<DecodeFixture> fixture_;
    DecodeCase setting_;
};

TEST_F(SessionText, PiecesJoinToTheText) {
    std::string streamed;
    const auto tokens =
        fixture_->target().tokenizer()->encode("the same words, the same words, the same", false);
    const auto outcomes =
        fixture_->decode(setting_, {tokens, tokens}, nullptr, [&](std::string_view s) { streamed += s; });
    ASSERT_EQ(outcomes.size(), 2u);
    EXPECT_EQ(streamed, outcomes[0].text + outcomes[1].text);
    std::vector<TokenId> words;
    for (const TokenId id : outcomes[0].tokens)
        if (!fixture_->target().tokenizer()->is_control(id)) words.push_back(id);
    EXPECT_EQ(outcomes[0].text, valid_utf8(fixture_->target().tokenizer()->decode(words)));
}

TEST_F(SessionText, EndOfTurnEndsThePromptUnlessIgnored) {
    const auto tokens = fixture_->target().tokenizer()->encode("abc abc abc", false);
    int ended = 0;
    for (std::uint64_t seed = 1; seed <= 40; ++seed) {
        setting_.seed = seed;
        setting_.ignore_eos = false;
        const auto stopped = fixture_->decode(setting_, {tokens});
        setting_.ignore_eos = true;
        const auto whole = fixture_->decode(setting_, {tokens});
        ASSERT_EQ(whole[0].finish, Finish::length);
        ASSERT_EQ(whole[0].tokens.size(), 100u);
        const auto& eos = fixture_->target().tokenizer()->eos();
        const auto found =
            std::find_first_of(whole[0].tokens.begin(), whole[0].tokens.end(), eos.begin(), eos.end());
        if (found == whole[0].tokens.end() || found + 1 == whole[0].tokens.end()) continue;
        ++ended;
        EXPECT_EQ(stopped[0].finish, Finish::eos);
        EXPECT_EQ(stopped[0].tokens, std::vector<TokenId>(whole[0].tokens.begin(), found + 1));
        EXPECT_EQ(stopped[0].committed, static_cast<std::int64_t>(stopped[0].tokens.size()) - 1);
    }
    EXPECT_GT(ended, 3);
}

}  // namespace
}  // namespace draftscope::testing
