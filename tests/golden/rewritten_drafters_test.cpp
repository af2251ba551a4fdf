#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <numeric>
#include <random>

#include "engine/draft/registry.h"
#include "engine/formats/safetensors_writer.h"
#include "engine/formats/tensor_file.h"
#include "tests/golden/drafter_fixture.h"
#include "tests/support/scratch_folder.h"

/// Writes the golden drafters as other tools write them. Equal weights must give equal drafts.
namespace draftscope {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Json = nlohmann::json;

struct Tensor {
    std::vector<std::int64_t> shape;
    std::vector<float> values;           ///< of float tensors
    std::vector<std::int64_t> integers;  ///< of others
};

/// A checkpoint that a test changes before it is written to a folder.
class Rewritten : public GoldenDrafters {
  protected:
    void load(const std::string& layout, const std::string& file = "model.safetensors") {
        const std::string folder = golden_folder + "/" + layout;
        config_ = Json::parse(std::ifstream(folder + "/config.json"), nullptr, false);
        if (config_.is_discarded()) config_ = Json::object();
        tensors_.clear();
        const auto source = require(open_tensor_file(folder + "/" + file));
        for (const std::string& name : source->names()) {
            const TensorInfo& info = *source->find(name);
            Tensor one{info.shape, {}, {}};
            if (info.type == "F32") {
                one.values.resize(info.rows() * info.cols());
                for (std::int64_t r = 0; r < info.rows(); ++r)
                    source->read_row(info, r, one.values.data() + r * info.cols());
            } else {
                one.integers = require(source->read_integers(name));
            }
            tensors_[name] = std::move(one);
        }
    }
    /// Renames tensors by the beginnings of their names.
    void rename(const std::string& from, const std::string& to) {
        std::map<std::string, Tensor> out;
        for (auto& [name, tensor] : tensors_)
            out[name.starts_with(from) ? to + name.substr(from.size()) : name] = std::move(tensor);
        tensors_ = std::move(out);
    }
    /// Writes the checkpoint and returns its folder.
    std::string write(bool narrow = false, const std::string& folder = "drafter") {
        const std::string path = scratch_.file(folder);
        std::filesystem::create_directories(path);
        std::ofstream(path + "/config.json") << config_;
        std::vector<TensorToSave> saved;
        std::map<std::string, std::vector<std::int32_t>> short_integers;
        for (const auto& [name, one] : tensors_) {
            TensorToSave out{name, "F32", one.shape, std::as_bytes(std::span(one.values))};
            if (!one.integers.empty() && narrow) {
                short_integers[name].assign(one.integers.begin(), one.integers.end());
                out.type = "I32";
                out.data = std::as_bytes(std::span(short_integers[name]));
            } else if (!one.integers.empty()) {
                out.type = "I64";
                out.data = std::as_bytes(std::span(one.integers));
            }
            saved.push_back(out);
        }
        EXPECT_TRUE(is_ok(save_safetensors(path + "/model.safetensors", saved)));
        return path;
    }
    /// Orders the rows of the draft vocabulary as `order` says.
    void reorder(const std::vector<int>& order) {
        const Tensor head = tensors_["lm_head.weight"];
        const std::vector<std::int64_t> map = tensors_["d2t"].integers;
        const std::int64_t d = head.shape[1];
        for (std::size_t i = 0; i < order.size(); ++i) {
            std::copy_n(head.values.begin() + order[i] * d, d,
                        tensors_["lm_head.weight"].values.begin() + i * d);
            tensors_["d2t"].integers[i] = map[order[i]] + order[i] - static_cast<std::int64_t>(i);
        }
    }
    void make_absolute() {
        std::vector<std::int64_t>& map = tensors_["d2t"].integers;
        for (std::size_t i = 0; i < map.size(); ++i) map[i] += static_cast<std::int64_t>(i);
    }
    std::vector<Round> drafts(const std::string& spec, const std::string& golden = "eagle3") {
        const auto drafter = open(spec);
        return drafter == nullptr ? std::vector<Round>() : draft(*drafter, golden_[golden]);
    }
    void expect_same(const std::vector<Round>& a, const std::vector<Round>& b) {
        ASSERT_EQ(a.size(), b.size());
        for (std::size_t r = 0; r < a.size(); ++r) {
            EXPECT_EQ(a[r].tree.tokens, b[r].tree.tokens);
            EXPECT_EQ(a[r].tree.parents, b[r].tree.parents);
            EXPECT_EQ(a[r].tree.logprobs, b[r].tree.logprobs);
        }
    }
    Notes notes_of(const std::string& spec) {
        const auto drafter = open(spec);
        return drafter == nullptr ? Notes() : drafter->properties().notes;
    }

    testing::ScratchFolder scratch_;
    Json config_;
    std::map<std::string, Tensor> tensors_;
};

std::vector<int> shuffled(int count) {
    std::vector<int> order(count);
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), std::mt19937(7));
    return order;
}

/// Tools write the heads without a config, and with their container's name before each tensor's.
TEST_F(Rewritten, MedusaHeadsInSafetensors) {
    load("medusa_published", "medusa_lm_head.pt");
    rename("", "medusa_head.");
    const std::string folder = write();
    std::filesystem::rename(folder + "/model.safetensors", folder + "/medusa_lm_head.safetensors");
    std::filesystem::remove(folder + "/config.json");
    expect_golden("medusa:" + folder, "medusa");
    expect_same(drafts("medusa:" + folder, "medusa"),
                drafts("medusa:" + golden_folder + "/medusa_published", "medusa"));
}

TEST_F(Rewritten, DraftTokensInAnyOrder) {
    for (const bool absolute : {false, true})
        for (const bool marked : {true, false})
            for (const bool sorted : {true, false}) {
                SCOPED_TRACE(fmt::format("absolute {} t2d {} sorted {}", absolute, marked, sorted));
                load("eagle3_safetensors");
                if (!sorted) reorder(shuffled(64));
                if (absolute) make_absolute();
                if (!marked) tensors_.erase("t2d");
                const std::string spec = "eagle3:" + write(sorted);
                expect_golden(spec, "eagle3");
                EXPECT_THAT(notes_of(spec),
                            absolute ? Contains(HasSubstr("tokens")) : ::testing::A<const Notes&>());
            }
    load("eagle3_safetensors");
    tensors_["draft_id_to_target_id"] = tensors_["d2t"];
    tensors_.erase("d2t");
    expect_golden("eagle3:" + write(), "eagle3");
    tensors_.erase("draft_id_to_target_id");
    expect_golden("eagle3:" + write(), "eagle3");  // t2d alone
    EXPECT_THAT(notes_of("eagle3:" + write()), Contains(HasSubstr("d2t is missing")));
}

TEST_F(Rewritten, OptionsReadTheHeadInAnotherWay) {
    load("eagle3_safetensors");
    const auto plain = drafts("eagle3:" + write());
    tensors_.erase("lm_head.weight");
    const auto target_rows = drafts("eagle3:" + write());
    load("eagle3_safetensors");
    expect_same(drafts("eagle3:" + write() + ",head=own,d2t=offsets"), plain);
    expect_same(drafts("eagle3:" + write() + ",head=target"), target_rows);
    EXPECT_NE(target_rows[0].tree.logprobs, plain[0].tree.logprobs);
    tensors_.erase("t2d");
    EXPECT_NE(drafts("eagle3:" + write() + ",d2t=tokens")[0].tree.tokens, plain[0].tree.tokens);
    make_absolute();
    expect_same(drafts("eagle3:" + write() + ",d2t=tokens"), plain);
    EXPECT_THAT(open_error("eagle3:" + write() + ",d2t=offsets"), HasSubstr("d2t read as offsets: d2t["));
    EXPECT_THAT(open_error("eagle3:" + write() + ",d2t=both"), HasSubstr("use d2t=offsets or d2t=tokens"));
    tensors_.erase("d2t");
    EXPECT_THAT(open_error("eagle3:" + write() + ",d2t=offsets"), HasSubstr("tensor 'd2t' is missing"));
}

TEST_F(Rewritten, MapsThatContradictAreRefused) {
    load("eagle3_safetensors");
    tensors_["d2t"].integers[1] = tensors_["d2t"].integers[0] - 1;
    EXPECT_THAT(open_error("eagle3:" + write()), HasSubstr("expected distinct ids below 312"));
    load("eagle3_safetensors");
    tensors_["d2t"].integers.back() = 1000;
    EXPECT_THAT(open_error("eagle3:" + write()), HasSubstr("d2t[63] = 1000 gives token 1063"));
    load("eagle3_safetensors");
    std::vector<std::int64_t>& marks = tensors_["t2d"].integers;
    std::swap(*std::ranges::find(marks, 1), *std::ranges::find(marks, 0));
    EXPECT_THAT(open_error("eagle3:" + write()), HasSubstr("maps to a different set of 64"));
    load("eagle3_safetensors");
    tensors_["d2t"].integers.assign(64, 0);
    std::ranges::fill(tensors_["t2d"].integers, 0);
    const Notes notes = notes_of("eagle3:" + write());
    EXPECT_THAT(notes, Contains(HasSubstr("holds zeros only")));
    EXPECT_THAT(notes, Contains(HasSubstr("marks no token")));
    load("eagle3_safetensors");
    tensors_["d2t"].shape = {60};
    tensors_["d2t"].integers.resize(60);
    EXPECT_THAT(open_error("eagle3:" + write()),
                HasSubstr("d2t has 60 entries for 64 rows of lm_head.weight"));
}

TEST_F(Rewritten, MapsWithoutAHeadSelectTheTargetsRows) {
    const auto target = require(
        open_tensor_file(std::string(DS_SOURCE_DIR) + "/tests/golden/models/qwen2/model.safetensors"));
    const TensorInfo& whole = *target->find("lm_head.weight");
    load("eagle3_safetensors");
    Tensor& head = tensors_["lm_head.weight"];
    const std::vector<std::int64_t>& map = tensors_["d2t"].integers;
    for (std::int64_t i = 0; i < 64; ++i) target->read_row(whole, map[i] + i, head.values.data() + i * 48);
    const auto wanted = drafts("eagle3:" + write());
    tensors_.erase("lm_head.weight");
    const std::string spec = "eagle3:" + write();
    expect_same(drafts(spec), wanted);
    EXPECT_THAT(open_error(spec + ",head=own"), HasSubstr("head=own: tensor 'lm_head.weight' is missing"));
    EXPECT_THAT(notes_of(spec),
                Contains(HasSubstr("lm_head.weight is missing; the target's rows of the 64 tokens")));
    tensors_.erase("d2t");
    tensors_.erase("t2d");
    config_["draft_vocab_size"] = 64;
    EXPECT_EQ(open("eagle3:" + write())->properties().lm_head, nullptr);
    EXPECT_THAT(notes_of("eagle3:" + write()), Contains(HasSubstr("the target's whole head drafts")));
}

TEST_F(Rewritten, NamesWithAnyPrefix) {
    for (const auto& [all, layer] : std::map<std::string, std::string>{{"model.", "midlayer."},
                                                                       {"", "layers.0."},
                                                                       {"draft_model.", "midlayer."},
                                                                       {"module.", "model.layers.0."},
                                                                       {"_orig_mod.", "decoder.layers.0."},
                                                                       {"drafter.model.", "layers.0."}}) {
        SCOPED_TRACE(all + " " + layer);
        load("eagle3_safetensors");
        const std::string own =
            std::ranges::any_of(tensors_, [](const auto& one) { return one.first.starts_with("midlayer."); })
                ? "midlayer."
                : "layers.0.";
        rename(own, layer);
        rename("", all);
        expect_golden("eagle3:" + write(), "eagle3");
    }
    load("eagle2_safetensors");
    rename("layers.0.", "model.layers.0.");
    expect_golden("eagle2:" + write(), "eagle2");
    load("eagle3_safetensors");
    tensors_["model.norm.weight"] = tensors_["norm.weight"];
    EXPECT_THAT(open_error("eagle3:" + write()), HasSubstr("'model.norm.weight' is not supported"));
    load("eagle3_safetensors");
    tensors_["layers.7.self_attn.q_proj.weight"] = tensors_["norm.weight"];
    EXPECT_THAT(open_error("eagle3:" + write()), HasSubstr("has 2 decoder layers"));
}

TEST_F(Rewritten, FeatureLayers) {
    load("eagle3_safetensors");
    config_["eagle_aux_hidden_state_layer_ids"] = {40, 41, 42};
    EXPECT_THAT(open_error("eagle3:" + write()), HasSubstr("contains 40, but the target has layers 0..2"));
    expect_golden("eagle3:" + write() + ",layers=1/1/1", "eagle3");
    EXPECT_THAT(notes_of("eagle3:" + write() + ",layers=1/1/1"),
                Contains(HasSubstr("name layer 1 more than once")));
    EXPECT_THAT(open_error("eagle3:" + write() + ",layers=1/x/1"), HasSubstr("as in layers=1/12/21"));
    EXPECT_THAT(open_error("eagle3:" + write() + ",layers=1/-1/1"), HasSubstr("as in layers=1/12/21"));
    EXPECT_THAT(open_error("eagle3:" + write() + ",layers=0/1/3"), HasSubstr("layers contains 3"));
    EXPECT_THAT(open_error("eagle3:" + write() + ",layers=0/1"),
                HasSubstr("reads 3 features of 48 values, but 2 layers are named"));
    config_["eagle_aux_hidden_state_layer_ids"] = {0, 1, 2};
    EXPECT_THAT(open("eagle3:" + write())->aux_layers(), ::testing::ElementsAre(0, 1, 2));
    config_["eagle_aux_hidden_state_layer_ids"] = {0, 1, -1};
    EXPECT_THAT(open_error("eagle3:" + write()), HasSubstr("contains -1, expected layer numbers from 0"));
    config_["eagle_aux_hidden_state_layer_ids"] = {1, 1, 1};
    config_["eagle_config"] = {{"eagle_aux_hidden_state_layer_ids", {1, 1, 1}}};
    EXPECT_THAT(notes_of("eagle3:" + write()), Contains(HasSubstr("another field names other layers")));
}

TEST_F(Rewritten, TheDefaultLayersAreSaid) {
    auto target = Target::load(std::string(DS_SOURCE_DIR) + "/tests/golden/models/llama", *exec_,
                               kernels::Precision::f32);
    target_ = require(std::move(target));  // three layers, d = 64, V = 301
    load("eagle3_safetensors");
    config_.erase("eagle_aux_hidden_state_layer_ids");
    config_["target_hidden_size"] = 64;
    config_["vocab_size"] = 301;
    tensors_["embed_tokens.weight"] = {{301, 48}, std::vector<float>(301 * 48, 0.5f), {}};
    tensors_["fc.weight"] = {{48, 192}, std::vector<float>(48 * 192, 0.01f), {}};
    tensors_["t2d"].integers.resize(301);
    tensors_["t2d"].shape = {301};
    tensors_.erase("lm_head.weight");
    tensors_["lm_head.weight"] = {{301, 48}, std::vector<float>(301 * 48, 0.25f), {}};
    tensors_.erase("d2t");
    tensors_.erase("t2d");
    const std::string spec = "eagle3:" + write();
    EXPECT_THAT(open(spec)->aux_layers(), ::testing::ElementsAre(2, 1, 0));
    EXPECT_THAT(notes_of(spec),
                Contains(HasSubstr("names no feature layers; EAGLE-3's default is assumed, the "
                                   "inputs of layers 2, 1, 0")));
    EXPECT_THAT(notes_of(spec + ",layers=0/1/2"), Not(Contains(HasSubstr("names no feature layers"))));
}

TEST_F(Rewritten, TheLastBoundaryIsTheStreamBeforeTheFinalNorm) {
    KvCache cache = target_->make_cache(8);
    const std::vector<TokenId> tokens = {5, 6, 7};
    ForwardOutput out;
    const int layers = target_->config().layers, d = target_->config().hidden;
    ASSERT_TRUE(is_ok(target_->prefill(cache, tokens, std::vector<int>{layers}, out)));
    const auto source = require(
        open_tensor_file(std::string(DS_SOURCE_DIR) + "/tests/golden/models/qwen2/model.safetensors"));
    std::vector<float> norm(d);
    source->read_row(*source->find("model.norm.weight"), 0, norm.data());
    for (std::size_t row = 0; row < tokens.size(); ++row) {
        const float* x = out.aux.data() + row * d;
        double squares = 0;
        for (int i = 0; i < d; ++i) squares += x[i] * x[i];
        const double scale = 1 / std::sqrt(squares / d + target_->config().norm_eps);
        for (int i = 0; i < d; ++i)
            ASSERT_NEAR(out.hidden[row * d + i], x[i] * scale * norm[i], 1e-4) << row << " " << i;
    }
}

TEST_F(Rewritten, WhatTheNextLevelGets) {
    load("eagle3_specforge");
    const auto plain = drafts("eagle3:" + write());
    config_["norm_output"] = true;
    const std::string spec = "eagle3:" + write();
    expect_same(drafts(spec), plain);
    EXPECT_THAT(notes_of(spec), Contains(HasSubstr("norm_output is true")));
    const auto normed = drafts(spec + ",recycle=normed");
    EXPECT_NE(normed[0].tree.logprobs, plain[0].tree.logprobs);
    config_["architectures"] = {"Eagle3LlamaForCausalLM"};  // engines' reading of the flag
    config_.erase("norm_output");
    config_["eagle_config"]["norm_output"] = true;
    expect_same(drafts("eagle3:" + write()), normed);
    expect_same(drafts("eagle3:" + write() + ",recycle=raw"), plain);
    EXPECT_THAT(open_error("eagle3:" + write() + ",recycle=both"),
                HasSubstr("use recycle=raw or recycle=normed"));

    load("eagle3_specforge");
    const std::vector<float> weight = tensors_["norm.weight"].values;
    spies_.clear();
    drafts("eagle3:" + write());
    const std::vector<float> with_norm = spies_.front()->levels[0][0];
    config_["norm_output"] = false;
    spies_.clear();
    drafts("eagle3:" + write());
    const std::vector<float> without = spies_.front()->levels[0][0];
    double squares = 0;
    for (const float x : without) squares += x * x;
    for (std::size_t i = 0; i < without.size(); ++i)
        EXPECT_NEAR(with_norm[i], without[i] / std::sqrt(squares / 48 + 1e-5) * weight[i], 1e-4);
}

TEST_F(Rewritten, WhereTheResidualStarts) {
    load("eagle3_specforge");
    const std::string raw = "eagle3:" + write();
    const auto plain = drafts(raw);
    const auto normed = drafts(raw + ",residual=normed");
    EXPECT_NE(normed[0].tree.logprobs, plain[0].tree.logprobs);
    config_["norm_before_residual"] = true;
    const std::string spec = "eagle3:" + write();
    expect_same(drafts(spec), normed);
    expect_same(drafts(spec + ",residual=raw"), plain);
}

TEST_F(Rewritten, Eagle2FromTheStateBeforeTheFinalNorm) {
    const std::string spec = "eagle2:" + golden_folder + "/eagle2_safetensors";
    EXPECT_TRUE(open(spec)->needs_hidden());
    const auto raw = open(spec + ",features=raw");
    ASSERT_NE(raw, nullptr);
    EXPECT_FALSE(raw->needs_hidden());
    EXPECT_THAT(raw->aux_layers(), ::testing::ElementsAre(target_->config().layers));
    EXPECT_THAT(open_error(spec + ",features=both"), HasSubstr("use features=normed or features=raw"));
}

TEST_F(Rewritten, VocabulariesThatDifferByPadding) {
    for (const int vocab : {300, 320, 640}) {
        SCOPED_TRACE(vocab);
        load("eagle3_safetensors");
        config_["vocab_size"] = vocab;
        tensors_.erase("t2d");
        const std::string spec = "eagle3:" + write();
        expect_golden(spec, "eagle3");
        EXPECT_THAT(notes_of(spec), Contains(HasSubstr("taken for padding or added tokens")));
    }
    config_["vocab_size"] = 32000;
    EXPECT_THAT(open_error("eagle3:" + write()), HasSubstr("vocab_size is 32000, but the target has 312"));

    // A whole head and embeddings of fewer or more rows.
    const auto target = require(
        open_tensor_file(std::string(DS_SOURCE_DIR) + "/tests/golden/models/qwen2/model.safetensors"));
    const TensorInfo& info = *target->find("model.embed_tokens.weight");
    for (const std::int64_t rows : {306, 330}) {
        load("eagle3_safetensors");
        tensors_.erase("d2t");
        tensors_.erase("t2d");
        config_["vocab_size"] = rows;
        config_["draft_vocab_size"] = rows;
        std::vector<float> values(rows * 48);
        for (std::int64_t r = 0; r < std::min<std::int64_t>(rows, 312); ++r)
            target->read_row(info, r, values.data() + r * 48);
        tensors_["embed_tokens.weight"] = {{rows, 48}, values, {}};
        tensors_["lm_head.weight"] = {{rows, 48}, values, {}};
        const auto drafter = open("eagle3:" + write());
        ASSERT_NE(drafter, nullptr);
        EXPECT_EQ(drafter->properties().lm_head->n(), std::min<std::int64_t>(rows, 312));
        const auto own = draft(*drafter, golden_["eagle3"]);
        expect_same(own, drafts("eagle3:" + write() + ",embeddings=target"));
    }
    EXPECT_THAT(open_error("eagle3:" + golden_folder + "/eagle3_safetensors,embeddings=own"),
                HasSubstr("embeddings=own: tensor 'embed_tokens.weight' is missing"));
    EXPECT_THAT(open_error("eagle3:" + golden_folder + "/eagle3_variants,embeddings=target"),
                HasSubstr("is not used"));
}

TEST_F(Rewritten, TheContextIsKnown) {
    load("eagle3_safetensors");
    config_["max_position_embeddings"] = 32;
    EXPECT_EQ(open("eagle3:" + write())->properties().trained_positions, 32);
    EXPECT_EQ(open("eagle3:" + golden_folder + "/eagle3_safetensors")->properties().trained_positions, 0);
}

TEST_F(Rewritten, OneGrammarForAllDrafters) {
    load("eagle2_safetensors");
    for (const char* name : {"a,b", "x,rope=own", "x,er=2", "name=1,b"}) {
        const std::string path = write(false, name);
        expect_golden("eagle2:" + path, "eagle2");
        expect_golden("eagle2:" + path + ",rope=own,embeddings=target", "eagle2");
        EXPECT_THAT(open_error("eagle2:" + path + ",er=3"), HasSubstr("'er'"));
        EXPECT_THAT(open_error("eagle2:" + path + ",layers=1"), HasSubstr("known: rope, embeddings"));
    }
    EXPECT_THAT(open_error("eagle2:" + scratch_.path() + "/missing,er=2"), HasSubstr("missing,er=2"));
    EXPECT_THAT(open_error("eagle2:" + scratch_.path() + "/a,b,rope=own,rope=own"), HasSubstr("given twice"));
    EXPECT_THAT(open_error("medusa:" + golden_folder + "/medusa_published,rope=own"),
                HasSubstr("known: none"));
    EXPECT_THAT(split_drafters("eagle3:a,b,layers=1/2/3,ngram:max=3,min=1,none"),
                ::testing::ElementsAre("eagle3:a,b,layers=1/2/3", "ngram:max=3,min=1", "none"));
    EXPECT_EQ(with_default_path(",rope=own", "x"), "x,rope=own");
}

TEST_F(Rewritten, OtherFamiliesAreNamed) {
    struct Case {
        Json change;
        std::string family, tensor;
    };
    const std::vector<Case> cases = {
        {{{"architectures", {"DFlashDraftModel"}}, {"num_hidden_layers", 4}}, "DFlash", ""},
        {{{"architectures", {"PEagleDraftModel"}}, {"num_hidden_layers", 4}}, "P-EAGLE", ""},
        {{{"speculators_model_type", "peagle"}}, "P-EAGLE", ""},
        {{{"speculators_model_type", "mtp"}}, "MTP", ""},
        {{{"speculators_model_type", "dspark"}}, "DSpark", ""},
        {{{"architectures", {"DFlashDraftModel"}}, {"dflash_config", {{"projector_type", "domino"}}}},
         "Domino",
         ""},
        {{{"dflash_config", {{"causal_head", true}}}}, "JetSpec", ""},
        {{{"architectures", {"MLPSpeculatorPreTrainedModel"}}}, "MLP speculator", ""},
        {{{"architectures", {"DeepSeekMTPModel"}}}, "MTP", ""},
        {{{"architectures", {"MedusaModel"}}}, "Medusa", ""},
        {{{"hydra_num_heads", 3}}, "Hydra", ""},
        {Json::object(), "P-EAGLE", "mask_hidden"},
        {Json::object(), "MTP", "model.layers.61.eh_proj.weight"},
        {Json::object(), "Medusa", "0.0.linear.weight"},
        {Json::object(), "EAGLE with experts", "midlayer.mlp.experts.0.up_proj.weight"},
        {Json::object(), "EAGLE with latent attention", "midlayer.self_attn.kv_a_proj_with_mqa.weight"},
        {Json::object(), "EAGLE with parallel heads", "parallel_draft_heads.0.medusa_layers.0.linear.weight"},
    };
    for (const Case& one : cases) {
        load("eagle3_safetensors");
        config_.update(one.change);
        if (!one.tensor.empty()) tensors_[one.tensor] = tensors_["norm.weight"];
        EXPECT_THAT(open_error("eagle3:" + write()), HasSubstr("family " + one.family + " ("));
    }
    EXPECT_THAT(open_error("eagle3:" + std::string(DS_SOURCE_DIR) + "/tests/golden/models/qwen2"),
                HasSubstr("family draft model, a language model of its own"));
    EXPECT_THAT(open_error("medusa:" + golden_folder + "/eagle3_safetensors"),
                HasSubstr("use --drafter eagle2 or eagle3:PATH"));
    EXPECT_THAT(open_error("medusa:" + golden_folder + "/hydra_published/hydra_lm_head.pt"),
                HasSubstr("use --drafter hydra:PATH"));
    EXPECT_THAT(open_error("hydra:" + golden_folder + "/eagle3_safetensors"),
                HasSubstr("not a Hydra checkpoint"));
}

TEST_F(Rewritten, FieldsThatMayChangeResultsAreSaid) {
    load("eagle3_safetensors");
    config_["sink_tokens"] = 4;
    config_["attention_dropout"] = 0.1;
    EXPECT_THAT(notes_of("eagle3:" + write()), Contains(HasSubstr("sink_tokens = 4")));
    config_["logit_scale"] = 0.5;
    EXPECT_THAT(open_error("eagle3:" + write()), HasSubstr("logit_scale is 0.5"));
    load("eagle3_safetensors");
    config_["quantization_config"] = {{"quant_method", "fp8"}};
    EXPECT_THAT(open_error("eagle3:" + write()), HasSubstr("quantization_config"));
}

/// Medusa's golden weights under the names of each stack.
class RewrittenHeads : public Rewritten {
  protected:
    /// Names of head h's block b and LM head, in fmt's form.
    std::string write_as(const std::string& block, const std::string& lm_head, bool shared = false) {
        load("medusa_published", "medusa_lm_head.pt");
        config_ = Json::object();
        std::map<std::string, Tensor> out;
        for (int h = 0; h < 4; ++h) {
            for (int b = 0; b < 2; ++b)
                for (const char* part : {"weight", "bias"})
                    out[fmt::format(fmt::runtime(block), h, b) + part] =
                        tensors_.at(fmt::format("{}.{}.linear.{}", h, b, part));
            if (!shared || h == 0)
                out[fmt::format(fmt::runtime(lm_head), h, 2) + "weight"] =
                    tensors_.at(fmt::format("{}.2.weight", h));
        }
        tensors_ = std::move(out);
        return write();
    }
};

TEST_F(RewrittenHeads, EveryStacksNames) {
    for (const auto& [block, lm_head] : std::vector<std::pair<std::string, std::string>>{
             {"{}.{}.linear.", "{}.{}."},
             {"medusa_heads.{}.{}.linear.", "medusa_heads.{}.{}."},
             {"model.medusa_heads.{}.{}.linear.", "model.medusa_heads.{}.{}."},
             {"medusa_heads.{}.medusa_layers.{}.linear.", "medusa_heads.{}.lm_head."},
             {"blocks.{}.layers.{}.", "lm_heads.{}."},
             {"medusa_heads.blocks.{}.layers.{}.", "medusa_heads.lm_heads.{}."}}) {
        SCOPED_TRACE(block);
        expect_golden("medusa:" + write_as(block, lm_head), "medusa");
        EXPECT_THAT(notes_of("medusa:" + write()), IsEmpty());
    }
    write_as("blocks.{}.layers.{}.", "lm_heads.{}.");
    config_ = {{"architectures", {"MedusaModel"}},
               {"model_type", "medusa"},
               {"hidden_size", 48},
               {"num_heads", 5},
               {"num_hidden_layers", 2},
               {"vocab_size", 312},
               {"truncated_vocab_size", 312},
               {"max_paths", 64},
               {"topk", 10},
               {"max_seq_len", 1048576},
               {"medusa_fc_bias", true},
               {"original_lm_head", false}};
    EXPECT_THAT(notes_of("medusa:" + write()),
                ::testing::ElementsAre(HasSubstr("num_heads is 5, but the file holds 4 heads")));
}

TEST_F(RewrittenHeads, VllmWithoutBiasesAndWithOneHead) {
    write_as("{}.{}.linear.", "{}.{}.");
    for (auto& [name, tensor] : tensors_)
        if (name.ends_with("bias")) std::ranges::fill(tensor.values, 0.0f);
    for (int h = 1; h < 4; ++h) tensors_[fmt::format("{}.2.weight", h)] = tensors_["0.2.weight"];
    const auto wanted = drafts("medusa:" + write(), "medusa");
    write_as("blocks.{}.layers.{}.", "lm_heads.{}.", true);
    std::erase_if(tensors_, [](const auto& one) { return one.first.ends_with("bias"); });
    expect_same(drafts("medusa:" + write(), "medusa"), wanted);
    tensors_["lm_head.weight"] = tensors_["lm_heads.0.weight"];
    tensors_.erase("lm_heads.0.weight");
    expect_same(drafts("medusa:" + write(), "medusa"), wanted);
}

TEST_F(RewrittenHeads, VllmsTrimmedVocabulary) {
    const std::vector<int> order = shuffled(312);
    const std::vector<std::int64_t> map(order.begin(), order.begin() + 100);
    // A whole head of which token_map selects rows, and the rows alone.
    write_as("blocks.{}.layers.{}.", "lm_heads.{}.");
    tensors_["token_map"] = {{100}, {}, map};
    expect_golden("medusa:" + write(), "medusa");
    EXPECT_THAT(notes_of("medusa:" + write()), Contains(HasSubstr("token_map is not used")));
    config_["truncated_vocab_size"] = 100;
    const auto wanted = drafts("medusa:" + write(), "medusa");
    for (int h = 0; h < 4; ++h) {
        Tensor& head = tensors_[fmt::format("lm_heads.{}.weight", h)];
        std::vector<float> rows;
        for (const std::int64_t id : map)
            rows.insert(rows.end(), head.values.begin() + id * 48, head.values.begin() + (id + 1) * 48);
        head = {{100, 48}, rows, {}};
    }
    const auto trimmed = drafts("medusa:" + write(), "medusa");
    expect_same(trimmed, wanted);
    for (std::size_t i = 1; i < trimmed[0].tree.tokens.size(); ++i)
        EXPECT_THAT(map, Contains(trimmed[0].tree.tokens[i]));
    tensors_["token_map"].integers[3] = map[4];
    EXPECT_THAT(open_error("medusa:" + write()), HasSubstr("expected distinct ids below 312"));
    // Without LM heads the target's rows draft.
    tensors_["token_map"].integers = map;
    std::erase_if(tensors_, [](const auto& one) { return one.first.starts_with("lm_heads"); });
    EXPECT_FALSE(open("medusa:" + write())->uses_head());
    EXPECT_THAT(notes_of("medusa:" + write()), Contains(HasSubstr("the target's rows of the 100 tokens")));
}

}  // namespace
}  // namespace draftscope
