#include <nlohmann/json.hpp>

#include "engine/recording/recording.h"
#include "tests/support/tiny_checkpoint.h"
#include "tests/unit/app/cli/program.h"
#include "tests/unit/app/cli/sql.h"

/// record --ids: the target follows the texts of a capture or of another engine.
namespace draftscope::testing {
namespace {

using nlohmann::json;

class GivenTextsRecord : public ::testing::Test {
  protected:
    GivenTextsRecord() : model_(tiny_model(scratch_, 512)) {
        write_text(scratch_.file("prompts.jsonl"),
                   R"({"id": "q0", "category": "a", "prompt": "hello you"})"
                   "\n"
                   R"({"id": "q1", "category": "b", "turns": ["say it", "and again"]})"
                   "\n");
    }
    std::string file(const std::string& name) const { return scratch_.file(name); }
    ProcessResult go(const Arguments& words) const { return run(scratch_, words); }
    Arguments decode_words(const std::string& command) const {
        return arguments(command +
                             " --model {} --prompts {} --max-new 24 --ignore-eos --threads 1 --precision f32 "
                             "--quiet --json",
                         model_, file("prompts.jsonl"));
    }
    ProcessResult follow(const std::string& ids, const std::string& out, const Arguments& more = {}) const {
        return go(arguments("record --ids {} --model {} --out {} --threads 1 --precision f32 --no-times "
                            "--quiet --json",
                            ids, model_, out) +
                  more);
    }
    /// Writes one request of another engine: `text` is committed one token a round after the first.
    std::string write_rounds(const std::string& name, const json& request, const std::vector<int>& text) {
        json first = request;
        first.update({{"req", "r"}, {"first_id", text.front()}});
        std::string lines = R"({"dsrounds":1,"engine":"other","first_token":"prefill","temperature":0})"
                            "\n" +
                            first.dump() + "\n";
        for (std::size_t i = 1; i < text.size(); ++i)
            lines += json{{"req", "r"}, {"i", i - 1}, {"d", 1}, {"a", 0}, {"out", {text[i]}}}.dump() + "\n";
        write_text(file(name), lines);
        return file(name);
    }

    ScratchFolder scratch_;
    std::string model_;
};

TEST_F(GivenTextsRecord, ACaptureIsRecordedAsTheTargetDecodesIt) {
    ASSERT_TRUE(write_tiny_eagle2(file("eagle2"), 5).ok());
    const Arguments drafter = {"--drafter", "eagle2:" + file("eagle2")};
    const json live =
        parse_output(go(decode_words("run") + drafter + Arguments{"--save", file("live.dscope")}));
    parse_output(go(decode_words("record") + Arguments{"--out", file("decoded"), "--no-times"}));
    const json followed = parse_output(follow(file("live.dscope"), file("followed")));
    EXPECT_EQ(followed["prompts"], 3);
    EXPECT_EQ(followed["given"]["tokens"], 3 * 24);
    EXPECT_EQ(followed["given"]["agreed"], 3 * 24);
    EXPECT_EQ(followed["given"]["largest_gap"], 0.0);
    EXPECT_TRUE(read_text(file("followed/trace.safetensors")) ==
                read_text(file("decoded/trace.safetensors")));
    json a = json::parse(read_text(file("decoded/trace.json"))),
         b = json::parse(read_text(file("followed/trace.json")));
    for (json* prompts : {&a["prompts"], &b["prompts"]})
        for (json& one : *prompts) one.erase("suite");
    EXPECT_EQ(a["prompts"], b["prompts"]);
    EXPECT_EQ(b["given"]["file"], "live.dscope");
    const json replayed = parse_output(go(
        arguments("replay --recording {} --model {} --threads 1 --quiet --json", file("followed"), model_) +
        drafter));
    EXPECT_EQ(replayed["heads"][0]["rounds"], live["totals"]["rounds"]);
    EXPECT_EQ(replayed["heads"][0]["committed"], live["totals"]["committed"]);
    EXPECT_EQ(replayed["heads"][0]["exact"], true);
}

TEST_F(GivenTextsRecord, AnAlteredTokenLowersTheAgreement) {
    parse_output(go(decode_words("record") + Arguments{"--out", file("decoded"), "--no-times"}));
    const auto decoded = DecodeRecording::open(file("decoded"));
    ASSERT_TRUE(decoded.ok());
    const RecordedPrompt& about = (*decoded)->prompts()[0];
    const std::vector<TokenId> all = (*decoded)->tokens(about);
    const std::vector<int> prompt(all.begin(), all.begin() + about.prompt_tokens);
    std::vector<int> text(all.begin() + about.prompt_tokens, all.end());
    constexpr int altered = 20;
    text[altered] = text[altered] == 40 ? 41 : 40;
    const std::string rounds = write_rounds("r.jsonl", {{"prompt_ids", prompt}}, text);
    const ProcessResult done = follow(rounds, file("followed"));
    const json report = parse_output(done);
    EXPECT_EQ(report["given"]["tokens"], 24);
    EXPECT_LT(report["given"]["agreed"], 24);
    EXPECT_GE(report["given"]["agreed"], altered);
    EXPECT_GT(report["given"]["largest_gap"], 0.0);
    EXPECT_NE(done.err.find("the target's best token is the given one at"), std::string::npos) << done.err;
    const auto followed = DecodeRecording::open(file("followed"));
    ASSERT_TRUE(followed.ok());
    std::vector<TokenId> expected(prompt);
    expected.insert(expected.end(), text.begin(), text.end());
    EXPECT_EQ((*followed)->tokens((*followed)->prompts()[0]), expected);
    const int same = about.prompt_tokens + altered;
    for (int row = 0; row < same; ++row)
        ASSERT_EQ((*followed)->best(row, 4), (*decoded)->best(about.first_row + row, 4)) << row;
}

TEST_F(GivenTextsRecord, TextOfAPromptIsTokenisedAsItIs) {
    const std::string text = "<|im_start|>hi";
    const std::string known = write_rounds("text.jsonl", {{"prompt", text}, {"prompt_tokens", 3}}, {5, 6, 7});
    const ProcessResult done = follow(known, file("text"));
    parse_output(done);
    EXPECT_NE(done.err.find("1 of 1 prompts are known as text"), std::string::npos) << done.err;
    const auto recording = DecodeRecording::open(file("text"));
    ASSERT_TRUE(recording.ok());
    EXPECT_EQ((*recording)->prompts()[0].prompt_tokens, 3);
    EXPECT_EQ((*recording)->tokens((*recording)->prompts()[0])[0], 1);  // <|im_start|>
    const std::string other = write_rounds("other.jsonl", {{"prompt", text}, {"prompt_tokens", 9}}, {5, 6});
    expect_one_line_error(follow(other, file("other")), {"prompt r", "3 tokens here, and 9 by the file"});
}

/// A capture has no place for ids of prompts, but the model's vocabulary gives their text.
TEST_F(GivenTextsRecord, AnImportedCaptureKnowsThePromptByItsText) {
    const std::string rounds = write_rounds("r.jsonl", {{"prompt_ids", {1, 40, 41}}}, {5, 6, 7});
    ASSERT_EQ(go({"import", rounds, "--out", file("bare.dscope")}).exit_code, 0);
    expect_one_line_error(follow(file("bare.dscope"), file("bare")), {"prompt r", "neither ids nor text"});
    ASSERT_EQ(go({"import", rounds, "--model", model_, "--out", file("known.dscope")}).exit_code, 0);
    parse_output(follow(file("known.dscope"), file("known")));
    parse_output(follow(rounds, file("direct")));
    EXPECT_TRUE(read_text(file("known/trace.safetensors")) == read_text(file("direct/trace.safetensors")));
}

TEST_F(GivenTextsRecord, NamesWhatCannotBeFollowed) {
    const std::string large = write_rounds("large.jsonl", {{"prompt_ids", {1, 2}}}, {5, 60'000, 7});
    expect_one_line_error(follow(large, file("x")), {"prompt r", "id 60000 at position 1 of its text"});
    const std::string nothing = write_rounds("nothing.jsonl", json::object(), {5, 6});
    expect_one_line_error(follow(nothing, file("x")), {"prompt r", "neither ids nor text"});
    expect_one_line_error(follow(file("absent"), file("x")), {"absent"});
    write_text(file("counts.jsonl"), "{\"dsrounds\":1}\n{\"req\":\"r\",\"a\":1}\n");
    expect_one_line_error(follow(file("counts.jsonl"), file("x")), {"prompt r", "no token ids of its text"});
    EXPECT_EQ(follow(nothing, file("x"), {"--prompt", "hi"}).exit_code, 2);
    EXPECT_FALSE(std::filesystem::exists(file("x")));
}

/// What follows an unknown token cannot be recorded; what lies before it can.
TEST_F(GivenTextsRecord, ATextEndsBeforeAnUnknownToken) {
    write_text(file("gap.jsonl"), R"({"dsrounds":1,"engine":"other","first_token":"prefill","temperature":0}
{"req":"r","prompt_ids":[1,40],"first_id":5}
{"req":"r","i":0,"a":1,"out":[6,7]}
{"req":"r","i":1,"a":0}
{"req":"r","i":2,"a":0,"out":[8]}
)");
    const ProcessResult done = follow(file("gap.jsonl"), file("gap"));
    EXPECT_EQ(parse_output(done)["given"]["tokens"], 3);
    EXPECT_NE(done.err.find("token 3 is not known"), std::string::npos) << done.err;
    const json info = json::parse(read_text(file("gap/trace.json")));
    EXPECT_EQ(info["prompts"][0]["finish"], "cancelled");
}

}  // namespace
}  // namespace draftscope::testing
