#include <gmock/gmock.h>

#include "tests/support/tiny_drafter.h"
#include "tests/unit/app/cli/program.h"

namespace draftscope::testing {
namespace {

using ::testing::HasSubstr;

class InspectCommand : public ::testing::Test {
  protected:
    ScratchFolder folder_;
    const std::string model_ = tiny_model(folder_);
};

TEST_F(InspectCommand, CopiesOfACheckpointDraftTheSameTokens) {
    const TinyEagle3 drafter(make_tiny_model(7).config, 5);
    nlohmann::json config = nlohmann::json::parse(read_text(drafter.folder() + "/config.json"));
    config["vocab_size"] = tiny_gguf_vocab();
    config["eagle_config"]["eagle_aux_hidden_state_layer_ids"] = {1, 2, 1};
    write_text(drafter.folder() + "/config.json", config.dump());
    const auto rounds = [&](const std::string& checkpoint) {
        const auto done = parse_output(
            run(folder_, arguments("run --json --quiet --model {} --drafter {} --prompt hello "
                                   "--precision f32 --max-new 24 --ignore-eos --tree depth=3,topk=4,nodes=12",
                                   model_, "eagle3:" + checkpoint)));
        return done["heads"][0]["tau"].dump();
    };
    const std::string expected = rounds(drafter.folder());
    for (const char* layout : {"sglang", "vllm", "draftscope"}) {
        const std::string out = folder_.file(layout);
        const ProcessResult done = run(folder_, arguments("inspect {} --target {} --fix {} --layout {}",
                                                          drafter.folder(), model_, out, layout));
        ASSERT_EQ(done.exit_code, 0) << done.err;
        EXPECT_EQ(rounds(out), expected) << layout;
    }
}

TEST_F(InspectCommand, JsonHasFactsAndStacks) {
    const auto found = parse_output(run(folder_, arguments("inspect {} --json", model_)));
    EXPECT_THAT(found["kind"].get<std::string>(), HasSubstr("language model"));
    EXPECT_GT(found["facts"]["parameters"]["total"], 1000);
    EXPECT_EQ(found["stacks"][0]["stack"], "Draftscope");
    EXPECT_EQ(found["unread"].size(), 0u);
}

TEST_F(InspectCommand, WrongFilesAndOptionsAreOneLine) {
    write_text(folder_.file("notes.txt"), "some text");
    expect_one_line_error(run(folder_, {"inspect", folder_.file("notes.txt")}), {"notes.txt", "begins with"});
    expect_one_line_error(run(folder_, {"inspect", folder_.file("none")}), {"no such file or folder"});
    expect_one_line_error(run(folder_, {"inspect", model_, "--layout", "vllm"}), {"--fix"});
    expect_one_line_error(run(folder_, {"inspect", model_, "--fix", folder_.file("out")}),
                          {model_, "not EAGLE-3"});
}

TEST_F(InspectCommand, CapturesAreDescribed) {
    const std::string capture = folder_.file("run.dscope");
    ASSERT_EQ(
        run(folder_, arguments("run --model {} --drafter ngram --prompt hello --max-new 8 --quiet --save {}",
                               model_, capture))
            .exit_code,
        0);
    const ProcessResult done = run(folder_, {"inspect", capture});
    EXPECT_THAT(done.out, HasSubstr("capture of 2 runs"));
    EXPECT_THAT(done.out, HasSubstr("with ngram"));
}

}  // namespace
}  // namespace draftscope::testing
