// Compares SentencePiece's BPE from GGUF and tokenizer.json with the `sentencepiece` and `tokenizers`
// libraries. tools/make_sentencepiece_golden.py trained the model and wrote the expected ids.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "engine/chat_template/chat_template.h"
#include "engine/formats/gguf_model.h"
#include "engine/formats/hf_folder.h"
#include "tests/support/gguf_writer.h"
#include "tests/support/results.h"
#include "tests/support/scratch_folder.h"

namespace draftscope {
namespace {

using Json = nlohmann::json;
using ::testing::HasSubstr;

const Json& golden() {
    static const Json json =
        Json::parse(std::ifstream(std::string(DS_SOURCE_DIR) + "/tests/golden/model/sentencepiece.json"));
    return json;
}

std::vector<TokenId> read_ids(const Json& json) {
    return json.get<std::vector<TokenId>>();
}

std::unique_ptr<Tokenizer> created(Result<TokenizerSpec> spec) {
    EXPECT_TRUE(is_ok(spec));
    if (!spec.ok()) return nullptr;
    auto made = Tokenizer::create(std::move(spec).value());
    EXPECT_TRUE(is_ok(made));
    return made.ok() ? std::move(made).value() : nullptr;
}

testing::GgufWriter gguf_file() {
    testing::GgufWriter out;
    out.add("tokenizer.ggml.model", std::string("llama"));
    out.add("tokenizer.ggml.tokens", golden()["pieces"].get<std::vector<std::string>>());
    out.add("tokenizer.ggml.scores", golden()["scores"].get<std::vector<float>>());
    out.add("tokenizer.ggml.token_type", golden()["types"].get<std::vector<std::int32_t>>());
    return out;
}

Result<TokenizerSpec> read(const testing::GgufWriter& writer) {
    const testing::ScratchFolder folder;
    DS_TRY(writer.write(folder.file("m.gguf")));
    DS_ASSIGN(const GgufFile file, GgufFile::open(folder.file("m.gguf")));
    Notes notes;
    return read_gguf_tokenizer(file, notes);
}

/// Writes tokenizer.json in the golden file's "older" or "newer" format, modified by `change`.
Result<TokenizerSpec> read_json(const char* way, const std::function<void(Json&)>& change = {}) {
    Json json = golden()[way];
    Json vocab = Json::object();
    for (std::size_t i = 0; i < golden()["pieces"].size(); ++i)
        vocab[golden()["pieces"][i].get<std::string>()] = i;
    json["model"]["vocab"] = vocab;
    json["model"]["merges"] = golden()["merges"];
    if (change) change(json);
    const testing::ScratchFolder folder;
    std::ofstream(folder.file("tokenizer.json")) << json.dump();
    std::ofstream(folder.file("config.json")) << R"({"eos_token_id": 2})";
    DS_ASSIGN(const JsonFile config, JsonFile::read(folder.file("config.json"), "this test"));
    return read_hf_tokenizer(folder.path(), config);
}

TEST(SentencePieces, GgufIdsMatchSentencePiece) {
    const auto tokenizer = created(read(gguf_file()));
    ASSERT_NE(tokenizer, nullptr);
    ASSERT_GT(golden()["texts"].size(), 200u);
    for (const Json& sample : golden()["texts"]) {
        const auto text = sample["text"].get<std::string>();
        const auto ids = tokenizer->encode(text, false);
        EXPECT_EQ(ids, read_ids(sample["sentencepiece"])) << sample["text"];
        // The library removes the leading space.
        const std::string front = text.empty() ? "" : " ";
        EXPECT_EQ(tokenizer->decode(ids), front + sample.value("decoded", text)) << sample["text"];
    }
    EXPECT_EQ(tokenizer->bos(), 1);
    EXPECT_TRUE(tokenizer->add_bos());
    EXPECT_EQ(tokenizer->eos(), (std::vector<TokenId>{2}));
}

TEST(SentencePieces, TokenizerJsonIdsMatchTheTokenizersLibrary) {
    for (const char* way : {"older", "newer"}) {
        const auto tokenizer = created(read_json(way));
        ASSERT_NE(tokenizer, nullptr);
        for (const Json& sample : golden()["texts"])
            EXPECT_EQ(tokenizer->encode(sample["text"].get<std::string>(), true),
                      read_ids(sample.value(way, sample["sentencepiece"])))
                << way << ": " << sample["text"];
        EXPECT_TRUE(tokenizer->is_eos(2));
    }
}

TEST(SentencePieces, ControlTokensAreParsedOnRequest) {
    const auto tokenizer = created(read(gguf_file()));
    ASSERT_NE(tokenizer, nullptr);
    const auto parsed = tokenizer->encode("<s>hello</s>", true);
    ASSERT_GE(parsed.size(), 3u);
    EXPECT_EQ(parsed.front(), 1);
    EXPECT_EQ(parsed.back(), 2);
    EXPECT_EQ(tokenizer->decode(parsed), " hello");
    EXPECT_EQ(tokenizer->decode(tokenizer->encode("<s>hello</s>", false)), " <s>hello</s>");
    EXPECT_EQ(tokenizer->encode("", true), std::vector<TokenId>{});
}

TEST(SentencePieces, WithoutASpaceInFront) {
    testing::GgufWriter file = gguf_file();
    file.add("tokenizer.ggml.add_space_prefix", false);
    file.add("tokenizer.ggml.add_bos_token", false);
    const auto tokenizer = created(read(file));
    ASSERT_NE(tokenizer, nullptr);
    EXPECT_FALSE(tokenizer->add_bos());
    EXPECT_EQ(tokenizer->decode(tokenizer->encode("two words", false)), "two words");
    EXPECT_NE(tokenizer->fingerprint(), created(read(gguf_file()))->fingerprint());
}

TEST(SentencePieces, ChatsRenderAsJinjaRendersThem) {
    ASSERT_EQ(golden()["chats"].size(), 2u);
    for (const auto& [name, chat] : golden()["chats"].items()) {
        const auto made =
            ChatTemplate::from_source(chat["template"].get<std::string>(), "m.gguf", {"<s>", "</s>"});
        EXPECT_GE(chat["rendered"].size(), 4u);
        for (const Json& row : chat["rendered"]) {
            std::vector<ChatMessage> turns;
            for (const Json& turn : row["messages"]) turns.push_back({turn[0], turn[1]});
            EXPECT_EQ(*made.render(turns), row["text"].get<std::string>()) << name;
        }
    }
}

RC_GTEST_PROP(SentencePieces, DecodeOfEncodeIsTheTextForAnyBytes, (const std::vector<std::uint8_t>& bytes)) {
    static const auto by_score = created(read(gguf_file()));
    static const auto by_rank = created(read_json("older"));
    const std::string text(bytes.begin(), bytes.end());
    const std::string expected = text.empty() ? "" : " " + text;
    RC_ASSERT(by_score->decode(by_score->encode(text, false)) == expected);
    RC_ASSERT(by_rank->decode(by_rank->encode(text, false)) == expected);
}

TEST(SentencePieces, EncodesTheRestAsUnknown) {
    TokenizerSpec spec;
    spec.file = "m.gguf";
    spec.model = "llama";
    spec.tokens = {"<unk>", "\xe2\x96\x81", "a",
                   "\xe2\x96\x81"
                   "a"};
    spec.types = {2, 1, 1, 1};
    spec.pieces.scores = {0, -2, -3, -1};
    spec.pieces.unknown = 0;
    const auto tokenizer = created(spec);
    ASSERT_NE(tokenizer, nullptr);
    EXPECT_EQ(tokenizer->encode("axya", false), (std::vector<TokenId>{3, 0, 2}));
    EXPECT_EQ(tokenizer->encode("a a", false), (std::vector<TokenId>{3, 3}));
}

TEST(SentencePieces, RejectsInvalidFilesWithTheReason) {
    const auto refused = [](Result<TokenizerSpec> spec) {
        if (!spec.ok()) return spec.error().message;
        const auto made = Tokenizer::create(std::move(spec).value());
        EXPECT_FALSE(made.ok());
        return made.ok() ? std::string() : made.error().message;
    };
    testing::GgufWriter file = gguf_file();
    file.remove("tokenizer.ggml.scores");
    EXPECT_THAT(refused(read(file)), HasSubstr("'tokenizer.ggml.scores' is missing"));
    file.add("tokenizer.ggml.scores", std::vector<float>{1, 2});
    EXPECT_THAT(refused(read(file)), HasSubstr("tokens but 2 scores"));
    file.remove("tokenizer.ggml.scores");
    file.add("tokenizer.ggml.scores", std::vector<std::int32_t>{1, 2});
    EXPECT_THAT(refused(read(file)), HasSubstr("expected an array of f32"));
    file = gguf_file();
    file.add("tokenizer.ggml.unknown_token_id", std::uint32_t{1500});
    EXPECT_THAT(refused(read(file)), HasSubstr("unknown-token id 1500"));
    file = gguf_file();
    auto types = golden()["types"].get<std::vector<std::int32_t>>();
    types.back() = 6;
    file.remove("tokenizer.ggml.token_type");
    file.add("tokenizer.ggml.token_type", types);
    EXPECT_THAT(refused(read(file)), HasSubstr("byte token 1499 is"));
    EXPECT_THAT(refused(read_json("newer", [](Json& json) { json["pre_tokenizer"]["split"] = true; })),
                HasSubstr("Metaspace"));
    EXPECT_THAT(refused(read_json("older", [](Json& json) { json["model"]["ignore_merges"] = true; })),
                HasSubstr("ignore_merges"));
}

}  // namespace
}  // namespace draftscope
