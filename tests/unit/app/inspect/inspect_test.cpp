#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <deque>
#include <filesystem>
#include <limits>

#include "app/jobs/inspect/inspection.h"
#include "engine/formats/safetensors_writer.h"
#include "engine/formats/tensor_file.h"
#include "tests/support/results.h"
#include "tests/support/scratch_folder.h"
#include "tests/support/tiny_drafter.h"
#include "tests/support/tiny_model.h"

namespace draftscope::testing {
namespace {

using nlohmann::json;
using ::testing::Contains, ::testing::HasSubstr, ::testing::IsEmpty, ::testing::Not;

std::string text_of(const std::vector<Fact>& facts, const std::string& name) {
    for (const Fact& fact : facts)
        if (fact.name == name) return fact.text;
    return "";
}

const StackUse& stack(const Inspection& found, const std::string& name) {
    for (const StackUse& use : found.stacks)
        if (use.stack == name) return use;
    ADD_FAILURE() << "no stack " << name;
    return found.stacks.front();
}

/// Writes the tensors of a safetensors file again with one more, or with another in its place.
void set_tensor(const std::string& path, const std::string& name, std::string_view type,
                const std::vector<std::int64_t>& shape, const std::string& bytes) {
    const auto file = require(open_tensor_file(path));
    std::deque<std::string> kept;
    std::vector<TensorToSave> tensors = {{name, type, shape, std::as_bytes(std::span(bytes))}};
    for (const std::string& one : file->names()) {
        if (one == name) continue;
        const TensorInfo& info = *file->find(one);
        const auto stored = file->stored(info);
        const std::string& copy =
            kept.emplace_back(reinterpret_cast<const char*>(stored.data()), stored.size());
        tensors.push_back({one, info.type, info.shape, std::as_bytes(std::span(copy))});
    }
    ASSERT_TRUE(is_ok(save_safetensors(path, tensors)));
}

template <typename T>
std::string bytes_of(const std::vector<T>& values) {
    return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

/// A tiny target with an EAGLE-3 drafter of 6 rows, in no order and named by tokens, as no published one is.
class Inspect : public ::testing::Test {
  protected:
    Inspect() : target_(make_config()), eagle3_(target_, 7, 6) {
        EXPECT_TRUE(write_tiny_gguf(model(), 3, options_).ok());
        set_tensor(weights(), "d2t", "I64", {6}, bytes_of<std::int64_t>({9, 2, 40, 11, 200, 30}));
        std::string marks(tiny_gguf_vocab(), '\0');
        for (const int token : {9, 2, 40, 11, 200, 30}) marks[token] = 1;
        set_tensor(weights(), "t2d", "BOOL", {tiny_gguf_vocab()}, marks);
        json config = json::parse(read_text(eagle3_.folder() + "/config.json"));
        config["num_hidden_layers"] = 1;
        // The layers that the residual stream leaves: the inputs of 1, 2 and 3.
        config["eagle_config"] = {{"eagle_aux_hidden_state_layer_ids", {0, 1, 2}}};
        write_text(eagle3_.folder() + "/config.json", config.dump());
    }
    ModelConfig make_config() {
        ModelConfig out = make_tiny_model(3, options_).config;
        out.vocab = tiny_gguf_vocab();
        return out;
    }
    std::string model() const { return folder_.file("tiny.gguf"); }
    std::string weights() const { return eagle3_.folder() + "/model.safetensors"; }

    TinyModelOptions options_{.layers = 4};
    ModelConfig target_;
    TinyEagle3 eagle3_;
    ScratchFolder folder_;
};

TEST_F(Inspect, Eagle3SaysLayersAndMaps) {
    const Inspection found = require(inspect_path(eagle3_.folder(), ""));
    EXPECT_EQ(found.kind, "EAGLE-3 drafter, layout SpecForge (SGLang)");
    EXPECT_THAT(text_of(found.facts, "feature layers"),
                HasSubstr("the inputs of layers 1, 2, 3 (the file counts"));
    EXPECT_THAT(text_of(found.facts, "LM head"),
                HasSubstr(fmt::format(
                    "its own; rows for 6 of {} tokens, 2 to 200; d2t holds tokens, not in the order",
                    tiny_gguf_vocab())));
    EXPECT_EQ(text_of(found.facts, "embeddings"), "the target's");
    EXPECT_THAT(found.odd, Contains(HasSubstr("d2t holds tokens, as")));
    EXPECT_THAT(found.odd, Contains(HasSubstr("ones only")));  // the tiny file's norms
    EXPECT_THAT(found.unread, IsEmpty());
    EXPECT_TRUE(stack(found, "Draftscope").loads);
    EXPECT_TRUE(stack(found, "SGLang").loads);
    EXPECT_THAT(stack(found, "vLLM").how, HasSubstr(eagle3_.folder()));
    EXPECT_FALSE(stack(found, "llama.cpp").loads);
}

TEST_F(Inspect, ParametersAreCounted) {
    const Inspection found = require(inspect_path(eagle3_.folder(), ""));
    const int d = 64, q = 4 * 16, kv = 2 * 16, ffn = 96;
    const int layer = (q + 2 * kv) * 2 * d + d * q + 3 * ffn * d + 3 * d;
    const json& value = found.facts.front().value;
    EXPECT_EQ(value["total"], layer + 3 * d * d + d + 6 * d);  // fc, norm and the LM head's rows
    EXPECT_EQ(value["bytes"], 4 * value["total"].get<int>());
    EXPECT_EQ(value["parts"]["layers"], layer);
    // Keys and values of one layer in 16 bits.
    EXPECT_EQ(text_of(found.facts, "KV cache"), "128 B a token");
}

TEST_F(Inspect, TheTargetsDifferencesAreNamed) {
    const Inspection fits = require(inspect_path(eagle3_.folder(), model()));
    EXPECT_THAT(text_of(fits.differences, "equal"),
                HasSubstr("hidden size, vocabulary, width of attention heads"));
    EXPECT_TRUE(stack(fits, "Draftscope").loads) << stack(fits, "Draftscope").how;
    const std::string other = folder_.file("other.gguf");
    ASSERT_TRUE(is_ok(write_tiny_gguf(other, 3, {.hidden = 96, .layers = 4})));
    const Inspection found = require(inspect_path(eagle3_.folder(), other));
    EXPECT_FALSE(stack(found, "Draftscope").loads);
    EXPECT_THAT(stack(found, "Draftscope").how, HasSubstr("but the target has 96"));
    EXPECT_EQ(text_of(found.differences, "hidden size"), "64, the target's 96");
    EXPECT_FALSE(stack(found, "vLLM").loads);
}

TEST_F(Inspect, DraftModelsAreComparedByTokens) {
    const TinyDraftModel draft(target_, 5);
    const Inspection found = require(inspect_path(draft.path(), model()));
    EXPECT_THAT(text_of(found.differences, "equal"), HasSubstr("tokenizer, chat template"));
    EXPECT_EQ(stack(found, "Draftscope").how, "--drafter draft-model:" + draft.path());
}

TEST_F(Inspect, TargetsNameWhatCouldDraft) {
    const Inspection found = require(inspect_path(model(), ""));
    EXPECT_EQ(found.kind, "language model [\"llama\"], GGUF");
    EXPECT_THAT(text_of(found.facts, "feature layers"), HasSubstr("layers 2, 2, 1"));
    EXPECT_THAT(found.next, Contains(HasSubstr("--drafter suffix")));
}

TEST_F(Inspect, MedusaAndHydraAreToldApart) {
    const TinyDecodingHeads medusa(target_, false, 3), hydra(target_, true, 3);
    const Inspection found = require(inspect_path(medusa.folder(), model()));
    EXPECT_EQ(found.kind, "Medusa drafter, layout FasterDecoding");
    EXPECT_EQ(text_of(found.facts, "heads"), "4 of 64 values");
    EXPECT_EQ(require(inspect_path(hydra.folder(), "")).kind, "Hydra drafter, layout FasterDecoding");
}

TEST_F(Inspect, TensorsThatAreNotFiniteAndUntrainedEmbeddingsAreFound) {
    std::vector<float> values(64, 1.5f), embeddings;
    values[13] = std::numeric_limits<float>::quiet_NaN();
    set_tensor(weights(), "norm.weight", "F32", {64}, bytes_of(values));
    // Normal values by sums of twelve uniform ones.
    std::uint32_t state = 1;
    for (int i = 0; i < tiny_gguf_vocab() * 64; ++i) {
        float sum = -6;
        for (int k = 0; k < 12; ++k)
            sum += static_cast<float>((state = state * 1664525u + 1013904223u) >> 8) / 16777216.0f;
        embeddings.push_back(0.02f * sum);
    }
    set_tensor(weights(), "embed_tokens.weight", "F32", {tiny_gguf_vocab(), 64}, bytes_of(embeddings));
    const Notes odd = require(inspect_path(eagle3_.folder(), "")).odd;
    EXPECT_THAT(odd, Contains(HasSubstr("not finite: 'norm.weight'")));
    EXPECT_THAT(odd, Contains(HasSubstr("'embed_tokens.weight' looks random")));
    for (int i = 0; i < tiny_gguf_vocab(); ++i)
        for (int k = 0; k < 64; ++k) embeddings[64 * i + k] *= 1 + 0.01f * static_cast<float>(i % 60);
    set_tensor(weights(), "embed_tokens.weight", "F32", {tiny_gguf_vocab(), 64}, bytes_of(embeddings));
    EXPECT_THAT(require(inspect_path(eagle3_.folder(), "")).odd, Not(Contains(HasSubstr("looks random"))));
}

TEST_F(Inspect, CutFilesAreReadAsFarAsTheyGo) {
    const std::string bytes = read_text(weights());
    write_text(weights(), bytes.substr(0, bytes.size() / 2));
    Inspection found = require(inspect_path(eagle3_.folder(), ""));
    EXPECT_EQ(found.kind, "EAGLE-3 drafter, layout SpecForge (SGLang)");
    EXPECT_THAT(found.unread, Contains(HasSubstr("the file is truncated")));
    EXPECT_THAT(found.unread, Contains(HasSubstr("tensors lie beyond the file's end")));
    EXPECT_FALSE(stack(found, "Draftscope").loads);
    write_text(weights(), bytes.substr(0, 20));  // the header is cut: the config remains
    found = require(inspect_path(eagle3_.folder(), ""));
    EXPECT_EQ(found.kind, "EAGLE-3 drafter, layout SpecForge (SGLang)");
    EXPECT_THAT(text_of(found.facts, "layers"), HasSubstr("1 of 64 values; 4 attention heads of 16, 2 for"));

    const std::string whole = read_text(model());
    for (const std::size_t size :
         {whole.size() - 100, whole.size() / 2, std::size_t{3000}, std::size_t{200}}) {
        write_text(model(), whole.substr(0, size));
        found = require(inspect_path(model(), ""));
        EXPECT_EQ(found.unread.empty(), false) << size;
        EXPECT_THAT(found.kind, HasSubstr("language model")) << size;
    }
}

TEST_F(Inspect, UnknownFilesAreRefused) {
    write_text(folder_.file("notes.txt"), "Some notes about nothing.");
    std::filesystem::create_directory(folder_.file("empty"));
    write_text(folder_.file("short"), "x");
    for (const char* name : {"notes.txt", "empty", "short", "missing"}) {
        const auto found = inspect_path(folder_.file(name), "");
        ASSERT_FALSE(found.ok()) << name;
        EXPECT_EQ(found.error().kind, ErrorKind::bad_input);
        EXPECT_THAT(found.error().message, HasSubstr(folder_.file(name)));
    }
    // A folder with a model in it says so.
    EXPECT_THAT(text_of(require(inspect_path(folder_.path(), "")).facts, "tiny.gguf"),
                HasSubstr("language model"));
}

/// --fix to each layout and back: tensors, maps and config mean the same.
TEST_F(Inspect, LayoutsAreWritten) {
    const std::string vllm = folder_.file("vllm"), sglang = folder_.file("sglang"),
                      ours = folder_.file("ours");
    const Notes changes = require(write_in_layout(eagle3_.folder(), "", "vllm", vllm));
    EXPECT_THAT(
        changes,
        Contains(HasSubstr("midlayer.self_attn.q_proj.weight becomes layers.0.self_attn.q_proj.weight")));
    const json config = json::parse(read_text(vllm + "/config.json"));
    EXPECT_EQ(config["eagle_aux_hidden_state_layer_ids"], json({1, 2, 3}));  // entering
    EXPECT_EQ(config["draft_vocab_size"], 6);
    EXPECT_EQ(config["transformer_layer_config"]["num_key_value_heads"], 2);
    const auto file = require(open_tensor_file(vllm + "/model.safetensors"));
    // Rows are sorted by token: 2, 9, 11, 30, 40, 200.
    EXPECT_EQ(require(file->read_integers("d2t")), (std::vector<std::int64_t>{2, 8, 9, 27, 36, 195}));
    const auto marks = require(file->read_integers("t2d"));
    ASSERT_EQ(std::ssize(marks), tiny_gguf_vocab());
    EXPECT_EQ(std::ranges::count(marks, 1), 6);
    EXPECT_EQ(marks[200], 1);
    const auto before = require(open_tensor_file(weights()));
    std::vector<float> a(64), b(64);
    const std::array<int, 6> order = {1, 0, 3, 5, 2, 4};  // the old rows of these tokens
    for (int row = 0; row < 6; ++row) {
        file->read_row(*file->find("lm_head.weight"), row, a.data());
        before->read_row(*before->find("lm_head.weight"), order[row], b.data());
        for (int i = 0; i < 64; ++i) EXPECT_NEAR(a[i], b[i], 1e-3 + 1e-3 * std::abs(b[i]));
    }
    EXPECT_THAT(text_of(require(inspect_path(vllm, "")).facts, "LM head"), HasSubstr("d2t holds offsets"));
    require(write_in_layout(vllm, "", "sglang", sglang));
    const json forged = json::parse(read_text(sglang + "/config.json"));
    EXPECT_EQ(forged["eagle_config"]["eagle_aux_hidden_state_layer_ids"], json({0, 1, 2}));  // leaving
    EXPECT_EQ(forged["architectures"], json({"LlamaForCausalLMEagle3"}));
    EXPECT_NE(require(open_tensor_file(sglang + "/model.safetensors"))->find("midlayer.mlp.up_proj.weight"),
              nullptr);
    EXPECT_EQ(require(inspect_path(sglang, "")).kind, "EAGLE-3 drafter, layout SpecForge (SGLang)");
    EXPECT_EQ(require(inspect_path(vllm, "")).kind, "EAGLE-3 drafter, layout speculators (vLLM)");
    require(write_in_layout(sglang, model(), "draftscope", ours));
    EXPECT_EQ(json::parse(read_text(ours + "/config.json"))["eagle_aux_hidden_state_layer_ids"],
              json({1, 2, 3}));
    const auto again = write_in_layout(sglang, "", "draftscope", ours);
    ASSERT_FALSE(again.ok());
    EXPECT_THAT(again.error().message, HasSubstr("exists; name a new folder"));
}

TEST_F(Inspect, MissingHeadsAreTakenFromTheTarget) {
    const TinyEagle3 without(target_, 9);
    json config = json::parse(read_text(without.folder() + "/config.json"));
    config["eagle_config"] = {{"eagle_aux_hidden_state_layer_ids", {0, 1, 2}}};
    write_text(without.folder() + "/config.json", config.dump());
    const auto alone = write_in_layout(without.folder(), "", "sglang", folder_.file("a"));
    ASSERT_FALSE(alone.ok());
    EXPECT_THAT(alone.error().message, HasSubstr("lm_head.weight is missing"));
    require(write_in_layout(without.folder(), model(), "sglang", folder_.file("b")));
    const auto file = require(open_tensor_file(folder_.file("b") + "/model.safetensors"));
    EXPECT_EQ(file->find("lm_head.weight")->rows(), tiny_gguf_vocab());
}

TEST_F(Inspect, HeadFilesOfTheDemoAreKnown) {
    const std::string assets = std::string(DS_SOURCE_DIR) + "/assets/";
    EXPECT_EQ(require(inspect_path(assets + "heads/eagle3/slimspec.safetensors", "")).kind,
              "weights of head slimspec");
    const Inspection ranking = require(inspect_path(assets + "heads/demo_ranking.safetensors", model()));
    EXPECT_THAT(ranking.kind, HasSubstr("token ranking"));
    EXPECT_EQ(text_of(ranking.facts, "tokens"), "49152, 0 to 49151");
    EXPECT_THAT(text_of(ranking.differences, "tokenizer"), HasSubstr("2e06259f68592fc6"));
    EXPECT_EQ(require(inspect_path(assets + "heads/eagle3", "")).facts.size(), 5u);
}

}  // namespace
}  // namespace draftscope::testing
