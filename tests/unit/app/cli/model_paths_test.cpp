#include <gmock/gmock.h>

#include "tests/support/tiny_checkpoint.h"
#include "tests/unit/app/cli/program.h"

// How paths are written: "~/" in any option, ids of the hub, and what a folder holds.
namespace draftscope::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
namespace fs = std::filesystem;

class ModelPaths : public ::testing::Test {
  protected:
    ProcessResult decode(const Arguments& more) const {
        return run(home_, Arguments{"run", "--quiet", "--json"} + more, {.home = home_.path().c_str()});
    }
    ScratchFolder home_;
};

TEST_F(ModelPaths, ExpandTheHomeFolderInAnyOption) {
    const std::string model = tiny_model(home_);
    ASSERT_TRUE(write_tiny_eagle2(home_.file("eagle2"), 5).ok());
    write_text(home_.file("p.jsonl"), "{\"prompt\": \"hello\"}\n");
    const auto done =
        parse_output(decode({"--model=~/tiny256.gguf", "--drafter", "eagle2:~/eagle2,rope=target",
                             "--prompts", "~/p.jsonl", "--save", "~/x.dscope"}));
    EXPECT_EQ(done["prompts"].size(), 1u);
    EXPECT_TRUE(fs::exists(home_.file("x.dscope")));
    expect_one_line_error(decode({"--model", "~/other.gguf", "--prompt", "hi"}),
                          {home_.file("other.gguf"), "no such file"});
}

TEST_F(ModelPaths, KeepTextsAsTheyAre) {
    const std::string model = tiny_model(home_);
    const auto tokens = [&](const char* prompt) {
        return parse_output(decode({"--model", model, "--drafter", "none", "--raw", "--prompt",
                                    prompt}))["prompts"][0]["prompt_tokens"];
    };
    EXPECT_EQ(tokens("~/a"), tokens("!/a"));
}

TEST_F(ModelPaths, TakeAHubIdFromTheLocalCache) {
    const fs::path hub = fs::path(home_.path()) / ".cache/huggingface/hub/models--org--Tiny-1B";
    fs::create_directories(hub / "snapshots");
    fs::create_directories(hub / "refs");
    const Arguments tiny = {"--model", "org/Tiny-1B", "--drafter", "none", "--prompt", "hi"};
    expect_one_line_error(
        decode(tiny), {"--model org/Tiny-1B", "no such model in the hub's cache", "hf download org/Tiny-1B"});
    fs::copy(std::string(DS_SOURCE_DIR) + "/tests/golden/models/qwen2", hub / "snapshots" / "aa");
    const ProcessResult only = decode(tiny);
    EXPECT_THAT(only.err, HasSubstr("taken from the hub's cache: " + (hub / "snapshots/aa").string()));
    EXPECT_THAT(parse_output(only)["notes"].dump(), HasSubstr("taken from the hub's cache"));
    fs::create_directories(hub / "snapshots" / "bb");
    expect_one_line_error(decode(tiny), {"no such model in the hub's cache"});
    write_text((hub / "refs" / "main").string(), "aa");
    EXPECT_EQ(decode(tiny).exit_code, 0);
    expect_one_line_error(decode({"--model", "models/x.gguf", "--prompt", "hi"}),
                          {"models/x.gguf: no such file or folder\n"});
    const std::string model = tiny_model(home_);
    expect_one_line_error(decode({"--model", model, "--drafter", "eagle3:org/Eagle3", "--prompt", "hi"}),
                          {"--drafter eagle3: org/Eagle3", "hf download org/Eagle3"});
}

TEST_F(ModelPaths, LimitTheContext) {
    const std::string model = tiny_model(home_);
    const Arguments base = {"--model",  model,       "--drafter", "ngram", "--raw",
                            "--prompt", "hello you", "--max-new", "100",   "--ignore-eos"};
    const auto done = parse_output(decode(base + Arguments{"--context", "40"}));
    const auto& prompt = done["prompts"][0];
    EXPECT_EQ(prompt["prompt_tokens"].get<std::size_t>() + prompt["tokens"].size(), 40u);
    const auto whole = parse_output(decode(base));
    EXPECT_EQ(whole["prompts"][0]["tokens"].size(), 100u);
    expect_one_line_error(decode(base + Arguments{"--context", "300"}),
                          {"--context 300: is more than the 256 positions of " + model});
    expect_one_line_error(decode(base + Arguments{"--context", "-1"}), {"--context -1: must be at least 1"});
    expect_one_line_error(decode(base + Arguments{"--context", "3"}), {"context of 3"});
    const ProcessResult recorded =
        run(home_, {"record", "--model", model, "--raw", "--prompt", "hello you", "--max-new", "100",
                    "--ignore-eos", "--context", "40", "--out", home_.file("r"), "--no-times"});
    EXPECT_EQ(recorded.exit_code, 0) << recorded.err;
    EXPECT_THAT(read_text(home_.file("r/trace.json")), HasSubstr("\"context\": 40"));
}

}  // namespace
}  // namespace draftscope::testing
