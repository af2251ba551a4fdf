#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "base/phase.h"
#include "capture/capture.h"
#include "capture/queries.h"
#include "tests/support/results.h"
#include "tests/support/tiny_decode.h"

/// Several sequences in lockstep. Each text equals that of the sequence alone, and the records identify the
/// sequence.
namespace draftscope::testing {
namespace {

/// Prompts of very different lengths, more than any batch below.
std::vector<std::vector<TokenId>> prompts() {
    std::vector<std::vector<TokenId>> all;
    for (int p = 0; p < 11; ++p) {
        all.emplace_back();
        const int length = p == 4 ? 70 : 1 + (p * 5) % 17;
        for (int i = 0; i < length; ++i) all.back().push_back((p * 3 + i * (p + 1)) % 13);
    }
    return all;
}

class Batch : public ::testing::TestWithParam<int>, protected TinyDecode {
  protected:
    Batch() : TinyDecode(few_token_options(96)) {
        setting_.head = "fr-spec:v=6";
        setting_.max_new = 20;
        setting_.batch = GetParam();
        setting_.threads = 2;
    }

    std::vector<std::vector<TokenId>> tokens_of(const std::vector<PromptOutcome>& outcomes) const {
        std::vector<std::vector<TokenId>> tokens;
        for (const PromptOutcome& outcome : outcomes) tokens.push_back(outcome.tokens);
        return tokens;
    }
    /// Outcomes of plain decoding, one prompt after the other.
    std::vector<PromptOutcome> plain() {
        DecodeCase setting = setting_;
        setting.drafter = "none";
        setting.verify = "match";
        setting.batch = 1;
        return fixture_.decode(setting, prompts_);
    }

    DecodeCase setting_;
    std::vector<std::vector<TokenId>> prompts_ = prompts();
};

TEST_P(Batch, EndsInsideARoundAtMaxNew) {
    // With these lengths, some texts end inside a round.
    setting_.head = "full";
    setting_.tree = "depth=4,topk=8,nodes=60";
    int clipped = 0;
    for (const int max_new : {1, 2, 3, 5, 8, 13}) {
        setting_.max_new = max_new;
        RecordList sink;
        const auto outcomes = fixture_.decode(setting_, prompts_, &sink);
        EXPECT_EQ(tokens_of(outcomes), tokens_of(plain())) << max_new;
        for (const PromptOutcome& outcome : outcomes) {
            EXPECT_EQ(static_cast<int>(outcome.tokens.size()), max_new);
            EXPECT_EQ(outcome.finish, Finish::length);
            EXPECT_EQ(outcome.committed, max_new - 1);
        }
        for (const StepRecord& step : RecordList::of<StepRecord>(sink.take()))
            for (const RoundRecord& round : step.rounds) clipped += round.round.clipped ? 1 : 0;
    }
    EXPECT_GT(clipped, 5);
}

TEST_P(Batch, FillsTheContextWithAFullTree) {
    setting_.max_new = 500;
    setting_.tree = "depth=5,topk=10,nodes=60";
    for (const double temperature : {0.0, 1.0}) {
        setting_.temperature = temperature;
        RecordList sink;
        const auto outcomes = fixture_.decode(setting_, prompts_, &sink);
        const auto expected = plain();
        EXPECT_EQ(tokens_of(outcomes), tokens_of(expected));
        for (const PromptOutcome& outcome : outcomes) {
            EXPECT_EQ(outcome.finish, Finish::context);
            EXPECT_EQ(outcome.prompt_tokens + static_cast<int>(outcome.tokens.size()), 96);
        }
        for (const StepRecord& step : RecordList::of<StepRecord>(sink.take()))
            for (const RoundRecord& round : step.rounds)
                EXPECT_LE(round.round.context_length + round.round.tree_depth + 1, 96);
    }
}

TEST_P(Batch, ReplacesASequenceThatEndsByTheNextPrompt) {
    // Prompts end at different times: the long one by the context, the others by their length.
    setting_.max_new = 40;
    setting_.temperature = 1.0;
    RecordList sink;
    PromptList list(prompts_);
    EXPECT_EQ(fixture_.run(setting_, list, &sink).message, "no error");
    const auto expected = plain();
    ASSERT_EQ(list.outcomes.size(), prompts_.size());
    for (const auto& [place, outcome] : list.outcomes)
        EXPECT_EQ(outcome.tokens, expected[place].tokens) << place;
    std::size_t largest = 0;
    std::set<std::size_t> sizes;
    for (const StepRecord& step : RecordList::of<StepRecord>(sink.take())) {
        largest = std::max(largest, step.rounds.size());
        sizes.insert(step.rounds.size());
    }
    EXPECT_EQ(largest, static_cast<std::size_t>(setting_.batch));
    // Prompts begin as soon as the batch has room, so it shrinks only when none is left.
    EXPECT_EQ(*sizes.begin(), 1u);
    if (setting_.batch > 1) {
        EXPECT_FALSE(std::is_sorted(list.ended.begin(), list.ended.end()));
    }
}

TEST_P(Batch, RecordsIdentifyTheirSequence) {
    RecordList sink;
    setting_.calibration_rounds = 3;
    const auto outcomes = fixture_.decode(setting_, prompts_, &sink);
    const auto records = sink.take();
    std::map<RowId, int> ordinal_of;
    for (const PromptStarted& one : RecordList::of<PromptStarted>(records))
        ordinal_of[one.prompt.id] = one.prompt.ordinal;
    std::map<int, std::vector<TokenId>> tokens;
    std::map<int, int> rounds;
    for (const PromptProgress& one : RecordList::of<PromptProgress>(records))
        for (const TokenRow& token : one.tokens) tokens[ordinal_of[one.prompt_id]].push_back(token.token_id);
    RowId last_round = 0;
    for (const StepRecord& step : RecordList::of<StepRecord>(records)) {
        std::map<int, int> outermost;
        TimeNs head_ns = 0, drive_ns = 0;
        for (const SpanRow& span : step.spans) {
            EXPECT_EQ(span.step_id, step.step.id);
            EXPECT_EQ(span.round_id, step.rounds.size() == 1 ? step.rounds[0].round.id : 0);
            if (span.nesting != 0) continue;
            ++outermost[span.phase_id];
            const auto phase = static_cast<Phase>(span.phase_id);
            if (phase == Phase::head || phase == Phase::topk || phase == Phase::gather)
                head_ns += span.end_ns - span.start_ns;
        }
        // One phase for all sequences.
        for (const Phase phase : {Phase::verify, Phase::accept, Phase::commit})
            EXPECT_EQ(outermost[static_cast<int>(phase)], 1);
        EXPECT_EQ(outermost[static_cast<int>(Phase::head)], 4) << "a second draft is no part of the step";
        for (const RoundRecord& round : step.rounds) {
            EXPECT_EQ(round.round.id, ++last_round);
            EXPECT_EQ(round.round.step_id, step.step.id);
            EXPECT_EQ(round.round.start_ns, step.step.start_ns);
            const int ordinal = ordinal_of[round.round.prompt_id];
            EXPECT_EQ(round.round.ordinal, rounds[ordinal]++);
            for (const TokenRow& token : round.tokens) {
                EXPECT_EQ(token.prompt_id, round.round.prompt_id);
                EXPECT_EQ(token.position, static_cast<int>(tokens[ordinal].size()));
                tokens[ordinal].push_back(token.token_id);
            }
            ASSERT_EQ(round.head_evals.size(), 1u);
            drive_ns += round.head_evals[0].head_ns;
            EXPECT_EQ(round.head_evals[0].active_rows, 6);
        }
        // The sequences' parts add up to the step's head time.
        EXPECT_EQ(drive_ns, head_ns);
    }
    for (std::size_t p = 0; p < outcomes.size(); ++p) {
        EXPECT_EQ(tokens[static_cast<int>(p)], outcomes[p].tokens);
        EXPECT_EQ(rounds[static_cast<int>(p)], outcomes[p].rounds);
    }
    std::size_t calibrated = 0;
    std::map<RowId, int> ordinal_of_round;
    for (const StepRecord& step : RecordList::of<StepRecord>(records))
        for (const RoundRecord& round : step.rounds)
            ordinal_of_round[round.round.id] = ordinal_of[round.round.prompt_id];
    std::set<int> prompts_calibrated;
    std::set<RowId> evaluated;
    for (const HeadEvaluated& one : RecordList::of<HeadEvaluated>(records))
        for (const HeadEvalRow& row : one.rows) {
            EXPECT_EQ(row.mode, HeadMode::calibration);
            EXPECT_TRUE(evaluated.insert(row.round_id).second);
            prompts_calibrated.insert(ordinal_of_round.at(row.round_id));
            ++calibrated;
        }
    EXPECT_EQ(prompts_calibrated.size(), prompts_.size());  // not only the first ones
    // A step in which one sequence is due calibrates all of its sequences.
    EXPECT_GE(calibrated, 3 * prompts_.size());
}

TEST_P(Batch, TotalsCountStepsNotRounds) {
    RecordList sink;
    const auto outcomes = fixture_.decode(setting_, prompts_, &sink);
    Capture capture;
    RunRow run;
    run.id = 1;
    capture.apply(RunStarted{run, nullptr, {}});
    TimeNs counted = 0, all = 0;
    std::int64_t committed = 0, counted_committed = 0;
    for (const Record& record : sink.take()) {
        if (const auto* step = std::get_if<StepRecord>(&record)) {
            const TimeNs ns = step->step.end_ns - step->step.start_ns;
            all += ns;
            counted += step->step.excluded == Excluded::no ? ns : 0;
            for (const RoundRecord& round : step->rounds) {
                committed += round.round.committed;
                counted_committed += step->step.excluded == Excluded::no ? round.round.committed : 0;
            }
        }
        capture.apply(record);
    }
    const RunTotals totals = run_totals(capture.snapshot(1), 1);
    EXPECT_EQ(totals.decode_ns, all);
    EXPECT_EQ(totals.committed, committed);
    EXPECT_DOUBLE_EQ(totals.tokens_per_second, static_cast<double>(counted_committed) / seconds(counted));
    std::int64_t rounds = 0;
    for (const PromptOutcome& outcome : outcomes) rounds += outcome.rounds;
    EXPECT_DOUBLE_EQ(totals.tau, static_cast<double>(committed) / static_cast<double>(rounds));
}

TEST_P(Batch, ACancelledRunKeepsTheTextOfEverySequence) {
    setting_.max_new = 60;
    const auto expected = plain();
    // Cancels when the third prompt emits text in the second step.
    class Stopper final : public PromptFeed {
      public:
        Stopper(DecodeFixture& fixture, PromptList& list) : fixture_(fixture), list_(list) {}
        std::optional<PromptInput> next() override { return list_.next(); }
        void done(const PromptInput& prompt, PromptOutcome outcome) override {
            fixture_.gate().cancel();
            list_.done(prompt, std::move(outcome));
        }

      private:
        DecodeFixture& fixture_;
        PromptList& list_;
    };
    PromptList list(prompts_);
    Stopper stopper(fixture_, list);
    RecordList sink;
    fixture_.gate().reset();
    EXPECT_EQ(fixture_.run(setting_, stopper, &sink).message, "no error");
    fixture_.gate().reset();
    const auto records = sink.take();
    const auto started = RecordList::of<PromptStarted>(records);
    EXPECT_EQ(RecordList::of<PromptEnded>(records).size(), started.size());
    EXPECT_EQ(list.outcomes.size(), started.size());
    EXPECT_LT(started.size(), prompts_.size());
    int cancelled = 0;
    for (const auto& [place, outcome] : list.outcomes) {
        const auto& whole = expected[place].tokens;
        ASSERT_LE(outcome.tokens.size(), whole.size());
        EXPECT_TRUE(std::equal(outcome.tokens.begin(), outcome.tokens.end(), whole.begin()));
        EXPECT_FALSE(outcome.tokens.empty());
        cancelled += outcome.finish == Finish::cancelled ? 1 : 0;
    }
    EXPECT_EQ(cancelled, setting_.batch - 1);
}

TEST_P(Batch, AnErrorClosesTheRecordsOfActivePrompts) {
    prompts_[setting_.batch] = {1, 13};  // the first one that replaces another
    PromptList list(prompts_);
    RecordList sink;
    const Error error = fixture_.run(setting_, list, &sink);
    EXPECT_EQ(error.kind, ErrorKind::bad_input);
    EXPECT_THAT(error.message, ::testing::HasSubstr("token 13 is outside"));
    const auto records = sink.take();
    const auto ended = RecordList::of<PromptEnded>(records);
    EXPECT_EQ(ended.size(), RecordList::of<PromptStarted>(records).size());
    EXPECT_EQ(static_cast<int>(ended.size()), setting_.batch);
    for (const PromptEnded& one : ended) EXPECT_GT(one.prompt.generated_tokens, 1);
}

TEST_P(Batch, SteppingFollowsTheWatchedSequence) {
    const auto expected = plain();
    DebugGate& gate = fixture_.gate();
    gate.reset();
    gate.pause();
    gate.watch(2);
    std::atomic<bool> finished{false};
    std::thread user([&] {
        for (int i = 0; i < 30; ++i) {
            while (!gate.holding() && !finished) std::this_thread::yield();
            gate.step(i < 15 ? StepGranularity::level : StepGranularity::phase);
        }
        while (!gate.holding() && !finished) std::this_thread::yield();
        gate.resume();
    });
    RecordList sink;
    DecodeCase setting = setting_;
    const auto outcomes = fixture_.decode(setting, prompts_, &sink);
    finished = true;
    user.join();
    gate.reset();
    EXPECT_EQ(tokens_of(outcomes), tokens_of(expected));
    const auto records = sink.take();
    // Row ids continue from run to run of a fixture; the first prompt gives the start of this run.
    const RowId first = RecordList::of<PromptStarted>(records)[0].prompt.id;
    std::set<RowId> shown;
    for (const LiveRound& live : RecordList::of<LiveRound>(records))
        if (live.active) shown.insert(live.partial.round.prompt_id);
    EXPECT_EQ(shown, std::set<RowId>{setting_.batch > 1 ? first + 1 : first});
}

INSTANTIATE_TEST_SUITE_P(Sizes, Batch, ::testing::Values(1, 3, 8),
                         [](const auto& instance) { return std::to_string(instance.param); });

/// A model with a tokenizer. Its end-of-turn token occurs at arbitrary positions.
TEST(BatchText, EndOfTurnInsideAnAcceptedRun) {
    ScratchFolder folder;
    const std::string path = folder.file("tiny.gguf");
    TinyModelOptions options{.context = 128, .logit_scale = 1.0f};
    ASSERT_TRUE(write_tiny_gguf(path, 5, options).ok());
    auto file = open_model_file(path);
    ASSERT_TRUE(is_ok(file));
    auto target = DecodeFixture::build(std::move(file).value(), kernels::Precision::f32);
    const TinyEagle2 eagle(target->config(), 3);
    // The vocabulary is so small that the end-of-turn tokens, always in it, are drafted at every node.
    const RankingFile ranking = RankingFile::shuffled(target->config().vocab);
    DecodeFixture fixture(std::move(target), {{"eagle2", eagle.folder()}}, ranking.path());
    const Tokenizer& tokenizer = *fixture.target().tokenizer();
    std::vector<std::vector<TokenId>> prompts;
    for (int p = 0; p < 24; ++p)
        prompts.push_back(tokenizer.encode("words " + std::to_string(p) + " words", false));
    DecodeCase setting{.drafter = "none", .threads = 2, .temperature = 1.5, .max_new = 40};
    const auto expected = fixture.decode(setting, prompts);
    int inside = 0;
    for (const int batch : {1, 8}) {
        setting.batch = batch;
        setting.drafter = "eagle2";
        setting.head = "fr-spec:v=6,eos=yes";
        setting.tree = "depth=2,topk=6,nodes=60";
        RecordList sink;
        const auto outcomes = fixture.decode(setting, prompts, &sink);
        for (std::size_t p = 0; p < prompts.size(); ++p) {
            EXPECT_EQ(outcomes[p].tokens, expected[p].tokens) << p;
            EXPECT_EQ(outcomes[p].finish, expected[p].finish) << p;
        }
        for (const StepRecord& step : RecordList::of<StepRecord>(sink.take()))
            for (const RoundRecord& round : step.rounds) {
                const bool at_eos = tokenizer.is_eos(round.tokens.back().token_id);
                if (at_eos && round.round.accepted > 0 && round.tokens.back().source == TokenSource::draft)
                    ++inside;
            }
    }
    int ended = 0;
    for (const PromptOutcome& outcome : expected) ended += outcome.finish == Finish::eos ? 1 : 0;
    EXPECT_GT(ended, 3);
    EXPECT_GT(inside, 3);
}

}  // namespace
}  // namespace draftscope::testing
