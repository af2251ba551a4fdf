#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <map>

#include "base/rng.h"
#include "engine/formats/hf_folder.h"
#include "engine/verify/verification.h"
#include "kernels/host_rows.h"
#include "tests/support/commit_path.h"
#include "tests/support/decode_fixture.h"
#include "tests/support/device_rig.h"
#include "tests/support/ranking_file.h"
#include "tests/support/results.h"
#include "tests/support/target_step.h"
#include "tests/support/tiny_artefacts.h"
#include "tests/support/tiny_drafter.h"

/// The engine on a device. Logits equal the CPU's up to bf16 rounding, and speculative text equals plain text
/// for every drafter and head.
namespace draftscope::testing {
namespace {

class DeviceEngine : public ::testing::TestWithParam<std::string> {
  protected:
    void SetUp() override {
        if (!on_.why_not.empty()) GTEST_SKIP() << on_.why_not;
    }
    DeviceEngine()
        : target_(DecodeFixture::build(tiny(), kernels::Precision::bf16, on_.exec.get())),
          eagle_(target_->config(), 77),
          eagle3_(target_->config(), 78, vocab),
          medusa_(target_->config(), false, 79),
          hydra_(target_->config(), true, 80),
          draft_model_(target_->config(), 81),
          ranking_(RankingFile::shuffled(vocab)),
          fixture_(std::move(target_),
                   {{"eagle2", eagle_.folder()},
                    {"eagle3", eagle3_.folder()},
                    {"medusa", medusa_.folder()},
                    {"hydra", hydra_.folder()},
                    {"draft-model", draft_model_.path()}},
                   ranking_.path()) {
        fixture_.run_on(*on_.exec);
    }

    /// Returns the number of accepted drafts of a run and expects the text of plain decoding.
    std::int64_t accepted_by(DecodeCase setting) {
        DecodeCase plain = setting;
        plain.drafter = "none";
        plain.tree = "chain=1";
        plain.batch = 1;
        const auto expected = fixture_.decode(plain, prompts());
        const auto found = fixture_.decode(setting, prompts());
        std::int64_t accepted = 0;
        for (std::size_t p = 0; p < found.size(); ++p) {
            EXPECT_EQ(found[p].tokens, expected[p].tokens) << to_text(setting) << " prompt " << p;
            accepted += found[p].accepted;
        }
        return accepted;
    }

    TwinExec on_{GetParam()};
    std::unique_ptr<Target> target_;
    TinyEagle2 eagle_;
    TinyEagle3 eagle3_;
    TinyDecodingHeads medusa_, hydra_;
    TinyDraftModel draft_model_;
    RankingFile ranking_;
    DecodeFixture fixture_;
};

TEST_P(DeviceEngine, TextIsThatOfPlainDecodingForEveryDrafter) {
    for (const double temperature : {0.0, 0.8})
        for (const std::string drafter : {"ngram", "eagle2", "eagle3", "medusa", "hydra", "draft-model"}) {
            std::int64_t accepted = 0;
            for (const std::string tree : {"chain=4", "depth=3,topk=4,nodes=12"}) {
                DecodeCase setting;
                setting.drafter = drafter;
                setting.tree = tree;
                setting.batch = tree == "chain=4" ? 1 : 3;
                setting.temperature = temperature;
                setting.max_new = 16;
                accepted += accepted_by(setting);
            }
            EXPECT_GT(accepted, 3) << drafter;
        }
    EXPECT_TRUE(on_.twin == nullptr || on_.twin->replayed() > 100);
}

TEST_P(DeviceEngine, TextIsThatOfPlainDecodingForEveryHead) {
    TinyArtefacts artefacts(fixture_);
    std::int64_t accepted = 0;
    for (const std::string head :
         {"full", "fr-spec:v=6", "pa-fr:v=8/4", "vocabtrim:v=6", "slimspec", "specvocab:k=4",
          "specvocab:k=6/3/1,share=per-row", "vocabtrim-t", "bcl", "coral:active=2",
          "dynaspec:kmax=3,kmin=1,decay=0.5", "dynaspec:kmax=2,share=per-row", "microspec:wmax=64",
          "microspec:wmax=9,gather=sync", "microspec:wmax=9,gather=indexed"})
        for (const std::string tree : {"chain=3", "depth=3,topk=4,nodes=12"}) {
            DecodeCase setting;
            setting.head = head;
            setting.tree = tree;
            setting.batch = tree == "chain=3" ? 1 : 3;
            setting.max_new = 12;
            accepted += accepted_by(setting);
        }
    EXPECT_GT(accepted, 100);
    EXPECT_TRUE(on_.twin == nullptr || on_.twin->side_ops() > 0);  // MicroSpec's gather, DynaSpec's router
}

/// Compares a device with the CPU on one model: a prefill, and passes over a tree, repeated so that graphs
/// are replayed. `tolerance` bounds the relative RMS error; the device rounds activations to bf16, which a
/// CPU without bf16 dot products does not.
void expect_same_logits(TwinExec& twin, ModelFile on_cpu, ModelFile on_twin, double tolerance) {
    const auto cpu_exec = kernels::make_cpu_backend(2);
    const auto cpu = DecodeFixture::build(std::move(on_cpu), kernels::Precision::bf16);
    const auto on_device =
        DecodeFixture::build(std::move(on_twin), kernels::Precision::bf16, twin.exec.get());
    const int tokens = cpu->config().vocab, d = cpu->config().hidden;
    std::vector<TokenId> prompt;
    Rng rng(9);
    for (int i = 0; i < 70; ++i)
        prompt.push_back(static_cast<TokenId>(rng.below(static_cast<unsigned>(tokens))));
    KvCache a = cpu->make_cache(120), b = on_device->make_cache(90);
    ForwardOutput x, y;
    const std::vector<int> aux = {0, 1};
    ASSERT_TRUE(cpu->prefill(a, prompt, aux, x).ok());
    ASSERT_TRUE(on_device->prefill(b, prompt, aux, y).ok());
    const auto compare = [&](const std::vector<float>& p, const std::vector<float>& q, const char* what) {
        ASSERT_EQ(p.size(), q.size()) << what;
        double power = 0, difference = 0;
        for (std::size_t i = 0; i < p.size(); ++i) {
            power += static_cast<double>(p[i]) * static_cast<double>(p[i]);
            difference += static_cast<double>(p[i] - q[i]) * static_cast<double>(p[i] - q[i]);
        }
        EXPECT_LT(std::sqrt(difference / power), tolerance) << what;
    };
    const auto same = [&] {
        ASSERT_EQ(x.rows, y.rows);
        compare(x.hidden, y.hidden, "hidden");
        compare(x.aux, y.aux, "aux");
        compare(x.logits, y.logits, "logits");
    };
    same();
    EXPECT_EQ(static_cast<int>(y.hidden.size()), 70 * d);
    // A tree with two branches. The accepted path is not contiguous, so its slots are moved.
    const std::vector<TokenId> tree = {1, 2, 3, 4, 5};
    const std::vector<int> parents = {-1, 0, 0, 2, 3}, depths = {0, 1, 1, 2, 3};
    const AncestorMask mask = AncestorMask::from_parents(parents);
    for (int round = 0; round < 3; ++round) {
        SequenceTokens cpu_rows{&a, tree, depths, &mask}, twin_rows{&b, tree, depths, &mask};
        ForwardRequest request{{&cpu_rows, 1}, aux, {}, true};
        ASSERT_TRUE(cpu->forward(request, x).ok());
        request.sequences = {&twin_rows, 1};
        ASSERT_TRUE(is_ok(on_device->forward(request, y)));
        same();
        commit_path(a, *cpu_exec, {0, 2, 3, 4});
        commit_path(b, *twin.exec, {0, 2, 3, 4});
        b.ensure_free(30);
    }
    EXPECT_TRUE(twin.twin == nullptr || twin.twin->replayed() > 0);
}

/// Observes the levels of a step if `observing`, and counts them.
class Watcher final : public LevelObserver {
  public:
    explicit Watcher(bool observing) : watching_(observing) {}
    bool observing() const override { return watching_; }
    void level_done(int, int, FunctionRef<DraftTree()>) override { ++levels; }
    int levels = 0;

  private:
    bool watching_;
};

/// What a head reports for each level of a sequence: active tokens, and the rows and bytes that it read.
struct SaidOfLevels {
    std::vector<std::vector<TokenId>> active;
    std::vector<double> rows;
    std::vector<std::uint64_t> bytes;
    bool operator==(const SaidOfLevels&) const = default;
};
SaidOfLevels said_of(const LmHead& head, const HeadState* state, int levels) {
    SaidOfLevels said;
    for (int level = 0; level <= levels; ++level) {
        std::vector<TokenId>& active = said.active.emplace_back();
        std::vector<TokenId> memory;
        const ActiveSet set = head.active_set(state, level, memory);
        for (TokenId token = 0; token < vocab; ++token)
            if (set.has(token)) active.push_back(token);
        const HeadCost cost = head.cost_at(state, 4, level);
        said.rows.push_back(cost.active_rows);
        said.bytes.push_back(cost.bytes);
    }
    return said;
}

/// Trees grown with one wait for all levels equal trees whose levels are observed: tokens, shape and
/// probabilities. The sequences share passes and end at different depths.
TEST_P(DeviceEngine, TreesGrownWithOneWaitAreThoseWatchedLevelByLevel) {
    TinyArtefacts artefacts(fixture_);
    Target& target = fixture_.target();
    const int d = target.config().hidden;
    Rng rng(17);
    int compared = 0;
    for (const std::string name : {"eagle2", "eagle3"})
        for (const std::string head_name :
             {"full", "fr-spec:v=6", "vocabtrim-t", "slimspec", "specvocab:k=5",
              "specvocab:k=6/5,share=per-row", "coral:active=4", "coral:active=3,share=per-row",
              "dynaspec:kmax=5,kmin=3", "dynaspec:kmax=4,kmin=3,share=per-row", "microspec:wmax=9",
              "microspec:wmax=9,gather=indexed"})
            for (const std::string tree :
                 {"chain=1", "chain=5", "depth=3,topk=4,nodes=12", "depth=4,topk=5,nodes=40"}) {
                Drafter& drafter = fixture_.drafter(name);
                LmHead& head = fixture_.head(head_name, drafter);
                PhaseRecorder phases;
                Watcher hosts(true), nobody(false);
                DraftContext context{*on_.exec, phases, &head, *parse_tree_spec(tree), &hosts};
                const int aux_width = static_cast<int>(drafter.aux_layers().size()) * d;
                std::vector<std::vector<TokenId>> texts(3);
                std::vector<std::vector<float>> features(3);
                std::vector<std::unique_ptr<DrafterState>> states;
                std::vector<std::unique_ptr<HeadState>> head_states;
                std::vector<DraftJob> jobs(3);
                for (int j = 0; j < 3; ++j) {
                    const auto i = static_cast<std::size_t>(j);
                    const int slots = 1 + static_cast<int>(rng.below(70));
                    for (int t = 0; t <= slots; ++t)
                        texts[i].push_back(static_cast<TokenId>(rng.below(vocab)));
                    const int width = drafter.needs_hidden() ? d : aux_width;
                    for (int v = 0; v < slots * width; ++v)
                        features[i].push_back(static_cast<float>(rng.normal()));
                    states.push_back(drafter.make_state(120));
                    jobs[i].sequence = j;
                    jobs[i].tokens = texts[i];
                    (drafter.needs_hidden() ? jobs[i].new_hidden : jobs[i].new_aux) =
                        Rows<const float>(features[i].data(), slots, width);
                    jobs[i].state = states[i].get();
                    jobs[i].tree = clip_tree(context.tree, j == 1 ? 2 : 100);
                    const std::vector<TokenId> seen = {0, 2, 3, 5, 7, 8, 11, static_cast<TokenId>(j + 9)};
                    head_states.push_back(head.begin_prompt(seen, {}));
                    jobs[i].head_state = head_states.back().get();
                }
                std::vector<HeadState*> of_jobs;
                for (const DraftJob& job : jobs) of_jobs.push_back(job.head_state);
                DraftRunner drafting(drafter);
                ASSERT_TRUE(drafting.draft(context, jobs).ok());
                EXPECT_GT(hosts.levels, 0);
                std::vector<DraftTree> expected;
                std::vector<std::vector<int>> rows;
                std::vector<SaidOfLevels> said;
                for (DraftJob& job : jobs) {
                    said.push_back(said_of(head, job.head_state, job.tree.levels()));
                    expected.push_back(std::move(job.out));
                    rows.push_back(std::move(job.rows_per_call));
                }
                context.observer = &nobody;
                std::vector<SpanEvent> spans;
                phases.drain(spans);
                for (int turn = 0; turn < 3; ++turn) {  // from the second turn on as graphs
                    const int before = on_.twin == nullptr ? 0 : on_.twin->finishes();
                    ASSERT_TRUE(drafting.draft(context, jobs).ok());
                    EXPECT_EQ(on_.twin == nullptr ? 1 : on_.twin->finishes() - before, 1);
                    for (std::size_t j = 0; j < jobs.size(); ++j) {
                        EXPECT_EQ(jobs[j].out.tokens, expected[j].tokens) << name << head_name << tree << j;
                        EXPECT_EQ(jobs[j].out.parents, expected[j].parents);
                        EXPECT_EQ(jobs[j].out.logprobs, expected[j].logprobs);
                        EXPECT_EQ(jobs[j].rows_per_call, rows[j]);
                        EXPECT_TRUE(said_of(head, of_jobs[j], jobs[j].tree.levels()) == said[j])
                            << name << head_name << tree << j;
                        compared += jobs[j].out.size();
                    }
                }
                EXPECT_EQ(nobody.levels, 0);
                spans.clear();
                phases.drain(spans);
                std::map<int, int> calls;  // by level; a call may have several spans
                for (const SpanEvent& event : spans) calls[event.level] += event.phase == Phase::head ? 1 : 0;
                for (int level = 0; level < context.tree.levels(); ++level)
                    EXPECT_TRUE(calls[level] >= 3 && calls[level] % 3 == 0) << head_name << level;
                EXPECT_EQ(calls[context.tree.levels()], 0);
                for (const SpanEvent& event : spans) EXPECT_LE(event.start_ticks, event.end_ticks);
            }
    EXPECT_GT(compared, 1000);
}

/// Choices, norms and the four best tokens of all rows.
void expect_values_of_rows(kernels::Backend& exec, const LogitsResult& answers, Rows<const float> logits,
                           std::span<const TargetSample> choices) {
    for (int r = 0; r < logits.rows; ++r) {
        const auto row = static_cast<std::size_t>(r);
        EXPECT_EQ(answers.choices[row], choices[row].token) << r;
        EXPECT_NEAR(answers.log_norm[row], choices[row].log_norm, 1e-5);
        EXPECT_EQ(answers.choice_logits[row], logits.row_data(r)[choices[row].token]);
        EXPECT_EQ(answers.min_logit[row], choices[row].min_logit);
        std::vector<std::int32_t> best(4);
        std::vector<float> values(4);
        kernels::topk(exec.pool(), logits.slice(r, 1), 4, Rows<std::int32_t>(best.data(), 1, 4),
                      Rows<float>(values.data(), 1, 4));
        for (std::size_t i = 0; i < 4; ++i) {
            EXPECT_EQ(answers.best_ids[row * 4 + i], best[i]);
            EXPECT_EQ(answers.best_logits[row * 4 + i], values[i]);
        }
    }
}

/// The results of a LogitsQuery about a tree equal values computed on the host from the logits of the same
/// forward without a query. The logits stay in device memory.
TEST_P(DeviceEngine, AnswersAreWhatTheHostFindsInTheLogits) {
    Target& target = fixture_.target();
    kernels::Backend& exec = *on_.exec;
    const std::vector<TokenId> prompt = {5, 1, 2, 3}, tree = {1, 2, 3, 4, 5};
    const std::vector<int> parents = {-1, 0, 0, 2, 3}, depths = {0, 1, 1, 2, 3};
    const AncestorMask mask = AncestorMask::from_parents(parents);
    KvCache cache = target.make_cache(40);
    ForwardOutput plain;
    ASSERT_TRUE(target.prefill(cache, prompt, {}, plain).ok());
    const SequenceTokens rows{&cache, tree, depths, &mask};
    ForwardRequest request;
    request.sequences = {&rows, 1};
    request.all_logits = true;
    const std::vector<TokenId> some = {0, 4, 7, 12};
    const std::span<const TokenId> few = some;
    const std::vector<const std::span<const TokenId>*> sets = {&few, nullptr, &few, &few};  // by depth
    DraftTree drafted = DraftTree::with_root(tree[0]);
    for (std::size_t i = 1; i < tree.size(); ++i) drafted.add(tree[i], parents[i], -0.5f);
    ASSERT_TRUE(drafted.finish().ok());
    const std::vector<std::int32_t> of = {0, 0, 0, 2, 3}, tokens = {1, 2, 3, 4, 5};
    const Sampling kinds[] = {
        {0, 1, 0, 0}, {0.7, 1, 0, 0}, {0.7, 0.6, 0, 0}, {0.7, 1, 3, 0}, {1.2, 0.8, 6, 0}};
    for (const Sampling& sampling : kinds) {
        ASSERT_TRUE(target.forward(request, plain).ok());
        std::vector<TokenPosition> places;
        for (const int depth : depths) places.push_back({3, 100 + depth});
        LogitsQuery query = make_query(*match_rule(), sampling, vocab);
        query.best = 4;
        query.drafts = query.ranks = true;
        const int before = on_.twin == nullptr ? 0 : on_.twin->finishes();
        TargetStep step;
        step.round.plan.add({5, 3, 4});
        step.round.plan.sets = sets;
        add_acceptance_inputs(*match_rule(), sampling, {&places[0], 1}, step.round.plan);
        std::vector<float> hidden(plain.hidden.size());
        ASSERT_TRUE(step.run(target, cache, drafted, query, hidden).ok());
        EXPECT_TRUE(on_.twin == nullptr || on_.twin->finishes() == before + 1);
        EXPECT_EQ(hidden, plain.hidden);
        DraftTree returned;
        ASSERT_TRUE(step.round.results.read_tree(0, returned).ok());
        EXPECT_EQ(returned.tokens, drafted.tokens);
        EXPECT_EQ(returned.parents, drafted.parents);
        EXPECT_EQ(returned.logprobs, drafted.logprobs);
        const Rows<const float> logits(plain.logits.data(), 5, vocab, target.config().vocab);
        std::vector<TargetSample> choices;
        sample_tokens(exec, logits, vocab, sampling, places, choices);
        expect_values_of_rows(exec, step.answers, logits, choices);
        for (int r = 0; r < 5; ++r) {
            const auto row = static_cast<std::size_t>(r);
            const float* parent = logits.row_data(of[row]);
            EXPECT_EQ(step.answers.logits[row], parent[tokens[row]]);
            int rank = 0;
            for (int t = 0; t < vocab; ++t)
                rank +=
                    parent[t] > parent[tokens[row]] || (parent[t] == parent[tokens[row]] && t < tokens[row]);
            EXPECT_EQ(step.answers.ranks[row], rank);
        }
        // Masses are along the accepted path.
        const std::span<const int> path = step.round.results.path(0);
        for (std::size_t i = 0; i < path.size(); ++i) {
            double mass = 0;
            for (const TokenId id : few)
                mass += static_cast<double>(
                    target_probability(choices[path[i]], sampling, logits.row_data(path[i])[id]));
            EXPECT_NEAR(static_cast<double>(step.answers.set_probs[i]), sets[i] != nullptr ? mass : 0.0,
                        1e-5);
        }
        // Rows are downloaded in full on request.
        const Rows<const float> fetched = step.logits.download(2, 2);
        for (int r = 0; r < 2; ++r)
            for (int t = 0; t < vocab; ++t) EXPECT_EQ(fetched.row_data(r)[t], logits.row_data(2 + r)[t]);
    }
}

/// Records of rounds whose logits stay in device memory are consistent, and recording does not change the
/// text.
TEST_P(DeviceEngine, RoundsAreRecordedWithoutTheLogits) {
    for (const double temperature : {0.0, 0.8}) {
        DecodeCase setting;
        setting.drafter = "eagle2";
        setting.head = "fr-spec:v=6";
        setting.temperature = temperature;
        setting.max_new = 16;
        setting.batch = 2;
        RecordList list;
        const auto recorded = fixture_.decode(setting, prompts(), &list);
        const auto silent = fixture_.decode(setting, prompts());
        ASSERT_EQ(recorded.size(), silent.size());
        for (std::size_t p = 0; p < recorded.size(); ++p) EXPECT_EQ(recorded[p].tokens, silent[p].tokens);
        int drafts = 0;
        for (const StepRecord& step : RecordList::of<StepRecord>(list.take()))
            for (const RoundRecord& round : step.rounds) {
                std::map<int, double> seen;
                for (const NodeRow& node : round.nodes) {
                    if (node.parent < 0) continue;
                    ++drafts;
                    const NodeRow& parent = round.nodes[node.parent];
                    EXPECT_TRUE(*node.target_prob >= 0 && *node.target_prob <= 1);
                    seen[node.parent] += static_cast<double>(*node.target_prob);
                    if (node.token_id == parent.target_token_id) {
                        EXPECT_NEAR(*node.target_prob, *parent.target_token_prob, 1e-5);
                        if (temperature == 0) {
                            EXPECT_EQ(node.target_rank, 0);
                        }
                    } else if (temperature == 0) {
                        EXPECT_GT(node.target_rank, 0);
                    }
                    if (node.accepted) {
                        EXPECT_EQ(node.token_id, parent.target_token_id);
                    }
                }
                for (const auto& [parent, sum] : seen) EXPECT_LE(sum, 1.0 + 1e-5);
                for (const NodeTopRow& top : round.tops) {
                    const NodeRow& node = round.nodes[top.node];
                    if (temperature == 0 && top.rank == 0) {
                        EXPECT_EQ(top.token_id, node.target_token_id);
                    }
                    for (const NodeRow& child : round.nodes)
                        if (child.parent == top.node && child.token_id == top.token_id) {
                            EXPECT_EQ(child.target_rank, top.rank);
                            EXPECT_NEAR(*child.target_prob, top.target_prob, 1e-6);
                        }
                }
                for (const HeadEvalRow& row : round.head_evals) {
                    ASSERT_TRUE(row.covered_mass.has_value());
                    EXPECT_TRUE(*row.covered_mass > 0 && *row.covered_mass <= 1);
                }
            }
        EXPECT_GT(drafts, 100);
    }
}

class DeviceTargets : public ::testing::TestWithParam<std::string> {};

TEST_P(DeviceTargets, LogitsAreTheCpusForEveryArchitecture) {
    TwinExec on(GetParam());
    if (!on.why_not.empty()) GTEST_SKIP() << on.why_not;
    for (const char* name : {"llama", "qwen2", "qwen3", "olmo2"}) {
        SCOPED_TRACE(name);
        // On a GPU machine, the sources may be in another folder than at build time.
        const char* moved = std::getenv("DRAFTSCOPE_SOURCE");
        const std::string folder =
            std::string(moved != nullptr ? moved : DS_SOURCE_DIR) + "/tests/golden/models/" + name;
        auto first = open_hf_folder(folder), second = open_hf_folder(folder);
        ASSERT_TRUE(first.ok() && second.ok());
        expect_same_logits(on, std::move(*first), std::move(*second), 0.03);
    }
    // Attention heads that share no keys, and sizes that are not multiples of 64.
    TinyModelOptions odd;
    odd.hidden = 40;
    odd.heads = odd.kv_heads = 5;
    odd.head_dim = 8;
    odd.ffn = 72;
    odd.vocab = 101;
    expect_same_logits(on, make_tiny_model(5, odd), make_tiny_model(5, odd), 0.03);
}

TEST_P(DeviceTargets, AChunkedPromptGivesWhatItsPartsGive) {
    TwinExec on(GetParam());
    if (!on.why_not.empty()) GTEST_SKIP() << on.why_not;
    TinyModelOptions options;
    options.context = 1024;
    const auto target =
        DecodeFixture::build(make_tiny_model(5, options), kernels::Precision::bf16, on.exec.get());
    const int length = kernels::BackendLimits().prefill_rows + 188, first = 200, d = target->config().hidden;
    std::vector<TokenId> prompt;
    Rng rng(9);
    for (int i = 0; i < length; ++i)
        prompt.push_back(static_cast<TokenId>(rng.below(static_cast<unsigned>(options.vocab))));
    const std::span<const TokenId> tokens(prompt);
    KvCache whole = target->make_cache(length), parts = target->make_cache(length);
    ForwardOutput all, begin, end;
    ASSERT_TRUE(target->prefill(whole, tokens, {}, all).ok());
    ASSERT_TRUE(target->prefill(parts, tokens.first(first), {}, begin).ok());
    ASSERT_TRUE(target->prefill(parts, tokens.subspan(first), {}, end).ok());
    EXPECT_EQ(whole.length(), length);
    EXPECT_EQ(static_cast<int>(all.hidden.size()), length * d);
    begin.hidden.insert(begin.hidden.end(), end.hidden.begin(), end.hidden.end());
    EXPECT_EQ(all.hidden, begin.hidden);
    EXPECT_EQ(all.logits, end.logits);
}

TEST(DeviceTarget, SaysWhenMemoryIsOut) {
    auto small = std::make_unique<TwinDevice>(std::size_t{1} << 16);
    const auto exec = std::unique_ptr<kernels::Backend>(std::move(small));
    const auto target = Target::build(tiny(), *exec, kernels::Precision::bf16);
    ASSERT_FALSE(target.ok());
    EXPECT_NE(target.error().message.find("memory"), std::string::npos) << target.error().message;
}

TEST(DeviceMatrix, OpsOfMatricesAreTheCpus) {
    TwinExec on;
    const auto cpu = kernels::make_cpu_backend(1);
    const int n = 37, k = 70;
    const auto source = [](int row, float* out) {
        Rng rng(4, static_cast<std::uint64_t>(row));
        for (int i = 0; i < k; ++i) out[i] = static_cast<float>(rng.normal());
    };
    const auto here = kernels::Matrix::pack(*cpu, kernels::Precision::bf16, n, k, source);
    const auto on_device = kernels::Matrix::pack(*on.exec, kernels::Precision::bf16, n, k, source);
    std::vector<float> a(k), b(k);
    here.unpack_row(n - 1, a);
    on_device.unpack_row(n - 1, b);
    EXPECT_EQ(a, b);
    const std::vector<TokenId> ids = {36, 0, 7, 7};
    on_device.gather_rows(on.exec->pool(), ids).unpack_row(2, b);
    here.unpack_row(7, a);
    EXPECT_EQ(a, b);
}

INSTANTIATE_TEST_SUITE_P(Devices, DeviceEngine, engine_device_kinds(), kind_of);
INSTANTIATE_TEST_SUITE_P(Devices, DeviceTargets, engine_device_kinds(), kind_of);

}  // namespace
}  // namespace draftscope::testing
