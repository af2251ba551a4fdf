// Rounds of other engines. The values follow from the engines' own descriptions of their fields: the answer
// of vLLM's documentation, and the histogram that SGLang's test of its counters checks.
#include "storage/import/import_rounds.h"

#include <fmt/ranges.h>
#include <gmock/gmock.h>

#include <cmath>
#include <numeric>

#include "capture/queries.h"
#include "capture/run_setting.h"
#include "tests/unit/storage/file_helpers.h"

namespace draftscope::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

struct Sink : RecordSink {
    Capture capture;
    std::vector<Record> records;
    void push(Record record) override {
        capture.apply(record);
        records.push_back(std::move(record));
    }
};

struct Imported {
    std::shared_ptr<const Snapshot> snapshot;
    std::vector<Record> records;
    RoundsReport report;
    std::string error;

    const RoundRow& round(std::size_t i) const { return snapshot->rounds[i].row; }
    std::vector<std::int64_t> histogram() const {
        std::vector<std::int64_t> out;
        for (const RoundEntry& entry : snapshot->rounds) {
            out.resize(std::max<std::size_t>(out.size(), entry.row.accepted + 1));
            ++out[entry.row.accepted];
        }
        return out;
    }
    std::vector<int> tokens() const {
        std::vector<int> out;
        for (const TokenRow& token : snapshot->tokens) out.push_back(token.token_id);
        return out;
    }
    double sum(std::string_view name) const {
        double out = 0;
        for (const CounterRow& counter : snapshot->counters) out += counter.name == name ? counter.value : 0;
        return out;
    }
};

/// Imports texts as files, in pieces of three bytes as a growing file may come.
Imported import_texts(const std::vector<std::string>& texts, RoundsOptions options = {}) {
    Sink sink;
    Imported out;
    const auto import = RoundsImport::create(std::move(options), sink);
    Status status;
    for (std::size_t file = 0; file < texts.size() && status.ok(); ++file) {
        import->begin(file == 0 ? "one.txt" : "two.txt");
        for (std::size_t at = 0; at < texts[file].size() && status.ok(); at += 3)
            status = import->read(std::string_view(texts[file]).substr(at, 3));
        if (status.ok()) status = import->end();
    }
    if (!status.ok()) {
        out.error = status.error().message;
        return out;
    }
    const auto report = import->finish();
    if (report.ok())
        out.report = *report;
    else
        out.error = report.error().message;
    out.snapshot = std::make_shared<const Snapshot>(sink.capture.snapshot(1));
    out.records = std::move(sink.records);
    return out;
}

const std::string header =
    R"({"dsrounds":1,"engine":"llama.cpp","source":"log","k":3,"clock":"log","first_token":"prefill","vocab":20000})"
    "\n";
const std::string two_rounds = header +
                               R"({"req":"691","prompt_ids":[9707,11],"category":"chat","first_id":5}
{"req":"691","i":0,"ctx":3,"d":3,"a":1,"c":2,"draft":[8068,16,271],"lp":[-0.74,-1.1,null],"out":[8068,25],"trank":[0,4,null],"t0":33645000,"dt":105000000,"ph":{"draft":20000000,"verify":60000000}}
{"req":"691","i":1,"d":2,"a":2,"c":2,"out":[7,8],"end":"length"}
)";

TEST(ImportRounds, LinesBecomeRoundsTreesAndTokens) {
    const Imported found = import_texts({two_rounds});
    ASSERT_EQ(found.error, "");
    EXPECT_THAT(found.report.notes, IsEmpty());
    const Snapshot& s = *found.snapshot;
    ASSERT_EQ(s.rounds.size(), 2u);
    EXPECT_EQ(s.runs[0].acceptance, imported_acceptance);
    EXPECT_EQ(losslessness(s.runs[0]), "unknown");
    EXPECT_TRUE(std::isnan(s.runs[0].temperature));
    EXPECT_THAT(found.tokens(), ElementsAre(5, 8068, 25, 7, 8));
    EXPECT_EQ(s.tokens[1].source, TokenSource::draft);
    EXPECT_EQ(s.tokens[2].source, TokenSource::bonus);
    EXPECT_FALSE(s.tokens[1].covered.has_value());
    // The second round has no ctx: it follows from the first.
    EXPECT_EQ(found.round(1).context_length, 5);
    EXPECT_TRUE(found.round(1).clipped);
    EXPECT_EQ(found.round(1).tree_depth, 2);
    EXPECT_EQ(s.steps[0].row.busy_ns(), 105000000);
    EXPECT_EQ(s.steps[1].row.excluded, Excluded::untimed);
    const auto tree = s.tree(0);
    ASSERT_EQ(tree->nodes.size(), 4u);
    EXPECT_EQ(tree->nodes[0].token_id, 5);
    EXPECT_TRUE(tree->nodes[1].accepted);
    EXPECT_EQ(tree->nodes[1].target_token_id, 25);
    EXPECT_EQ(tree->nodes[2].target_rank, 4);
    EXPECT_TRUE(std::isnan(tree->nodes[3].draft_logprob));
    EXPECT_EQ(s.prompts[0]->finish, Finish::length);
    EXPECT_EQ(s.prompts[0]->generated_tokens, 5);
    EXPECT_EQ(run_totals(s, 1).committed, 4);
    EXPECT_DOUBLE_EQ(run_totals(s, 1).tokens_per_second, 2 / 0.105);
}

TEST(ImportRounds, UnknownIsNullInTheFile) {
    const ScratchFolder folder;
    const std::string path = folder.path() + "/made.dscope";
    const Imported found = import_texts({header + "{\"req\":\"1\",\"n\":2,\"a\":1}\n"});
    ASSERT_EQ(found.error, "");
    write_all(path, found.records);
    const auto db = open_plain(path);
    EXPECT_THAT(query(db,
                      "SELECT count(*), ordinal, context_length, tree_nodes, tree_depth, drafted, accepted, "
                      "end_ns FROM round"),
                ElementsAre("2||||||1|"));
    EXPECT_THAT(query(db, "SELECT temperature, batch, threads, acceptance FROM run"),
                ElementsAre("|||imported"));
    EXPECT_THAT(query(db, "SELECT excluded, end_ns FROM step WHERE id = 1"), ElementsAre("untimed|"));
    EXPECT_THAT(query(db, "SELECT tau, drafted, tokens_per_second FROM v_category"), ElementsAre("2.0||"));
    EXPECT_THAT(require(check_capture(path)).findings, IsEmpty());
    const auto again = require(load_capture(path));
    EXPECT_EQ(again->rounds[1].row.draft_tokens, -1);
    EXPECT_EQ(again->steps[1].row.excluded, Excluded::untimed);
}

struct Refused {
    std::string line, why;
};
class RefusedLine : public ::testing::TestWithParam<Refused> {};

TEST_P(RefusedLine, IsNamedAndLeftOut) {
    const std::string good = R"({"req":"1","i":0,"ctx":10,"d":3,"a":1,"c":2})";
    const Imported found =
        import_texts({header + good + "\n" + GetParam().line + "\n{\"req\":\"2\",\"a\":0}\n"});
    ASSERT_EQ(found.error, "");
    EXPECT_EQ(found.snapshot->rounds.size(), 2u);
    EXPECT_EQ(found.report.refused, 1);
    ASSERT_EQ(found.report.notes.size(), 1u);
    EXPECT_THAT(found.report.notes[0], HasSubstr("one.txt:3: "));
    EXPECT_THAT(found.report.notes[0], HasSubstr(GetParam().why));
    ASSERT_EQ(found.snapshot->losses.size(), 1u);
    EXPECT_EQ(found.snapshot->losses[0].kind, "import_refused");
    EXPECT_EQ(found.snapshot->notes.size(), 1u);
}

INSTANTIATE_TEST_SUITE_P(
    Lines, RefusedLine,
    ::testing::Values(
        Refused{R"({"req":"1","i":1,"d":2,"a":3})", "field a: 3 accepted of 2 drafted"},
        Refused{R"({"req":"1","i":1,"a":1,"c":3})", "field c: 3 committed"},
        Refused{R"({"req":"1","i":0,"a":1})", "field i: 0 again, or out of order; 1 was expected"},
        Refused{R"({"req":"1","i":1,"ctx":13,"a":1})", "field ctx: 13, but the lines before make 12"},
        Refused{R"({"req":"1","i":1,"a":1,"out":[20000,1]})", "field out[0]: 20000"},
        Refused{R"({"req":"1","i":1,"d":2,"a":1,"draft":[4,5],"out":[5,1]})", "field out: no drafted id"},
        Refused{R"({"req":"1","i":1,"d":3,"a":1,"draft":[4,5]})", "field draft: 2 ids for 3 drafted"},
        Refused{R"({"req":"1","i":1,"a":1,"draft":[4,5],"lp":[-1,0.5]})", "field lp[1]: 0.5"},
        Refused{R"({"req":"1","i":1,"a":1,"draft":[4,5],"par":[-1,1]})", "field par: node 1 has parent 1"},
        Refused{R"({"req":"1","i":1,"a":1,"dt":10,"ph":{"draft":7,"host":4}})",
                "field ph: the phases last 11"},
        Refused{R"({"req":"1","i":1,"a":-1})", "field a: -1"},
        Refused{R"({"req":"1","i":1})", "field a: missing"},
        Refused{R"({"i":1,"a":1})", "field req: missing"},
        Refused{R"({"req":"1","n":2,"i":1,"a":1})", "field n: a line of several rounds"},
        Refused{R"({"req":"1","n":2000000,"a":1})", "field n: 2000000"},
        Refused{R"({"req":"1","a_sum":3})", "field n: missing"},
        Refused{R"({"req":"1","n":4,"a_sum":5,"d_sum":4})", "field a_sum: 5 accepted of 4"},
        Refused{R"({"req":"1","i":1,"a":1,"lp":[NaN]})", "NaN is no number of JSON"},
        Refused{R"({"req":"1","i":1,"a":)", "the line may be cut off"}));

TEST(ImportRounds, ReadingGoesOnAfterARefusedRound) {
    const Imported found = import_texts({header + R"({"req":"1","i":0,"ctx":10,"a":1}
{"req":"1","i":1,"ctx":12,"d":0,"a":1}
{"req":"1","i":2,"ctx":14,"a":0}
)"});
    EXPECT_EQ(found.snapshot->rounds.size(), 2u);
    EXPECT_EQ(found.report.refused, 1);
}

TEST(ImportRounds, AWrongHeaderEndsTheImport) {
    EXPECT_THAT(import_texts({"{\"dsrounds\":2}\n"}).error,
                HasSubstr("field dsrounds: 2, this program reads"));
    EXPECT_THAT(import_texts({"{\"dsrounds\":1,\"k\":\"three\"}\n"}).error, HasSubstr("field k: \"three\""));
    EXPECT_THAT(import_texts({"hello\n"}).error, HasSubstr("one.txt: no known format"));
    EXPECT_THAT(import_texts({header}).error, HasSubstr("no round was found"));
}

TEST(ImportRounds, SumsThatContradictAreNoted) {
    const Imported found =
        import_texts({header + "{\"req\":\"1\",\"completion_tokens\":9}\n{\"req\":\"1\",\"i\":0,\"a\":2}\n"});
    ASSERT_EQ(found.report.notes.size(), 1u);
    EXPECT_THAT(found.report.notes[0], HasSubstr("completion_tokens: 9, but its rounds make 4"));
}

TEST(ImportRounds, HeaderOptionsFillInWhatTheFileLacks) {
    RoundsOptions options;
    options.header = {{"drafter", "none"}, {"temperature", "0"}, {"verification", "match"}};
    const Imported found = import_texts({header + "{\"req\":\"1\",\"i\":0,\"a\":0}\n"}, options);
    EXPECT_EQ(found.snapshot->runs[0].drafter, "none");
    EXPECT_EQ(found.snapshot->runs[0].temperature, 0);
    EXPECT_EQ(losslessness(found.snapshot->runs[0]), "exact");
}

/// A chunk of llama.cpp's server: `n` tokens so far, `ms` since the first.
std::string llama_chunk(int token, int n, const char* ms, int drafted, int accepted) {
    return fmt::format(
        "data: "
        "{{\"content\":\"x\",\"tokens\":[{}],\"stop\":false,\"timings\":{{\"cache_n\":4,\"prompt_n\":40,"
        "\"prompt_ms\":281.3,"
        "\"predicted_n\":{},\"predicted_ms\":{}{}}}}}\n\n",
        token, n, ms,
        drafted == 0 ? "" : fmt::format(",\"draft_n\":{},\"draft_n_accepted\":{}", drafted, accepted));
}

TEST(ImportRounds, AStreamOfLlamaCppHasARoundWhereItsTimeChanges) {
    const std::string stream =
        llama_chunk(10, 1, "0.001", 0, 0) + llama_chunk(11, 2, "20.001", 0, 0) +
        llama_chunk(12, 3, "75.001", 3, 1) + llama_chunk(13, 4, "75.001", 3, 1) +
        llama_chunk(14, 5, "120.001", 6, 1) +
        "data: "
        "{\"tokens\":[],\"stop\":true,\"model\":\"m.gguf\",\"generation_settings\":{\"temperature\":0.0,"
        "\"speculative.types\":\"none,draft-eagle3\"},\"prompt\":\"Hi\",\"stop_type\":\"limit\",\"timings\":{"
        "\"predicted_n\":5,\"predicted_ms\":120.001,\"draft_n\":6,\"draft_n_accepted\":1}}\n\n";
    const Imported found = import_texts({stream});
    ASSERT_EQ(found.error, "");
    EXPECT_THAT(found.report.notes, IsEmpty());
    const Snapshot& s = *found.snapshot;
    ASSERT_EQ(s.rounds.size(), 3u);
    EXPECT_EQ(s.runs[0].target, "m.gguf");
    EXPECT_EQ(s.runs[0].drafter, "draft-eagle3");
    EXPECT_THAT(found.tokens(), ElementsAre(10, 11, 12, 13, 14));
    // A plain step, a round that accepted one of three, a round that accepted none.
    EXPECT_EQ(found.round(0).draft_tokens, 0);
    EXPECT_EQ(found.round(1).draft_tokens, 3);
    EXPECT_EQ(found.round(1).accepted, 1);
    EXPECT_EQ(found.round(1).committed, 2);
    EXPECT_EQ(found.round(1).context_length, 46);
    EXPECT_EQ(s.steps[1].row.busy_ns(), 55000000);
    EXPECT_EQ(found.round(2).accepted, 0);
    EXPECT_EQ(s.prompts[0]->prompt_tokens, 44);
    EXPECT_EQ(s.prompts[0]->prefill_ns, 281300000);
}

TEST(ImportRounds, AnAnswerOfLlamaCppHasSums) {
    const Imported found = import_texts(
        {R"({"content":"x","timings":{"prompt_n":44,"prompt_ms":270.1,"predicted_n":48,"predicted_ms":1021.0,"draft_n":54,"draft_n_accepted":28}})"});
    ASSERT_EQ(found.error, "");
    EXPECT_EQ(found.sum(rounds_sum), 19);
    EXPECT_EQ(found.sum(accepted_sum), 28);
    EXPECT_EQ(found.sum(drafted_sum), 54);
    EXPECT_EQ(found.snapshot->rounds.size(), 0u);
    EXPECT_EQ(found.snapshot->prompts[0]->generated_tokens, 48);
}

TEST(ImportRounds, ADebugLogOfLlamaCppHasTheDraftersCandidates) {
    const Imported found =
        import_texts({R"(0.00.642.157 I spec common_specu: adding speculative implementation 'draft-eagle3'
0.00.642.172 I spec common_specu: - n_max=2, n_min=0, p_min=0.000000
0.08.288.791 I slot   operator(): id  0 | task 7 | new prompt, n_ctx_slot = 4096, n_keep = 0, task.n_tokens = 44
0.08.570.000 D slot process_toke: id  0 | task 7 | n_gen = 1, n_remaining = 47, next token:  3725 'a'
0.08.574.009 D spec        draft:  - seq_id 0, draft candidate   0, pos   0:   5367 (   0.975) 'python'
0.08.574.044 D spec        draft:  - seq_id 0, draft candidate   1, pos   0:    198 (   0.017) '
0.08.577.450 D spec        draft:  - seq_id 0, draft candidate   0, pos   1:    198 (   1.000) '
0.08.577.477 D spec        draft:  - seq_id 0, draft candidate   1, pos   1:   1116 (   0.000) ' in'
0.08.580.722 D slot handle_last_: id  0 | task 7 | generate_draft: id=3725, #tokens=44, #draft=2, pos_next=44
0.08.626.000 D slot   operator(): id  0 | task 7 | add accepted tokens: sampled=3987, ids.size=2, n_draft=2
0.08.626.159 D slot process_toke: id  0 | task 7 | n_gen = 2, n_remaining = 46, next token:  5367 'python'
0.08.626.270 D slot   operator(): id  0 | task 7 | accepted 1/2 draft tokens, new n_tokens = 46
0.08.650.000 D slot process_toke: id  0 | task 7 | n_gen = 4, n_remaining = 44, next token:  21 'b'
0.09.589.300 I slot print_timing: id  0 | task 7 | draft acceptance = 0.50000 (    1 accepted /     2 generated), mean len =  1.50
)"});
    ASSERT_EQ(found.error, "");
    EXPECT_THAT(found.report.notes, IsEmpty());
    const Snapshot& s = *found.snapshot;
    ASSERT_EQ(s.rounds.size(), 2u);
    EXPECT_EQ(s.runs[0].tree, "chain=2");
    EXPECT_THAT(found.tokens(), ElementsAre(3725, 5367, 3987, 21));
    EXPECT_EQ(found.round(0).context_length, 45);
    EXPECT_EQ(s.steps[0].row.busy_ns(), 56000000);
    EXPECT_EQ(found.round(1).draft_tokens, 0);
    const auto tree = s.tree(0);
    ASSERT_EQ(tree->nodes.size(), 5u);  // root, two drafts, two candidates that were not drafted
    EXPECT_NEAR(tree->nodes[1].draft_logprob, std::log(0.975), 1e-6);
    EXPECT_EQ(tree->nodes[3].token_id, 198);
    EXPECT_EQ(tree->nodes[3].parent, 0);
    EXPECT_EQ(tree->nodes[4].parent, 1);
    EXPECT_FALSE(tree->nodes[3].accepted);
}

TEST(ImportRounds, ALogOfLlamaCppWithALostLineHasNoDraft) {
    const Imported found = import_texts(
        {R"(0.08.577.450 D spec        draft:  - seq_id 0, draft candidate   0, pos   1:    198 (   1.000) 'x'
0.08.580.722 D slot handle_last_: id  0 | task 7 | generate_draft: id=3725, #tokens=44, #draft=2, pos_next=44
0.08.626.000 D slot   operator(): id  0 | task 7 | add accepted tokens: sampled=3987, ids.size=2, n_draft=2
)"});
    ASSERT_EQ(found.error, "");
    EXPECT_EQ(found.round(0).draft_tokens, 2);
    EXPECT_EQ(found.round(0).accepted, 1);
    EXPECT_THAT(found.snapshot->tree(0)->nodes, IsEmpty());
}

TEST(ImportRounds, ALogOfLlamaCppLeavesOutRoundsThatAreVerifiedAgain) {
    const Imported found = import_texts(
        {R"(0.01.000.000 I slot update_slots: id  0 | task 9 | accepted  1/ 3 draft tokens (restore checkpoint)
0.01.010.000 I slot update_slots: id  0 | task 9 | accepted  1/ 1 draft tokens
0.01.030.000 I slot update_slots: id  0 | task 9 | accepted  2/ 3 draft tokens
)"});
    ASSERT_EQ(found.error, "");
    EXPECT_THAT(found.histogram(), ElementsAre(0, 1, 1));
    ASSERT_EQ(found.snapshot->losses.size(), 1u);
    EXPECT_EQ(found.snapshot->losses[0].kind, "import_replayed");
}

/// The answer in vLLM's documentation of its metrics.
std::string vllm_answer(const std::string& steps, int tokens = 12) {
    return fmt::format(
        R"({{"id":"cmpl-1","model":"m","choices":[{{"index":0,"text":"x","finish_reason":"stop"}}],)"
        R"("usage":{{"prompt_tokens":7,"completion_tokens":{}}},"metrics":{{"speculative_decoding":{{)"
        R"("acceptance_histogram":[1,0,2,1],"num_spec_steps":4,"num_accepted_draft_tokens":7,)"
        R"("num_draft_tokens":12,"num_spec_tokens":3{}}}}}}})",
        tokens, steps);
}

TEST(ImportRounds, AnAnswerOfVllmHasRoundsInOrder) {
    const Imported found =
        import_texts({vllm_answer(",\"per_step_accepted\":[3,2,2,0],\"per_step_drafted\":[3,3,3,3]")});
    ASSERT_EQ(found.error, "");
    EXPECT_THAT(found.report.notes, IsEmpty());
    EXPECT_THAT(found.histogram(), ElementsAre(1, 0, 2, 1));
    EXPECT_EQ(found.round(0).accepted, 3);
    EXPECT_EQ(found.round(3).context_length, 18);
    EXPECT_DOUBLE_EQ(run_totals(*found.snapshot, 1).tau_unclipped, 2.75);
    EXPECT_EQ(run_totals(*found.snapshot, 1).draft_tokens, 12);
}

TEST(ImportRounds, ASummaryOfVllmIsAHistogram) {
    const Imported found = import_texts({vllm_answer("")});
    ASSERT_EQ(found.error, "");
    EXPECT_THAT(found.histogram(), ElementsAre(1, 0, 2, 1));
    EXPECT_EQ(found.round(0).ordinal, -1);
    EXPECT_EQ(found.sum(drafted_sum), 12);
    EXPECT_EQ(run_totals(*found.snapshot, 1).unknown_drafts, 4);
}

TEST(ImportRounds, StepsWithoutDraftsThatVllmLeavesOutAreCounted) {
    const Imported found =
        import_texts({vllm_answer(",\"per_step_accepted\":[3,2,2,0],\"per_step_drafted\":[3,3,3,3]", 17)});
    ASSERT_EQ(found.error, "");
    EXPECT_THAT(found.histogram(), ElementsAre(6, 0, 2, 1));
    EXPECT_EQ(found.report.notes.size(), 1u);
    EXPECT_DOUBLE_EQ(run_totals(*found.snapshot, 1).tau, 16.0 / 9);
}

TEST(ImportRounds, AStreamOfVllmHasARoundAChunk) {
    const Imported found = import_texts(
        {R"(data: {"id":"a","model":"m","choices":[{"index":0,"delta":{"content":""}}],"prompt_token_ids":[1,2,3]}

data: {"id":"a","choices":[{"index":0,"delta":{"content":"x"},"token_ids":[9]}]}

data: {"id":"a","choices":[{"index":0,"delta":{"content":"y"},"token_ids":[10,11,12]}]}

data: {"id":"a","choices":[{"index":0,"delta":{"content":"z"},"finish_reason":"length","token_ids":[13]}]}

data: [DONE]
)"});
    ASSERT_EQ(found.error, "");
    EXPECT_THAT(found.tokens(), ElementsAre(9, 10, 11, 12, 13));
    EXPECT_THAT(found.histogram(), ElementsAre(1, 0, 1));
    EXPECT_EQ(found.round(0).context_length, 4);
    EXPECT_EQ(found.round(0).draft_tokens, -1);
}

/// A stream of vLLM's `ngram` with chunks of these many ids, of which the first is the prefill's.
std::string vllm_ngram_stream(const std::vector<int>& chunks, const std::string& accepted,
                              const std::string& drafted) {
    std::string out;
    int id = 0;
    for (const int count : chunks) {
        std::vector<int> ids(static_cast<std::size_t>(count));
        std::iota(ids.begin(), ids.end(), id);
        id += count;
        out += fmt::format("data: {{\"id\":\"a\",\"model\":\"m\",\"choices\":[{{\"token_ids\":[{}]}}]}}\n\n",
                           fmt::join(ids, ","));
    }
    return out + fmt::format(
                     "data: {{\"id\":\"a\",\"choices\":[],\"usage\":{{\"completion_tokens\":{}}},"
                     "\"metrics\":{{\"speculative_decoding\":{{\"num_spec_tokens\":3,"
                     "\"per_step_accepted\":[{}],\"per_step_drafted\":[{}]}}}}}}\n\n",
                     id, accepted, drafted);
}

TEST(ImportRounds, StepsOfVllmAreLaidOverTheChunksOfItsStream) {
    // One of the first two rounds had drafts, the fourth had none; the answer ends within the last.
    const Imported found = import_texts({vllm_ngram_stream({1, 1, 1, 4, 1, 2}, "0,3,3", "2,3,3")});
    ASSERT_EQ(found.error, "");
    std::vector<int> drafted, accepted, committed;
    for (int i = 0; i < 5; ++i) {
        drafted.push_back(found.round(i).draft_tokens);
        accepted.push_back(found.round(i).accepted);
        committed.push_back(found.round(i).committed);
    }
    EXPECT_THAT(drafted, ElementsAre(2, 0, 3, 0, 3));
    EXPECT_THAT(accepted, ElementsAre(0, 0, 3, 0, 3));
    EXPECT_THAT(committed, ElementsAre(1, 1, 4, 1, 2));
    ASSERT_EQ(found.report.notes.size(), 1u);
    EXPECT_THAT(found.report.notes[0], HasSubstr("which rounds without an accepted draft"));
    // Before and between accepted drafts, all rounds had drafts or none.
    EXPECT_TRUE(import_texts({vllm_ngram_stream({1, 1, 2, 1, 3}, "0,1,2", "3,3,3")}).report.notes.empty());
}

TEST(ImportRounds, StepsOfVllmThatFitNoChunksLeaveTheDraftsUnknown) {
    const Imported found = import_texts({vllm_ngram_stream({1, 4, 3}, "1,2", "3,3")});
    ASSERT_EQ(found.error, "");
    EXPECT_EQ(found.round(0).draft_tokens, -1);
}

TEST(ImportRounds, ALogOfVllmGivesBackItsCounts) {
    const std::string line =
        "INFO 11-28 08:39:06 [metrics.py:120] SpecDecoding metrics: Mean acceptance length: 2.75, Accepted "
        "throughput: "
        "1.03 tokens/s, Drafted throughput: 2.50 tokens/s, Accepted: 7 tokens, Drafted: 12 tokens, "
        "Per-position "
        "acceptance rate: 0.750, 0.750, 0.250, Avg Draft acceptance rate: 58.3%\n";
    const Imported found = import_texts({line + line});
    ASSERT_EQ(found.error, "");
    EXPECT_THAT(found.report.notes, IsEmpty());
    EXPECT_THAT(found.histogram(), ElementsAre(2, 0, 4, 2));
    EXPECT_EQ(found.sum(drafted_sum), 24);
}

std::string scrape(int drafts, int drafted, int accepted, std::vector<int> positions) {
    std::string out = fmt::format(
        "# TYPE vllm:spec_decode_num_drafts counter\nvllm:spec_decode_num_drafts_total{{model_name=\"m\"}} "
        "{}.0\n"
        "vllm:spec_decode_num_drafts_created{{model_name=\"m\"}} 1.7e+09\n"
        "vllm:spec_decode_num_draft_tokens_total{{model_name=\"m\"}} {}.0\n"
        "vllm:spec_decode_num_accepted_tokens_total{{model_name=\"m\"}} {}.0\n",
        drafts, drafted, accepted);
    for (std::size_t i = 0; i < positions.size(); ++i)
        out += fmt::format(
            "vllm:spec_decode_num_accepted_tokens_per_pos_total{{model_name=\"m\",position=\"{}\"}} {}.0\n",
            i, positions[i]);
    return out;
}

TEST(ImportRounds, TwoScrapesAreAWindow) {
    const Imported found = import_texts({scrape(10, 30, 12, {6, 4, 2}), scrape(14, 42, 19, {9, 7, 3})});
    ASSERT_EQ(found.error, "");
    EXPECT_THAT(found.histogram(), ElementsAre(1, 0, 2, 1));
    EXPECT_EQ(found.sum(drafted_sum), 12);
    EXPECT_EQ(found.snapshot->runs[0].target, "m");
    EXPECT_THAT(import_texts({scrape(14, 42, 19, {9, 7, 3}), scrape(10, 30, 12, {6, 4, 2})}).error,
                HasSubstr("the counters fall between the scrapes"));
    EXPECT_THAT(import_texts({scrape(14, 42, 19, {9, 7, 3})}).error, HasSubstr("give a second"));
}

TEST(ImportRounds, AnAnswerOfSglangIsAHistogram) {
    const std::string answer =
        R"({{"text":"x","meta_info":{{"spec_verify_ct":{},"spec_num_correct_drafts":63,"spec_num_proposed_drafts":215,)"
        R"("spec_correct_drafts_histogram":[11,14,11,4,0,3]}}}})";
    const Imported found = import_texts({fmt::format(fmt::runtime(answer), 43)});
    ASSERT_EQ(found.error, "");
    EXPECT_THAT(found.histogram(), ElementsAre(11, 14, 11, 4, 0, 3));
    EXPECT_NEAR(run_totals(*found.snapshot, 1).tau_unclipped, 1 + 63.0 / 43, 1e-12);
    EXPECT_EQ(found.sum(drafted_sum), 215);
    EXPECT_THAT(import_texts({fmt::format(fmt::runtime(answer), 44)}).error,
                HasSubstr("field histogram: 43 rounds"));
}

TEST(ImportRounds, AnAnswerOfTensorRtIsAHistogram) {
    const Imported found = import_texts(
        {R"({"choices":[{"speculative_decoding":{"total_accepted_draft_tokens":7,"total_draft_tokens":12,"num_spec_steps":4,"acceptance_histogram":[1,0,2,1],"num_spec_tokens":3}}]})"});
    ASSERT_EQ(found.error, "");
    EXPECT_THAT(found.histogram(), ElementsAre(1, 0, 2, 1));
    EXPECT_EQ(found.snapshot->runs[0].tree, "chain=3");
}

TEST(ImportRounds, ARunBeginsWithEachOtherHeader) {
    const Imported found = import_texts({two_rounds, two_rounds});
    EXPECT_EQ(found.report.runs, 1);
    EXPECT_EQ(found.report.requests, 2);
    std::string other = two_rounds;
    other.replace(other.find("\"k\":3"), 5, "\"k\":5");
    const Imported both = import_texts({two_rounds, other});
    EXPECT_EQ(both.report.runs, 2);
    EXPECT_EQ(both.snapshot->prompts[1]->run_id, 2);
}

}  // namespace
}  // namespace draftscope::testing
