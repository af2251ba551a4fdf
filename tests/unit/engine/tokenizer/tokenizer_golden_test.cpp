// Compares the demo model's tokenizer and chat template with the `tokenizers` library and Jinja (expected
// values: tools/make_tokenizer_golden.py).
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "base/utf8.h"
#include "engine/formats/gguf_model.h"
#include "engine/formats/hf_folder.h"
#include "engine/formats/model_file.h"
#include "engine/tokenizer/pretokenizer.h"
#include "tests/support/demo_model.h"
#include "tests/support/results.h"
#include "tests/support/scratch_folder.h"

namespace draftscope {
namespace {

using Json = nlohmann::json;

const Json& golden() {
    static const Json json =
        Json::parse(std::ifstream(std::string(DS_SOURCE_DIR) + "/tests/golden/model/tokenizer.json"));
    return json;
}

std::vector<TokenId> read_ids(const Json& json) {
    return json.get<std::vector<TokenId>>();
}

std::string fnv(const std::vector<TokenId>& ids) {
    std::uint64_t value = 0xcbf29ce484222325u;
    for (const TokenId id : ids) {
        for (int byte = 0; byte < 4; ++byte)
            value = (value ^ (static_cast<std::uint32_t>(id) >> (8 * byte) & 0xffu)) * 0x100000001b3u;
    }
    return fmt::format("{:016x}", value);
}

class TokenizerGolden : public ::testing::Test {
  protected:
    static void SetUpTestSuite() {
        if (!testing::demo_model_present()) return;
        auto opened = open_model_file(testing::demo_model_path());
        if (opened.ok()) file_ = new ModelFile(std::move(opened).value());
    }
    static void TearDownTestSuite() {
        delete file_;
        file_ = nullptr;
    }
    void SetUp() override {
        ASSERT_TRUE(testing::demo_model_present()) << testing::demo_model_hint();
        ASSERT_NE(file_, nullptr) << "the demo model cannot be opened";
    }
    static const Tokenizer& tokenizer() { return *file_->tokenizer; }
    static std::string render(const Json& messages) {
        std::vector<ChatMessage> turns;
        for (const Json& turn : messages) turns.push_back({turn[0], turn[1]});
        return file_->chat.render(turns).value();
    }
    static std::string render_prompt(const Json& text) {
        return file_->chat.render({{"user", text.get<std::string>()}}).value();
    }
    static inline ModelFile* file_ = nullptr;
};

/// tokenizer.json of the demo model's vocabulary, as in its publisher's folder.
std::string write_tokenizer_json(const std::string& folder, bool merges_as_pairs) {
    const auto gguf = GgufFile::open(testing::demo_model_path());
    Notes notes;
    const auto spec = read_gguf_tokenizer(*gguf, notes);
    Json vocab = Json::object(), merges = Json::array(), added = Json::array();
    for (std::size_t id = 0; id < spec->tokens.size(); ++id) {
        vocab[spec->tokens[id]] = id;
        if (spec->types[id] == 3)
            added.push_back({{"id", id}, {"content", spec->tokens[id]}, {"special", true}});
    }
    for (const std::string& merge : spec->merges) {
        const std::size_t space = merge.find(' ');
        if (merges_as_pairs)
            merges.push_back({merge.substr(0, space), merge.substr(space + 1)});
        else
            merges.push_back(merge);
    }
    const Json digits = {{"type", "Digits"}, {"individual_digits", true}};
    const Json bytes = {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", true}};
    const Json json = {{"added_tokens", added},
                       {"normalizer", Json()},
                       {"pre_tokenizer", {{"type", "Sequence"}, {"pretokenizers", {digits, bytes}}}},
                       {"model", {{"type", "BPE"}, {"vocab", vocab}, {"merges", merges}}}};
    std::ofstream(folder + "/tokenizer.json") << json.dump();
    std::ofstream(folder + "/config.json") << R"({"eos_token_id": 2})";
    return folder;
}

TEST_F(TokenizerGolden, IdsOfTextsFromTokenizerJson) {
    for (const bool pairs : {false, true}) {
        const testing::ScratchFolder scratch;
        const std::string folder = write_tokenizer_json(scratch.path(), pairs);
        const auto config = JsonFile::read(folder + "/config.json", "this test");
        auto spec = read_hf_tokenizer(folder, *config);
        ASSERT_TRUE(is_ok(spec));
        const auto read = require(Tokenizer::create(std::move(spec).value()));
        for (const Json& sample : golden()["texts"])
            EXPECT_EQ(read->encode(sample["text"].get<std::string>(), true), read_ids(sample["ids"]))
                << sample["text"];
        EXPECT_EQ(read->fingerprint(), tokenizer().fingerprint());
        EXPECT_EQ(read->size(), tokenizer().size());
        EXPECT_TRUE(read->is_eos(2));
    }
}

TEST_F(TokenizerGolden, IdsOfTexts) {
    ASSERT_GT(golden()["texts"].size(), 200u);
    for (const Json& sample : golden()["texts"]) {
        const auto text = sample["text"].get<std::string>();
        EXPECT_EQ(tokenizer().encode(text, true), read_ids(sample["ids"])) << sample["text"];
        EXPECT_EQ(tokenizer().encode(text, false), read_ids(sample["plain"])) << sample["text"];
    }
}

/// Returns the text that the script made from the characters of a block.
std::string block_text(const std::string& characters) {
    std::string out;
    for (std::string_view rest = characters; !rest.empty();) {
        const std::string c(rest.substr(0, next_utf8(rest).length));
        out += c + "a " + c + " b" + c + c + " 1" + c + "\n";
        rest.remove_prefix(c.size());
    }
    return out;
}

TEST_F(TokenizerGolden, IdsOfEveryAssignedCharacter) {
    ASSERT_GT(golden()["blocks"].size(), 300u);
    for (const auto& [first, block] : golden()["blocks"].items()) {
        const std::string text = block_text(block["characters"].get<std::string>());
        EXPECT_EQ(fnv(tokenizer().encode(text, true)), block["hash"].get<std::string>()) << first;
    }
}

TEST_F(TokenizerGolden, IdsOfPromptFiles) {
    for (const auto& [name, hashes] : golden()["prompt_hashes"].items()) {
        std::ifstream lines(std::string(DS_SOURCE_DIR) + "/assets/prompts/" + name + ".jsonl");
        std::size_t row = 0;
        for (std::string line; std::getline(lines, line); ++row) {
            const Json prompt = Json::parse(line);
            const Json text = prompt.contains("turns") ? prompt["turns"][0] : prompt["prompt"];
            const auto ids = tokenizer().encode(render_prompt(text), true);
            ASSERT_EQ(Json({ids.size(), fnv(ids)}), hashes[row]) << name << " line " << row;
        }
        EXPECT_EQ(row, hashes.size());
    }
}

TEST_F(TokenizerGolden, IdsOfReferencePrompts) {
    std::map<int, std::vector<TokenId>> expected;
    for (const Json& prompt : golden()["prompts"]) expected[prompt["id"]] = read_ids(prompt["ids"]);
    ASSERT_EQ(expected.size(), 10u);
    std::ifstream lines(std::string(DS_SOURCE_DIR) + "/assets/prompts/spec_bench_half.jsonl");
    std::size_t seen = 0;
    for (std::string line; std::getline(lines, line);) {
        const Json prompt = Json::parse(line);
        const auto found = expected.find(prompt["question_id"].get<int>());
        if (found == expected.end()) continue;
        ++seen;
        EXPECT_EQ(tokenizer().encode(render_prompt(prompt["turns"][0]), true), found->second);
    }
    EXPECT_EQ(seen, expected.size());
}

TEST_F(TokenizerGolden, ChatsRenderAsJinjaRendersThem) {
    EXPECT_FALSE(file_->chat.is_raw());
    EXPECT_EQ(file_->chat.problem(), "");
    for (const Json& chat : golden()["chats"])
        EXPECT_EQ(render(chat["messages"]), chat["text"].get<std::string>());
}

TEST_F(TokenizerGolden, SpecialIds) {
    EXPECT_EQ(tokenizer().size(), 49152);
    EXPECT_EQ(tokenizer().eos(), (std::vector<TokenId>{2, 0}));
    EXPECT_TRUE(tokenizer().is_eos(0));
    EXPECT_FALSE(tokenizer().is_eos(1));
    EXPECT_EQ(tokenizer().bos(), 1);
    EXPECT_FALSE(tokenizer().add_bos());
    EXPECT_TRUE(tokenizer().is_control(16));
    EXPECT_FALSE(tokenizer().is_control(17));
    EXPECT_EQ(tokenizer().token_bytes(2), "<|im_end|>");
    EXPECT_EQ(tokenizer().token_bytes(-1), "");
    EXPECT_EQ(tokenizer().token_bytes(49152), "");
    EXPECT_EQ(tokenizer().decode({1, 2}), "");
    EXPECT_EQ(tokenizer().decode({1, 2}, true), "<|im_start|><|im_end|>");
}

TEST(PreTokenizerGolden, PiecesOfEveryPattern) {
    ASSERT_EQ(golden()["pieces"].size(), 4u);
    for (const auto& [name, samples] : golden()["pieces"].items()) {
        const auto splitter = require(PreTokenizer::create(name, "test"));
        for (const Json& sample : samples) {
            const auto text = sample["text"].get<std::string>();
            std::vector<std::string_view> pieces;
            splitter.split(text, pieces);
            EXPECT_EQ(Json(pieces), sample["pieces"]) << name << ": " << sample["text"];
        }
    }
}

}  // namespace
}  // namespace draftscope
