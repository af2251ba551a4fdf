#include "engine/replay/replay.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "base/rng.h"
#include "engine/draft/registry.h"
#include "engine/recording/recorded_target.h"
#include "engine/replay/replay_stats.h"
#include "tests/support/head_specs.h"
#include "tests/support/replay_fixture.h"
#include "tests/support/results.h"
#include "tests/support/tiny_artefacts.h"
#include "tests/support/tiny_checkpoint.h"
#include "tests/support/tiny_decode.h"

/// Replayed rounds equal those of the live run one by one. Every drafter and head of the registries runs on a
/// small random model, greedy and sampled.
namespace draftscope::testing {
namespace {

using ::testing::HasSubstr;

/// Also has short prompts for the lanes.
std::vector<std::vector<TokenId>> prompts() {
    std::vector<std::vector<TokenId>> all = varied_prompts();
    all.insert(all.end(), {{1, 2, 3}, {7, 7}});
    return all;
}

/// Specs of heads whose defaults replay too little. Every other head of the registry replays its default.
const std::vector<std::string> head_variants = {
    "full",
    "full:softmax=separate",
    "fr-spec:v=3",
    "fr-spec:v=6,eos=yes",
    "pa-fr:v=10/5",
    "vocabtrim:v=6",
    "coral:active=2,eos=yes",
    "dynaspec:kmax=3,kmin=1,decay=0.5",
    "dynaspec:kmax=2,share=per-row",
    "specvocab:k=4",
    "specvocab:k=6/3/1,share=per-row",
    "microspec:wmax=5,branch=path",
    "microspec:wmax=9,source=ctx,kpre=1,gather=indexed",
    "microspec:wmax=6,source=ext,kver=2,gather=sync,branch=path,stream=all",
    "microspec:wmax=20,branch=path,prompt=last,bonus=yes,eos=yes"};

std::vector<const DrafterInfo*> drafters_with_head() {
    std::vector<const DrafterInfo*> drafters;
    for (const DrafterInfo& info : drafter_registry())
        if (info.uses_head) drafters.push_back(&info);
    return drafters;
}

/// Writes LM head and embedding of a tiny model to a recording's folder.
void write_weights(const std::string& folder, const ModelFile& model) {
    std::vector<NamedTensor> tensors;
    for (const auto& [from, to] : {std::pair("token_embd.weight", "model.embed_tokens.weight"),
                                   std::pair("output.weight", "lm_head.weight")}) {
        const TensorInfo* info = model.weights->find(from);
        ASSERT_NE(info, nullptr);
        NamedTensor tensor{to, info->shape, {}};
        tensor.values.resize(info->rows() * info->cols());
        for (std::int64_t r = 0; r < info->rows(); ++r)
            model.weights->read_row(*info, r, tensor.values.data() + r * info->cols());
        tensors.push_back(std::move(tensor));
    }
    ASSERT_TRUE(write_safetensors(folder + "/weights.safetensors", tensors).ok());
}

class Replay : public ::testing::Test, protected TinyDecode {
  protected:
    explicit Replay(int context = 256)
        : TinyDecode(few_token_options(context)), model_(make_tiny_model(21, few_token_options(context))) {}

    /// A target with only the recording's own LM head and embedding.
    const Target& recorded_target(const DecodeRecording& recording) {
        if (recorded_target_ == nullptr) {
            write_weights(recording.folder(), model_);
            auto opened = require(DecodeRecording::open(recording.folder()));
            auto made = make_recorded_target(*opened, "", fixture_.exec(1), kernels::Precision::f32);
            EXPECT_TRUE(is_ok(made));
            recorded_target_ = std::move(made).value();
        }
        return *recorded_target_;
    }

    void expect_same(const DecodeCase& setting, const DecodeRecording& recording,
                     const std::vector<std::vector<TokenId>>& list, ReplayOptions options = {}) {
        Drafter& drafter = fixture_.drafter(setting.drafter);
        LmHead* head = drafter.uses_head() ? &fixture_.head(setting.head, drafter) : nullptr;
        const auto live = live_rounds(fixture_, setting, list);
        const auto found =
            replayed_rounds(fixture_, recording, recorded_target(recording), drafter, head, setting, options);
        ASSERT_EQ(found.size(), live.size());
        for (std::size_t p = 0; p < live.size(); ++p) {
            ASSERT_EQ(round_texts(found[p]), round_texts(live[p])) << to_text(setting) << " prompt " << p;
            for (std::size_t i = 0; i < live[p].size(); ++i) {
                EXPECT_EQ(found[p][i].active_rows, live[p][i].active_rows) << to_text(setting);
                EXPECT_EQ(found[p][i].row_tokens, live[p][i].row_tokens) << to_text(setting);
                EXPECT_EQ(found[p][i].bytes, live[p][i].bytes) << to_text(setting);
                if (!found[p][i].covered_mass || !live[p][i].covered_mass) continue;
                // The recorded hidden states are rounded to bf16.
                EXPECT_NEAR(*found[p][i].covered_mass, *live[p][i].covered_mass, 0.02) << to_text(setting);
                ++masses_;
            }
            for (const HeadRound& round : live[p]) {
                ++rounds_;
                accepted_ += round.accepted;
                uncovered_ += round.committed - round.covered;
            }
        }
    }

    ModelFile model_;
    TinyArtefacts artefacts_{fixture_};
    ScratchFolder scratch_;
    std::unique_ptr<Target> recorded_target_;
    std::int64_t rounds_ = 0, accepted_ = 0, uncovered_ = 0, masses_ = 0;
};

TEST_F(Replay, EveryHeadAndDrafterMatchesTheLiveRun) {
    for (const double temperature : {0.0, 1.0}) {
        DecodeCase setting{.temperature = temperature, .max_new = 24};
        const std::span<const int> layers = fixture_.drafter("eagle3").aux_layers();
        const auto recording = record(fixture_, setting, prompts(), {layers.begin(), layers.end()},
                                      scratch_.file(temperature > 0 ? "sampled" : "greedy"));
        ASSERT_NE(recording, nullptr);
        for (const std::string tree : {"chain=3", "depth=2,topk=3,nodes=8",
                                       "depth=3,topk=4,nodes=12,order=fr", "choices:vicuna_7b_stage2"}) {
            setting.tree = tree;
            for (const DrafterInfo& drafter : drafter_registry()) {
                if (drafter.uses_head) continue;
                setting.drafter = drafter.id;
                setting.head = "full";
                expect_same(setting, *recording, prompts());
            }
            for (const DrafterInfo* drafter : drafters_with_head()) {
                setting.drafter = drafter->id;
                // All drafters call a head in the same way, so one of its specs and two of the trees are
                // enough.
                const bool all = drafter == drafters_with_head().front();
                if (!all && (tree == "depth=2,topk=3,nodes=8" || tree.starts_with("choices"))) continue;
                for (const HeadInfo& info : head_registry())
                    for (const std::string& head : specs_of_head(info, head_variants)) {
                        if (!check_head(*drafter, info).ok()) break;
                        setting.head = head;
                        expect_same(setting, *recording, prompts());
                        if (!all) break;
                    }
            }
        }
    }
    // If nothing had been drafted or accepted, equality would prove nothing.
    EXPECT_GT(accepted_, rounds_ / 8);
    EXPECT_GT(uncovered_, 100);
    EXPECT_GT(masses_, 1000);
}

/// A recording may have more layers than the drafter reads, in any order.
TEST_F(Replay, LayersAreTakenFromThoseRecorded) {
    DecodeCase setting{.max_new = 24};
    setting.drafter = "eagle3";
    const std::span<const int> layers = fixture_.drafter("eagle3").aux_layers();
    std::vector<int> recorded = {fixture_.target().config().layers};
    recorded.insert(recorded.end(), layers.rbegin(), layers.rend());
    recorded.push_back(0);
    const auto recording = record(fixture_, setting, prompts(), recorded, scratch_.file("layers"));
    ASSERT_NE(recording, nullptr);
    for (const std::string tree : {"chain=3", "depth=2,topk=3,nodes=8"}) {
        setting.tree = tree;
        expect_same(setting, *recording, prompts());
    }
    const auto fewer = record(fixture_, setting, prompts(), {layers[0]}, scratch_.file("fewer"));
    ASSERT_NE(fewer, nullptr);
    EXPECT_FALSE(check_recording_features(*fewer, fixture_.drafter("eagle3"), "eagle3").ok());
}

/// The policies see the same rounds live and replayed, and rounds without drafts lose no slot.
TEST_F(Replay, AdaptiveLengthsMatchTheLiveRun) {
    for (const double temperature : {0.0, 1.0}) {
        DecodeCase setting{.temperature = temperature, .max_new = 40};
        const std::span<const int> layers = fixture_.drafter("eagle3").aux_layers();
        const auto recording = record(fixture_, setting, prompts(), {layers.begin(), layers.end()},
                                      scratch_.file(temperature > 0 ? "adaptive1" : "adaptive0"));
        ASSERT_NE(recording, nullptr);
        for (const LengthPolicyInfo& policy : length_policies()) {
            setting.tree = fmt::format("adaptive:{},max=5", policy.id);
            if (policy.id == "exllama") setting.tree += ",skip=0.9";
            if (policy.limits != nullptr) setting.tree += policy.id == "cumulative" ? ",p=0.001" : ",p=0.02";
            for (const DrafterInfo& drafter : drafter_registry()) {
                if (drafter.id == "none") continue;
                setting.drafter = drafter.id;
                setting.head = "full";
                expect_same(setting, *recording, prompts());
            }
        }
    }
    EXPECT_GT(accepted_, 100);
}

/// Each round is drafted by the same one of two drafters, and a policy sees the same rounds.
TEST_F(Replay, PairsMatchTheLiveRun) {
    std::map<std::string_view, int> rounds;
    for (const double temperature : {0.0, 1.0}) {
        DecodeCase setting{.temperature = temperature, .max_new = 60};
        const std::span<const int> layers = fixture_.drafter("eagle3").aux_layers();
        const auto recording = record(fixture_, setting, prompts(), {layers.begin(), layers.end()},
                                      scratch_.file(temperature > 0 ? "pairs1" : "pairs0"));
        ASSERT_NE(recording, nullptr);
        for (const std::string drafter :
             {"pair:suffix+eagle3", "pair:ngram:min=2,tokens=6+eagle2", "pair:suffix+draft-model"})
            for (const std::string tree :
                 {"chain=1", "depth=1,topk=2,nodes=5", "adaptive:exllama,max=4,skip=0.9"}) {
                setting.drafter = drafter;
                setting.tree = tree;
                expect_same(setting, *recording, prompts());
                for (const auto& prompt : live_rounds(fixture_, setting, prompts()))
                    for (const HeadRound& round : prompt) ++rounds[round.drafter];
            }
    }
    for (const std::string_view drafter : {"suffix", "ngram", "eagle2", "eagle3", "draft-model"})
        EXPECT_GT(rounds[drafter], 20) << drafter;
    EXPECT_EQ(rounds[""], 0);
}

TEST_F(Replay, AdaptiveLengthsInABatchGiveThePlainText) {
    DecodeCase setting{.drafter = "none", .tree = "chain=1", .max_new = 40};
    const auto plain = fixture_.decode(setting, prompts());
    setting.batch = 3;
    std::int64_t rounds_without_drafts = 0;
    for (const LengthPolicyInfo& policy : length_policies())
        for (const std::string drafter : {"eagle3", "hydra", "ngram"}) {
            setting.drafter = drafter;
            setting.tree = fmt::format("adaptive:{},max=5", policy.id);
            if (policy.id == "exllama") setting.tree += ",skip=3";
            if (policy.limits != nullptr) setting.tree += policy.id == "cumulative" ? ",p=0.001" : ",p=0.02";
            const auto found = fixture_.decode(setting, prompts());
            ASSERT_EQ(found.size(), plain.size());
            for (std::size_t p = 0; p < found.size(); ++p) {
                ASSERT_EQ(found[p].tokens, plain[p].tokens) << to_text(setting) << " prompt " << p;
                if (drafter == "eagle3" && policy.id == "exllama")
                    rounds_without_drafts += 5 * found[p].rounds - found[p].draft_tokens;
            }
        }
    EXPECT_GT(rounds_without_drafts, 0);
}

/// Every drafter with every head, in batches, with dynamic and fixed trees, gives the text of plain decoding.
TEST_F(Replay, EveryHeadAndDrafterInABatchGivesThePlainText) {
    std::int64_t accepted = 0;
    for (const double temperature : {0.0, 1.0}) {
        DecodeCase setting{.drafter = "none", .tree = "chain=1", .temperature = temperature, .max_new = 24};
        const auto plain = fixture_.decode(setting, prompts());
        setting.batch = 3;
        setting.threads = 2;
        for (const DrafterInfo* drafter : drafters_with_head()) {
            setting.drafter = drafter->id;
            setting.tree = drafter == drafters_with_head().back() ? "chain=3" : "depth=3,topk=4,nodes=12";
            for (const std::string& head : specs_of_heads(head_variants)) {
                if (!check_head(*drafter, *find_head(require(parse_head_spec(head)).id)).ok()) continue;
                setting.head = head;
                const auto found = fixture_.decode(setting, prompts());
                ASSERT_EQ(found.size(), plain.size());
                for (std::size_t p = 0; p < found.size(); ++p) {
                    ASSERT_EQ(found[p].tokens, plain[p].tokens) << to_text(setting) << " prompt " << p;
                    accepted += found[p].accepted;
                }
            }
        }
    }
    EXPECT_GT(accepted, 1000);
}

/// The overlap is measured along chains of its own, changes no round, and does not depend on the batch.
TEST_F(Replay, MeasuresTheOverlapOfDraftsAndTarget) {
    DecodeCase setting{.tree = "chain=3", .temperature = 1, .max_new = 24};
    const std::span<const int> layers = fixture_.drafter("eagle3").aux_layers();
    const auto recording =
        record(fixture_, setting, prompts(), {layers.begin(), layers.end()}, scratch_.file("t"));
    ASSERT_NE(recording, nullptr);
    for (const std::string name : {"eagle2", "medusa"}) {
        Drafter& drafter = fixture_.drafter(name);
        std::vector<ReplayHead> heads;
        for (const std::string head : {"full", "fr-spec:v=3", "specvocab:k=4", "pa-fr:v=10/5",
                                       "coral:active=2", "microspec:wmax=6,branch=path"})
            heads.push_back({&fixture_.head(head, drafter)});
        ReplayOptions options;
        options.tree = parse_tree_spec(setting.tree).value();
        const auto run = [&](int batch, bool overlap) {
            options.batch = batch;
            options.overlap = overlap;
            return require(
                replay(*recording, recorded_target(*recording), drafter, heads, fixture_.exec(1), options));
        };
        const ReplayResult alone = run(1, true), together = run(16, true), without = run(16, false);
        for (std::size_t h = 0; h < heads.size(); ++h) {
            ReplayStats stats, batched;
            std::int64_t chains = 0;
            for (std::size_t p = 0; p < prompts().size(); ++p) {
                EXPECT_EQ(together.rounds[h][p], without.rounds[h][p]) << name << h;
                EXPECT_TRUE(without.overlaps[h][p].empty());
                stats.add(alone.overlaps[h][p]);
                batched.add(together.overlaps[h][p]);
                for (const HeadRound& round : alone.rounds[h][p])
                    chains += round.tree_nodes > 1 && round.committed > 0 ? 1 : 0;
            }
            ASSERT_TRUE(stats.alpha().has_value());
            EXPECT_GT(*stats.alpha(), 0) << name << h;
            EXPECT_LE(*stats.alpha(), 1) << name << h;
            EXPECT_NEAR(*stats.alpha(), *batched.alpha(), 1e-12) << name << h;
            // MicroSpec may have called its head and found no token to draft.
            if (h + 1 < heads.size())
                EXPECT_EQ(stats.overlaps[0].positions, chains) << name << h;
            else
                EXPECT_GE(stats.overlaps[0].positions, chains) << name;
            EXPECT_LE(stats.overlaps.size(), 3u);
        }
    }
}

/// Heads of one replay share the drafter's slots of a text, but each has the rounds of a separate replay.
TEST_F(Replay, HeadsOfOneTextAreIndependent) {
    DecodeCase setting{.tree = "depth=3,topk=4,nodes=12", .max_new = 24};
    const std::span<const int> layers = fixture_.drafter("eagle3").aux_layers();
    const auto recording =
        record(fixture_, setting, prompts(), {layers.begin(), layers.end()}, scratch_.file("t"));
    ASSERT_NE(recording, nullptr);
    for (const std::string name : {"eagle2", "eagle3", "medusa"}) {
        Drafter& drafter = fixture_.drafter(name);
        setting.drafter = name;
        ReplayOptions options;
        options.tree = parse_tree_spec(setting.tree).value();
        std::vector<ReplayHead> heads;
        for (const std::string head : {"microspec:wmax=6,branch=path", "full", "slimspec", "full"})
            heads.push_back({&fixture_.head(head, drafter)});
        const auto together = require(
            replay(*recording, recorded_target(*recording), drafter, heads, fixture_.exec(1), options));
        EXPECT_NE(together.rounds[0], together.rounds[1]);
        for (std::size_t h = 0; h < heads.size(); ++h) {
            const auto alone = require(replay(*recording, recorded_target(*recording), drafter,
                                              {&heads[h], 1}, fixture_.exec(1), options));
            EXPECT_EQ(together.rounds[h], alone.rounds[0]) << name << ", head " << h;
        }
    }
}

/// The oracle drafts from the target's m best tokens. With one it is always right; with all it is the full
/// head.
TEST_F(Replay, OracleDraftsTheText) {
    DecodeCase setting{.tree = "chain=3", .max_new = 24};
    const auto recording = record(fixture_, setting, prompts(), {}, scratch_.file("t"));
    ASSERT_NE(recording, nullptr);
    Drafter& drafter = fixture_.drafter("eagle2");
    const auto rounds_of = [&](const std::string& head) {
        setting.head = head;
        return replayed_rounds(fixture_, *recording, recorded_target(*recording), drafter,
                               &fixture_.head(head, drafter), setting);
    };
    for (const auto& rounds : rounds_of("oracle:m=1"))
        for (const HeadRound& round : rounds) EXPECT_TRUE(round.accepted == 3 || round.clipped);
    const auto all = rounds_of("oracle:m=32"), full = rounds_of("full");
    ASSERT_EQ(all.size(), full.size());
    for (std::size_t p = 0; p < full.size(); ++p) {
        ASSERT_EQ(all[p].size(), full[p].size());
        for (std::size_t i = 0; i < full[p].size(); ++i) {
            // After the end of the text it drafts nothing, which affects no round.
            EXPECT_EQ(all[p][i].prefix, full[p][i].prefix);
            EXPECT_EQ(all[p][i].accepted, full[p][i].accepted);
            EXPECT_EQ(all[p][i].committed, full[p][i].committed);
            EXPECT_EQ(all[p][i].covered, all[p][i].committed);
        }
    }
}

TEST_F(Replay, NoResultDependsOnLanesOrThreads) {
    DecodeCase setting{.head = "microspec:wmax=6,branch=path", .temperature = 1.0, .max_new = 30};
    const auto recording = record(fixture_, setting, prompts(), {}, scratch_.file("t"), 1);
    ASSERT_NE(recording, nullptr);
    for (const int threads : {1, 3})
        for (const int batch : {1, 2, 16}) {
            setting.threads = threads;
            ReplayOptions options;
            options.batch = batch;
            expect_same(setting, *recording, prompts(), options);
        }
}

TEST_F(Replay, TheRecordingDoesNotDependOnTheBatch) {
    DecodeCase setting{.temperature = 0.9, .max_new = 12};
    const auto alone = record(fixture_, setting, prompts(), {0, 1}, scratch_.file("a"), 1);
    const auto together = record(fixture_, setting, prompts(), {0, 1}, scratch_.file("b"), 4);
    ASSERT_NE(alone, nullptr);
    ASSERT_NE(together, nullptr);
    const auto outcomes = fixture_.decode(setting, prompts());
    ASSERT_EQ(alone->prompts().size(), prompts().size());
    std::vector<float> a(128), b(128);
    for (std::size_t p = 0; p < prompts().size(); ++p) {
        const RecordedPrompt &one = alone->prompts()[p], &other = together->prompts()[p];
        std::vector<TokenId> text = prompts()[p];
        text.insert(text.end(), outcomes[p].tokens.begin(), outcomes[p].tokens.end());
        EXPECT_EQ(alone->tokens(one), text);
        EXPECT_EQ(together->tokens(other), text);
        EXPECT_EQ(one.finish, outcomes[p].finish);
        for (int r = 0; r < one.rows(); ++r) {
            const Rows<float> ra(a.data(), 1, 128), rb(b.data(), 1, 128);
            ASSERT_TRUE(alone->aux(one.first_row + r, ra).ok());
            ASSERT_TRUE(together->aux(other.first_row + r, rb).ok());
            EXPECT_EQ(a, b);
            EXPECT_EQ(alone->best(one.first_row + r, recording_topk),
                      together->best(other.first_row + r, recording_topk));
        }
    }
}

TEST_F(Replay, RowsMatchTheTarget) {
    DecodeCase setting;
    setting.max_new = 12;
    const auto recording = record(fixture_, setting, prompts(), {}, scratch_.file("t"));
    ASSERT_NE(recording, nullptr);
    for (const RecordedPrompt& prompt : recording->prompts()) {
        const auto tokens = recording->tokens(prompt);
        // In greedy decoding, row i's best token is token i + 1 of the text.
        for (int i = prompt.prompt_tokens - 1; i + 1 < prompt.rows(); ++i) {
            EXPECT_EQ(recording->best(prompt.first_row + i, 1).front(),
                      tokens[static_cast<std::size_t>(i) + 1]);
            double sum = 0;
            float last = 0;
            for (const float value : recording->best_logprobs(prompt.first_row + i, few_tokens)) {
                EXPECT_LE(value, last);
                sum += std::exp(static_cast<double>(value));
                last = value;
            }
            EXPECT_NEAR(sum, 1.0, 0.01);  // f16 log-probabilities of the complete vocabulary
        }
    }
}

TEST_F(Replay, ShorterTextsAreTheFirstPartOfLongerOnes) {
    DecodeCase setting;
    setting.max_new = 40;
    const auto recording = record(fixture_, setting, prompts(), {}, scratch_.file("t"));
    ASSERT_NE(recording, nullptr);
    for (const int max_new : {1, 2, 7, 23}) {
        setting.max_new = max_new;
        ReplayOptions options;
        options.max_new = max_new;
        expect_same(setting, *recording, prompts(), options);
    }
}

TEST_F(Replay, ACancelledTextKeepsDecidedRounds) {
    DecodeCase setting;
    setting.max_new = 40;
    const ScratchFolder& folder = scratch_;
    RecordingInfo info;
    info.target = describe_target(fixture_.target());
    info.max_new = setting.max_new;
    auto writer = require(RecordingWriter::create(folder.file("t"), info, false));
    const auto list = prompts();
    TokenFeed feed(list);
    int calls = 0;
    RecordOptions options;
    options.batch = 2;
    options.cancelled = [&] { return ++calls > 25; };
    ASSERT_TRUE(record_decode(fixture_.target(), fixture_.exec(1), feed, options, *writer).ok());
    EXPECT_FALSE(writer->info().complete);
    ASSERT_TRUE(writer->finish().ok());
    const auto recording = require(DecodeRecording::open(folder.file("t")));
    EXPECT_FALSE(recording->info().complete);
    ASSERT_EQ(recording->prompts().size(), 2u);
    const auto live = live_rounds(fixture_, setting, list);
    Drafter& drafter = fixture_.drafter("eagle2");
    const auto found = replayed_rounds(fixture_, *recording, recorded_target(*recording), drafter,
                                       &fixture_.head("full", drafter), setting);
    for (std::size_t p = 0; p < 2; ++p) {
        EXPECT_EQ(recording->prompts()[p].finish, Finish::cancelled);
        ASSERT_LT(found[p].size(), live[p].size());
        ASSERT_GT(found[p].size(), 2u);
        const std::vector<HeadRound> first(live[p].begin(),
                                           live[p].begin() + static_cast<std::ptrdiff_t>(found[p].size()));
        EXPECT_EQ(round_texts(found[p]), round_texts(first));
    }
}

TEST_F(Replay, AnotherModelsHeadIsDetected) {
    DecodeCase setting;
    setting.max_new = 40;
    const auto recording = record(fixture_, setting, prompts(), {}, scratch_.file("t"));
    ASSERT_NE(recording, nullptr);
    write_weights(recording->folder(), make_tiny_model(99, few_token_options()));
    const auto opened = require(DecodeRecording::open(recording->folder()));
    const auto other = require(make_recorded_target(*opened, "", fixture_.exec(1), kernels::Precision::f32));
    Drafter& drafter = fixture_.drafter("eagle2");
    const ReplayHead head{&fixture_.head("full", drafter), false};
    ReplayOptions options;
    options.tree = {2, 2, 5};
    const auto result = replay(*opened, *other, drafter, {&head, 1}, fixture_.exec(1), options);
    ASSERT_FALSE(result.ok());
    EXPECT_EQ(result.error().kind, ErrorKind::bad_input);
    EXPECT_THAT(result.error().message, HasSubstr("not the LM head of the recorded target"));

    TinyModelOptions wider = few_token_options();
    wider.vocab = 17;
    write_weights(recording->folder(), make_tiny_model(21, wider));
    const auto misfit = make_recorded_target(**DecodeRecording::open(recording->folder()), "",
                                             fixture_.exec(1), kernels::Precision::f32);
    ASSERT_FALSE(misfit.ok());
    EXPECT_THAT(misfit.error().message, HasSubstr("17 x 64"));
}

class NearTheEnd : public Replay {
  protected:
    NearTheEnd() : Replay(48) {}
};

/// Texts that fill the context. Live and replayed trees are clipped by the same rule.
TEST_F(NearTheEnd, TreesAreClippedAlike) {
    std::vector<std::vector<TokenId>> list = {{5}, {1, 2, 3}};
    for (int i = 0; i < 40; ++i) list[0].push_back(i % few_tokens);
    DecodeCase setting;
    setting.max_new = 200;
    const auto recording = record(fixture_, setting, list, {}, scratch_.file("t"));
    ASSERT_NE(recording, nullptr);
    EXPECT_EQ(recording->prompts()[0].finish, Finish::context);
    for (const std::string head : {"full", "microspec:wmax=6,branch=path"})
        for (const std::string tree : {"chain=6", "depth=5,topk=4,nodes=20", "choices:mc_sim_7b_63"}) {
            setting.head = head;
            setting.tree = tree;
            expect_same(setting, *recording, list);
        }
}

TEST(ReplayStats, AddsRounds) {
    ReplayStats tally;
    HeadRound round{
        .tree_nodes = 5, .tree_depth = 3, .accepted = 2, .committed = 3, .covered = 2, .covered_mass = 0.5};
    tally.add(round);
    round.accepted = 0;
    round.committed = 1;
    round.covered = 1;
    round.covered_mass.reset();
    tally.add(round);
    round.accepted = 1;
    round.committed = 1;
    round.clipped = true;
    tally.add(round);
    EXPECT_EQ(tally.rounds, 3);
    EXPECT_EQ(tally.draft_tokens, 12);
    EXPECT_DOUBLE_EQ(*tally.tau(), 5.0 / 3);
    EXPECT_DOUBLE_EQ(*tally.coverage(), 4.0 / 5);
    EXPECT_DOUBLE_EQ(*tally.covered_mass(), 0.5);
    EXPECT_EQ(tally.histogram, (std::vector<std::int64_t>{1, 1, 1}));
    // The clipped round does not count by depth.
    ASSERT_EQ(tally.depths.size(), 3u);
    EXPECT_EQ(tally.depths[0].reached, 2);
    EXPECT_EQ(tally.depths[2].reached, 1);
    EXPECT_EQ(tally.per_depth(), (std::vector<double>{0.5, 1.0, 0.0}));
    EXPECT_FALSE(ReplayStats().tau());
}

}  // namespace
}  // namespace draftscope::testing
