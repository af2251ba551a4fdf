#include "engine/fit/fit_head.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <sstream>

#include "base/rng.h"
#include "engine/heads/artefact.h"
#include "tests/support/decode_fixture.h"
#include "tests/support/results.h"
#include "tests/support/tiny_drafter.h"
#include "tests/support/tiny_model.h"

namespace draftscope::fit {
namespace {

using testing::DecodeFixture;
using testing::TinyEagle2;
using testing::TinyModelOptions;

TinyModelOptions small_model() {
    TinyModelOptions options{.vocab = 160, .hidden = 32, .head_dim = 8, .ffn = 48};
    return options;
}

/// Returns the start of a training as its result. Routers start at random.
Result<Trained> keep_start(const TrainingData& data) {
    Trained trained;
    trained.notes["steps"] = 7;
    for (const TensorToSave& tensor : data.tensors()) {
        if (tensor.name != "up" && !tensor.name.starts_with("down.")) continue;
        Dense values(static_cast<int>(tensor.shape[0]), static_cast<int>(tensor.shape[1]));
        std::memcpy(values.data.data(), tensor.data.data(), tensor.data.size());
        trained.parameters[tensor.name] = std::move(values);
    }
    if (data.settings.at("kind") != "router") return trained;
    const int width = std::stoi(data.settings.at("width")), groups = std::stoi(data.settings.at("groups"));
    int inputs = 0;
    for (const TensorToSave& tensor : data.tensors())
        if (tensor.name.starts_with("inputs.")) inputs += static_cast<int>(tensor.shape[1]);
    const auto draw = [](int rows, int cols) {
        Dense values(rows, cols);
        Rng rng(5);
        for (float& v : values.data) v = static_cast<float>(rng.normal());
        return values;
    };
    trained.parameters["router.in.weight"] = draw(width, inputs);
    trained.parameters["router.in.bias"] = draw(1, width);
    trained.parameters["router.out.weight"] = draw(groups, width);
    trained.parameters["router.out.bias"] = draw(1, groups);
    return trained;
}

/// Texts in memory with the target's features of every token.
class TextList final : public TextSource {
  public:
    explicit TextList(std::vector<FitText> texts) : texts_(std::move(texts)) {}
    int texts() const override { return static_cast<int>(texts_.size()); }
    int generated(int text) const override {
        const FitText& from = texts_[text];
        return static_cast<int>(from.tokens.size()) - from.prompt_tokens;
    }
    Result<FitText> load(int text) override { return texts_[text]; }
    const FitText& text(int index) const { return texts_[index]; }

  private:
    std::vector<FitText> texts_;
};

class FitHead : public ::testing::Test {
  protected:
    FitHead()
        : target_(DecodeFixture::build(testing::make_tiny_model(21, small_model()), kernels::Precision::f32)),
          eagle_(target_->config(), 5) {
        drafter_ = make_drafter("eagle2:" + eagle_.folder(), "", *target_, *exec_).value();
        weights_.lm_head = &target_->lm_head();
        weights_.vocab = target_->config().vocab;
        weights_.hidden = target_->config().hidden;
        weights_.always_active = {2};
        weights_.target = "tiny";
        weights_.drafter = "eagle2";
        std::vector<FitText> texts;
        for (int t = 0; t < 12; ++t) texts.push_back(make_text(t));
        texts_ = std::make_unique<TextList>(std::move(texts));
    }

    /// A prompt and the target's own greedy answer, with features from one pass over the complete text.
    FitText make_text(int number) {
        FitText text;
        Rng rng(77, static_cast<std::uint64_t>(number));
        text.prompt_tokens = 4 + number % 3;
        for (int i = 0; i < text.prompt_tokens; ++i)
            text.tokens.push_back(static_cast<TokenId>(rng.below(160)));
        ForwardOutput out;
        for (int i = 0; i < 30; ++i) {
            KvCache cache = target_->make_cache(64);
            EXPECT_TRUE(target_->prefill(cache, text.tokens, {}, out).ok());
            const auto best = std::max_element(out.logits.begin(), out.logits.end());
            text.tokens.push_back(static_cast<TokenId>(best - out.logits.begin()));
        }
        KvCache cache = target_->make_cache(64);
        EXPECT_TRUE(target_->prefill(cache, text.tokens, {}, out).ok());
        text.hidden = Dense(static_cast<int>(text.tokens.size()), 32);
        std::copy_n(out.hidden.begin(), text.hidden.size(), text.hidden.data.begin());
        return text;
    }

    FitInputs inputs(kernels::Backend& exec) {
        FitInputs in{exec, drafter_.get(), weights_, target_->lm_head(), 256, texts_.get(), {}, keep_start};
        for (TokenId id = 159; id >= 0; --id) in.ranking.push_back(id);
        return in;
    }
    static FitOptions options(const std::string& head) {
        FitOptions options;
        options.head = head;
        options.ranks = {8};
        options.v = 60;
        options.clusters = 8;
        options.groups = 8;
        options.router.width = 16;
        options.collect.tree = {2, 3, 8};
        options.collect.text_levels = 3;
        options.collect.anchors = 400;
        options.collect.hold_out.every = 4;
        return options;
    }
    FittedHead fitted(const FitOptions& options, int threads = 1) {
        const auto exec = kernels::make_cpu_backend(threads);
        auto result = fit_head(inputs(*exec), options, {});
        EXPECT_TRUE(is_ok(result));
        return result.ok() ? std::move(result).value() : FittedHead{};
    }
    /// Writes the artefact as the fit job does and returns its path.
    std::string save_head(const FittedHead& fitted, const std::string& head) {
        ArtefactInfo info;
        info.head = head;
        info.target = "tiny";
        info.drafter = "eagle2";
        info.vocab = weights_.vocab;
        info.hidden = weights_.hidden;
        info.parameters = fitted.parameters;
        std::vector<TensorToSave> tensors;
        for (const FittedTensor& t : fitted.tensors) tensors.push_back({t.name, t.type, t.shape, t.bytes});
        const std::string path = folder_.file(head + ".safetensors");
        EXPECT_TRUE(is_ok(save_artefact(path, info, tensors)));
        return path;
    }
    Result<std::unique_ptr<LmHead>> load_head(const FittedHead& fitted, const std::string& head) {
        HeadFiles artefacts;
        artefacts.artefact_path = save_head(fitted, head);
        DS_ASSIGN(auto made, make_head(HeadSpec{head, {}}, artefacts));
        DS_TRY(made->prepare(*exec_, weights_));
        return made;
    }

    std::unique_ptr<kernels::Backend> exec_ = kernels::make_cpu_backend(1);
    std::unique_ptr<Target> target_;
    TinyEagle2 eagle_;
    testing::ScratchFolder folder_;
    std::unique_ptr<Drafter> drafter_;
    HeadWeights weights_;
    std::unique_ptr<TextList> texts_;
};

TEST_F(FitHead, CollectedRowsBelongToTheirTextPositions) {
    CollectOptions collect = options("").collect;
    collect.anchors = 10000;
    collect.router_inputs = true;
    const auto samples = require(collect_samples(*exec_, *drafter_, weights_, 256, *texts_, collect, {}));
    const SampleRows& text = samples.text;
    // 30 generated tokens give 29 anchors. The last ones have fewer levels of text after them.
    EXPECT_EQ(samples.anchors, 12 * 29);
    EXPECT_EQ(text.rows(), 12 * (29 + 28 + 27));
    EXPECT_EQ(samples.draft.rows(), 12 * 29 * (1 + 3 + 3));
    EXPECT_EQ(samples.held_out_prompts, 3);
    EXPECT_EQ(samples.levels, 3);
    // The teacher's hidden state predicts the actual token, because the texts are greedy.
    std::vector<float> hidden(32), row(32);
    for (int i = 0; i < text.rows(); i += 37) {
        text.teacher.read(i, hidden);
        TokenId best = 0;
        float top = -1e30f;
        for (TokenId id = 0; id < 160; ++id) {
            target_->lm_head().unpack_row(id, row);
            float logit = 0;
            for (std::size_t j = 0; j < 32; ++j) logit += row[j] * hidden[j];
            if (logit > top) top = logit, best = id;
        }
        EXPECT_EQ(best, text.token[i]) << i;
    }
    // The first half of HeadCall::inputs is the embedding of one token.
    std::vector<float> seen(32), embedding(32);
    samples.text.embedding.read(0, seen);
    const TokenId root = texts_->text(0).tokens[texts_->text(0).prompt_tokens];
    target_->embed({&root, 1}, {embedding.data(), 1, 32});
    for (std::size_t j = 0; j < 32; ++j)
        EXPECT_NEAR(seen[j], embedding[j], 0.01f * std::abs(embedding[j]) + 1e-6f);
}

TEST_F(FitHead, DraftedTreesAndHeldOutTextsFollowTheOptions) {
    CollectOptions collect = options("").collect;
    collect.anchors = 10000;
    collect.lanes = 1;
    const auto rows = [&] {
        auto samples = collect_samples(*exec_, *drafter_, weights_, 256, *texts_, collect, {});
        EXPECT_TRUE(is_ok(samples));
        return std::move(samples).value();
    };
    collect.draft_every = 4;
    EXPECT_EQ(rows().draft.rows(), 12 * 29 / 4 * (1 + 3 + 3));
    collect.draft_every = 0;
    EXPECT_EQ(rows().draft.rows(), 0);
    EXPECT_EQ(rows().text.rows(), 12 * (29 + 28 + 27));
    collect.hold_out.max_texts = 2;
    EXPECT_EQ(rows().held_out_prompts, 2);
}

TEST_F(FitHead, GoesOnFromGivenWeights) {
    FitOptions levels = options("slimspec");
    levels.per_level = true;
    const FittedHead first = fitted(levels);
    const std::string path = save_head(first, "slimspec");
    const HeadArtefact start = require(HeadArtefact::open(path, "slimspec"));
    FitInputs in = inputs(*exec_);
    in.start = &start;
    const FittedHead again = require(fit_head(in, options("slimspec"), {}));  // the trainer returns its start
    ASSERT_EQ(again.tensors.size(), first.tensors.size());
    for (std::size_t t = 0; t < first.tensors.size(); ++t)
        EXPECT_EQ(again.tensors[t].bytes, first.tensors[t].bytes) << first.tensors[t].name;
    EXPECT_EQ(again.parameters, first.parameters);
    EXPECT_EQ(again.report, first.report);
    EXPECT_EQ(again.notes.at("kl_drafter_start"), first.report.at("kl_drafter"));
    weights_.drafter = "eagle3";
    const auto other = fit_head(in, options("slimspec"), {});
    ASSERT_FALSE(other.ok());
    EXPECT_NE(other.error().message.find("was fitted for drafter eagle2"), std::string::npos)
        << other.error().message;
}

TEST_F(FitHead, AtFullRankTheLowRankHeadIsTheFullHead) {
    FitOptions full = options("slimspec");
    full.ranks = {32};
    full.train = false;
    const FittedHead head = fitted(full);
    EXPECT_NEAR(head.report.at("kl"), head.report.at("kl_full"), 1e-3);
    EXPECT_LT(head.report.at("kl_drafter"), 1e-4);
    EXPECT_GT(head.report.at("top1"), 0.99);
    EXPECT_EQ(head.report.at("coverage"), 1.0);
}

TEST_F(FitHead, TheClosedFormIsBetterThanThePlainOne) {
    const FittedHead head = fitted(options("slimspec"));
    EXPECT_LT(head.notes.at("kl_drafter_closed_form"), head.notes.at("kl_drafter_plain_svd"));
    EXPECT_EQ(head.notes.at("steps"), 7);
    EXPECT_EQ(head.parameters.at("rank"), "8");
}

TEST_F(FitHead, TheTrainerGetsEveryRowAndReturnsWhatIsStored) {
    FitInputs in = inputs(*exec_);
    std::map<std::string, std::vector<std::int64_t>> shapes;
    in.train = [&](const TrainingData& data) -> Result<Trained> {
        for (const TensorToSave& tensor : data.tensors()) shapes[tensor.name] = tensor.shape;
        EXPECT_EQ(data.settings.at("kind"), "divergence");
        EXPECT_EQ(data.settings.at("level_decay"), "0.8");
        DS_ASSIGN(Trained trained, keep_start(data));
        std::ranges::fill(trained.parameters["up"].data, 0.25f);
        return trained;
    };
    const auto head = fit_head(in, options("slimspec"), {});
    ASSERT_TRUE(head.ok()) << head.error().message;
    const std::int64_t text = shapes.at("text.hidden")[0], drafted = shapes.at("drafted.hidden")[0];
    EXPECT_GT(text, 300);
    EXPECT_EQ(shapes.at("text.teacher"), (std::vector<std::int64_t>{text, 32}));
    EXPECT_EQ(shapes.at("text.level"), (std::vector<std::int64_t>{text}));
    EXPECT_EQ(shapes.at("drafted.held_out"), (std::vector<std::int64_t>{drafted}));
    EXPECT_EQ(shapes.at("down.0"), (std::vector<std::int64_t>{8, 32}));
    EXPECT_EQ(shapes.at("target_rows"), (std::vector<std::int64_t>{160, 32}));
    EXPECT_EQ(shapes.count("drafter_rows"), 0u);  // the target's
    const Dense wanted = [] {
        Dense up(160, 8);
        std::ranges::fill(up.data, 0.25f);
        return up;
    }();
    EXPECT_EQ(head->tensors.back().bytes, f16_tensor("", wanted).bytes);
    in.train = {};
    EXPECT_FALSE(fit_head(in, options("slimspec"), {}).ok());
    in.train = [](const TrainingData&) -> Result<Trained> { return Trained(); };
    EXPECT_FALSE(fit_head(in, options("slimspec"), {}).ok());
}

TEST_F(FitHead, EveryKindMakesAnArtefactThatItsHeadLoads) {
    for (const std::string name : {"slimspec", "specvocab", "vocabtrim-t", "bcl", "coral", "dynaspec"}) {
        const FittedHead head = fitted(options(name));
        const auto made = load_head(head, name);
        EXPECT_TRUE(made.ok()) << name << ": " << (made.ok() ? "" : made.error().message);
        EXPECT_GT(head.report.at("coverage"), 0.0) << name;
        EXPECT_GT(head.report.at("recall10"), 0.0) << name;
    }
    FitOptions levels = options("slimspec");
    levels.per_level = true;
    const FittedHead head = fitted(levels);
    EXPECT_EQ(head.tensors.front().name, "down.0");
    const auto made = load_head(head, "slimspec");
    EXPECT_TRUE(made.ok()) << (made.ok() ? "" : made.error().message);
}

/// Token 2 ends the text and is ranked below the 60 tokens that are kept. The file says what was asked for.
TEST_F(FitHead, TokensThatEndTheTextAreKeptOnRequest) {
    const auto has_end = [](const FittedHead& head) {
        const auto ids = std::ranges::find(head.tensors, "ids", &FittedTensor::name);
        return std::ranges::find(ids->bytes, std::byte{2}) != ids->bytes.end();  // 160 tokens: one byte each
    };
    for (const bool forced : {true, false}) {
        weights_.always_active.assign(forced ? 1 : 0, 2);
        const FittedHead head = fitted(options("vocabtrim-t"));
        EXPECT_EQ(head.parameters.at("eos"), forced ? "yes" : "no");
        EXPECT_EQ(head.parameters.at("v"), "60");
        EXPECT_EQ(has_end(head), forced);
        const FittedHead routed = fitted(options("dynaspec"));
        EXPECT_EQ(routed.notes.at("always_active"), forced ? 1 : 0);
        EXPECT_EQ(routed.parameters.count("eos"), 0u);
    }
}

TEST_F(FitHead, GivesTheSameBytesForASeedAtEveryThreadCount) {
    for (const std::string name : {"slimspec", "vocabtrim-t", "dynaspec"}) {
        const FittedHead one = fitted(options(name), 1), three = fitted(options(name), 3);
        ASSERT_EQ(one.tensors.size(), three.tensors.size());
        for (std::size_t t = 0; t < one.tensors.size(); ++t)
            EXPECT_EQ(one.tensors[t].bytes, three.tensors[t].bytes) << name << " " << one.tensors[t].name;
        EXPECT_EQ(one.report, three.report) << name;
    }
}

TEST_F(FitHead, RejectsWhatCannotBeFitted) {
    const auto message = [&](const FitOptions& bad) {
        const auto result = fit_head(inputs(*exec_), bad, {});
        EXPECT_FALSE(result.ok());
        return result.ok() ? std::string() : result.error().message;
    };
    FitOptions bad = options("slimspec");
    bad.ranks = {33};
    EXPECT_NE(message(bad).find("rank=33"), std::string::npos);
    bad = options("vocabtrim-t");
    bad.v = 161;
    EXPECT_NE(message(bad).find("v=161"), std::string::npos);
    bad = options("dynaspec");
    bad.clusters = 161;
    EXPECT_NE(message(bad).find("clusters=161"), std::string::npos);
    EXPECT_NE(message(options("microspec")).find("nothing to fit"), std::string::npos);
    texts_ = std::make_unique<TextList>(std::vector<FitText>{texts_->text(0)});
    EXPECT_NE(message(options("slimspec")).find("1 texts"), std::string::npos);
}

TEST(FittedTensor, WholeNumbersTakeTheirNarrowestType) {
    const auto type_of = [](const std::vector<std::int32_t>& values) {
        return integer_tensor("ids", {static_cast<std::int64_t>(values.size())}, values).type;
    };
    EXPECT_EQ(type_of({0, 255}), "U8");
    EXPECT_EQ(type_of({0, 256}), "U16");
    EXPECT_EQ(type_of({65535}), "U16");
    EXPECT_EQ(type_of({65536, 1}), "I32");
    EXPECT_EQ(type_of({-1}), "I32");
    const FittedTensor wide = integer_tensor("ids", {2}, std::vector<std::int32_t>{258, 3});
    EXPECT_EQ(wide.bytes, (std::vector<std::byte>{std::byte{2}, std::byte{1}, std::byte{3}, std::byte{0}}));
}

TEST_F(FitHead, StopsWhenCancelledAnywhere) {
    for (const std::string name : {"slimspec", "dynaspec", "rdk"}) {
        for (const int after : {0, 3, 25}) {
            int calls = 0;
            JobHooks hooks;
            hooks.cancelled = [&] { return calls++ >= after; };
            const auto result = fit_head(inputs(*exec_), options(name), hooks);
            if (calls <= after) continue;  // the fit ended before the cancellation
            ASSERT_FALSE(result.ok()) << name << " " << after;
            EXPECT_EQ(result.error().kind, ErrorKind::cancelled);
        }
    }
}

TEST_F(FitHead, AJointTrainingGetsTheDraftersTensorsAndReportsTheTrainedDrafter) {
    auto checkpoint = open_joint_drafter("eagle2", eagle_.folder(), *target_);
    ASSERT_TRUE(checkpoint.ok()) << checkpoint.error().message;
    EXPECT_FALSE(open_joint_drafter("medusa", eagle_.folder(), *target_).ok());
    int reloads = 0;
    JointFit joint{*checkpoint, *target_, {}, {"one", "two"}, "out", [&] {
                       ++reloads;
                       return make_drafter("eagle2:" + eagle_.folder(), "", *target_, *exec_);
                   }};
    FitInputs in = inputs(*exec_);
    in.joint = &joint;
    in.train = [&](const TrainingData& data) {
        EXPECT_EQ(data.settings.at("kind"), "joint");
        EXPECT_EQ(data.settings.at("generation"), "2");
        EXPECT_EQ(data.settings.at("recordings"), "one\ntwo");
        std::istringstream lines(data.settings.at("names"));
        std::size_t names = 0;
        for (std::string line; std::getline(lines, line); ++names)
            EXPECT_NE(checkpoint->weights->find(line.substr(line.find('=') + 1)), nullptr) << line;
        EXPECT_EQ(names, checkpoint->weights->names().size());
        std::istringstream angles(data.settings.at("frequencies"));
        for (int i = 0; i < 4; ++i) {
            double found = 0;
            EXPECT_TRUE(angles >> found);
            const double wanted = std::pow(static_cast<double>(checkpoint->rotation.theta), -i / 4.0);
            EXPECT_NEAR(found, wanted, 1e-6 * wanted);
        }
        std::map<std::string, std::int64_t> rows;
        for (const TensorToSave& tensor : data.tensors()) rows[tensor.name] = tensor.shape[0];
        EXPECT_EQ(rows["train"] + rows["held"], 12);
        EXPECT_EQ(rows["embedding"], 160);
        return keep_start(data);
    };
    const auto head = fit_head(in, options("slimspec"), {});
    ASSERT_TRUE(head.ok()) << head.error().message;
    EXPECT_EQ(reloads, 1);
    EXPECT_GT(head->report.at("kl"), 0);
}

}  // namespace
}  // namespace draftscope::fit
