#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "tests/support/count_allocations.h"
#include "tests/support/head_specs.h"
#include "tests/support/results.h"
#include "tests/support/scratch_folder.h"
#include "tests/support/tiny_artefacts.h"
#include "tests/support/tiny_decode.h"

namespace draftscope::testing {
namespace {

/// Prompts and steps that grow the buffers to their final sizes.
constexpr std::size_t warm_up_prompts = 3, warm_up_steps = 10;

/// Counts the engine thread's allocations between two commits, which is one complete step: what follows one
/// commit (records, the head's update, texts) and what precedes the next. Allocations of a head's own thread
/// depend on the machine when it is the first to do some work.
class StepAllocations final : public RangeSink {
  public:
    StepAllocations() { of_steps.reserve(1000); }
    void open(const SpanEvent&) override {}
    void close(const SpanEvent& ended) override {
        if (ended.phase != Phase::commit) return;
        const std::int64_t now = thread_allocations();
        of_steps.push_back(now - before_ - handed_over_);
        before_ = now;
        handed_over_ = 0;
    }
    /// Blocks that were moved out with a record, which are the only ones a step may allocate.
    void hand_over(std::int64_t blocks) { handed_over_ += blocks; }
    void restart() { of_steps.clear(); }

    std::vector<std::int64_t> of_steps;

  private:
    std::int64_t before_ = 0, handed_over_ = 0;
};

/// Prompts that grow the buffers, then prompts that count, from when all have begun until one ends.
class CountedPrompts final : public PromptFeed {
  public:
    CountedPrompts(std::size_t batch, StepAllocations& allocations)
        : counted_(batch), allocations_(allocations) {}
    std::optional<PromptInput> next() override {
        if (begun_ == warm_up_prompts * counted_ && ended_ < begun_) return std::nullopt;
        if (begun_ == (warm_up_prompts + 1) * counted_) return std::nullopt;
        PromptInput prompt;
        for (int i = 0; i < 12; ++i)
            prompt.tokens.push_back(
                static_cast<TokenId>((3 * begun_ + static_cast<std::size_t>(i % 5)) % 40));
        ++begun_;
        allocations_.restart();
        return prompt;
    }
    void done(const PromptInput&, PromptOutcome outcome) override {
        if (++ended_ != warm_up_prompts * counted_ + 1) return;
        steps = allocations_.of_steps;
        text = outcome.text;
    }

    std::vector<std::int64_t> steps;
    std::string text;

  private:
    std::size_t counted_, begun_ = 0, ended_ = 0;
    StepAllocations& allocations_;
};

/// Checks that every step except the first ones allocated only its record.
void expect_no_allocations(const std::vector<std::int64_t>& steps, const DecodeCase& setting) {
    ASSERT_GT(steps.size(), warm_up_steps + 5) << to_text(setting);
    std::map<std::size_t, std::int64_t> taken;
    for (std::size_t i = warm_up_steps; i < steps.size(); ++i)
        if (steps[i] != 0) taken[i] = steps[i];
    EXPECT_THAT(taken, ::testing::IsEmpty()) << to_text(setting);
}

template <typename T>
int block_of(const std::vector<T>& values) {
    return values.capacity() > 0 ? 1 : 0;
}
int block_of(const std::string& text) {
    return text.capacity() > std::string().capacity() ? 1 : 0;
}

/// Receives records like a recorder and measures the memory that they own.
class MeasuringSink final : public RecordSink {
  public:
    explicit MeasuringSink(StepAllocations& allocations) : allocations_(allocations) {}
    void push(Record record) override {
        int blocks = 0;
        if (const auto* step = std::get_if<StepRecord>(&record)) {
            ++steps;
            blocks += block_of(step->rounds) + block_of(step->spans);
            for (const RoundRecord& round : step->rounds) {
                blocks += block_of(round.nodes) + block_of(round.tops) + block_of(round.tokens) +
                          block_of(round.head_evals);
                for (const HeadEvalRow& row : round.head_evals) blocks += block_of(row.head);
            }
        } else if (const auto* progress = std::get_if<PromptProgress>(&record)) {
            blocks += block_of(progress->output) + block_of(progress->tokens);
        }
        allocations_.hand_over(blocks);
    }
    int steps = 0;

  private:
    StepAllocations& allocations_;
};

const std::vector<std::string> heads =
    specs_of_heads({"fr-spec:v=40", "fr-spec:v=40+rdk", "microspec:wmax=64", "microspec:wmax=64,gather=sync",
                    "microspec:wmax=64,gather=indexed", "specvocab:k=24", "specvocab:k=24,share=per-row"});

/// Random targets with every drafter and head, with a vocabulary whose logits are stored and one whose are
/// not.
class Allocations : public ::testing::TestWithParam<int>, protected TinyDecode {
  protected:
    Allocations() : TinyDecode(options(), kernels::Precision::int8, GetParam()) {
        setting_.threads = 2;
        setting_.ignore_eos = true;
        setting_.max_new = 60;
    }
    static TinyModelOptions options() {
        TinyModelOptions options;
        options.vocab = GetParam();
        return options;
    }

    void decode(const std::string& drafter, const std::string& head, bool recorded = false) {
        setting_.drafter = drafter;
        setting_.head = head;
        StepAllocations allocations;
        MeasuringSink sink(allocations);
        CountedPrompts prompts(static_cast<std::size_t>(setting_.batch), allocations);
        fixture_.listen(&allocations);
        EXPECT_EQ(fixture_.run(setting_, prompts, recorded ? &sink : nullptr).message, "no error");
        fixture_.listen(nullptr);
        EXPECT_EQ(sink.steps > 0, recorded);
        expect_no_allocations(prompts.steps, setting_);
    }

    TinyArtefacts artefacts_{fixture_};
    DecodeCase setting_;
};

TEST_P(Allocations, StepsWithoutAHeadAllocateNothing) {
    for (const int batch : {1, 2}) {
        setting_.batch = batch;
        decode("none", "full");
        decode("ngram", "full");
    }
}

TEST_P(Allocations, StepsWithHeadsAllocateNothing) {
    for (const int batch : {1, 2}) {
        setting_.batch = batch;
        for (const std::string& head : heads) decode("eagle2", head);
        for (const std::string head : {"full", "fr-spec:v=40"}) decode("eagle3", head);
    }
}

TEST_P(Allocations, StepsOfPathHeadsAllocateNothing) {
    for (const std::string drafter : {"medusa", "hydra"})
        for (const std::string head : {"full", "fr-spec:v=40", "specvocab:k=24"}) decode(drafter, head);
}

TEST_P(Allocations, StepsOfADraftModelAllocateNothing) {
    for (const int batch : {1, 2})
        for (const std::string tree :
             {"chain=4", "depth=3,topk=4,nodes=12", "choices:mc_sim_7b_63,levels=4"}) {
            setting_.batch = batch;
            setting_.tree = tree;
            decode("draft-model", "full");
            // The draft model has fewer tokens than the ranking of the larger vocabulary.
            if (GetParam() == 97) decode("draft-model", "fr-spec:v=40");
        }
}

TEST_P(Allocations, StepsOfFixedTreesAllocateNothing) {
    setting_.tree = "choices:mc_sim_7b_63,levels=4";
    for (const std::string drafter : {"eagle2", "medusa"}) decode(drafter, "full");
}

/// Every kind of sampling.
TEST_P(Allocations, SampledStepsAllocateNothing) {
    setting_.temperature = 0.9;
    for (const auto& [top_p, top_k] :
         {std::pair(1.0, 0), std::pair(1.0, 9), std::pair(0.7, 0), std::pair(0.8, 20)}) {
        setting_.top_p = top_p;
        setting_.top_k = top_k;
        for (const std::string rule : {"match", "typical", "pq"}) {
            setting_.verify = rule;
            setting_.batch = rule == "typical" ? 1 : 2;
            decode("eagle2", "full");
        }
    }
    for (const std::string rule : {"match", "typical", "pq"}) {
        setting_.verify = rule;
        setting_.temperature = 0.9;
        decode("none", "full");
        decode("medusa", "full");
        // A text without repetition would have its first draft after the warm-up.
        setting_.temperature = 0.1;
        decode("ngram", "full");
    }
}

TEST_P(Allocations, StepsOfSimulatedAcceptanceAllocateNothing) {
    setting_.acceptance = "rate:0.8";
    for (const double temperature : {0.0, 0.9}) {
        setting_.temperature = temperature;
        decode("eagle2", "full");
    }
}

/// Each head provides its own kind of draft distribution.
TEST_P(Allocations, StepsOfSampledDraftsAllocateNothing) {
    setting_.temperature = 0.9;
    setting_.verify = "pq";
    for (const int top_k : {0, 9}) {
        setting_.top_k = top_k;
        for (const std::string& head : heads) decode("eagle2", head);
        decode("eagle3", "full");
        decode("draft-model", "full");
        for (const std::string drafter : {"medusa", "hydra"})
            for (const std::string head : {"fr-spec:v=40", "specvocab:k=24"}) decode(drafter, head);
    }
    setting_.tree = "choices:mc_sim_7b_63,levels=4";
    decode("eagle2", "full");
}

/// The rows of a step are moved out with the record that owns them; the scratch memory stays.
TEST_P(Allocations, RecordedStepsAllocateOnlyTheirRecords) {
    for (const int batch : {1, 2}) {
        setting_.batch = batch;
        decode("none", "full", true);
        decode("ngram", "full", true);
        for (const std::string drafter : {"eagle2", "eagle3", "medusa", "hydra", "draft-model"})
            decode(drafter, "full", true);
    }
    // A head's set is read when a text first reaches its level; for a head with state, in each text.
    setting_.tree = "depth=1,topk=4,nodes=12";
    for (const std::string head : {"fr-spec:v=40", "vocabtrim-t", "slimspec"}) decode("eagle2", head, true);
}

INSTANTIATE_TEST_SUITE_P(Vocabularies, Allocations, ::testing::Values(97, 4099));

/// Only the outcome's text grows.
TEST(TextAllocations, StepsAllocateNothing) {
    const ScratchFolder folder;
    const std::string path = folder.file("tiny.gguf");
    ASSERT_TRUE(write_tiny_gguf(path, 3, {}).ok());
    auto file = open_model_file(path);
    ASSERT_TRUE(is_ok(file));
    DecodeFixture fixture(DecodeFixture::build(std::move(file).value(), kernels::Precision::int8), {}, "");
    DecodeCase setting{.drafter = "ngram", .max_new = 90, .ignore_eos = true};
    StepAllocations allocations;
    CountedPrompts prompts(1, allocations);
    fixture.listen(&allocations);
    EXPECT_EQ(fixture.run(setting, prompts).message, "no error");
    EXPECT_GT(prompts.text.size(), 20u);
    expect_no_allocations(prompts.steps, setting);
}

}  // namespace
}  // namespace draftscope::testing
