#include <nlohmann/json.hpp>

#include "tests/support/tiny_checkpoint.h"
#include "tests/unit/app/cli/program.h"

namespace draftscope::testing {
namespace {

using nlohmann::json;

class ProfileMachine : public ::testing::Test {
  protected:
    ProfileMachine() {
        EXPECT_TRUE(is_ok(write_tiny_eagle2(folder_.file("eagle2"), 5)));
        arguments_ = arguments(
            "profile-machine --model {} --drafters eagle2:{} --heads full --contexts 16 --batches 1 --rounds "
            "2 "
            "--threads 1 --precision f32 --quiet",
            tiny_model(folder_), folder_.file("eagle2"));
    }
    ProcessResult measure(const Arguments& more = {}) { return run(folder_, arguments_ + more); }
    /// Replaces a text of the profile.
    void edit(const std::string& from, const std::string& to) {
        std::string text = read_text(out_);
        const std::size_t at = text.find(from);
        ASSERT_NE(at, std::string::npos) << from;
        write_text(out_, text.replace(at, from.size(), to));
    }

    ScratchFolder folder_;
    std::string out_ = folder_.file("machine.json");
    Arguments arguments_;
};

TEST_F(ProfileMachine, MeasuresShowsAndPredicts) {
    const json profile = parse_output(measure({"--out", out_, "--json", "--note", "shared"}));
    EXPECT_EQ(profile["kind"], "measured");
    EXPECT_EQ(profile["note"], "shared");
    EXPECT_EQ(profile, json::parse(read_text(out_)));
    const ProcessResult shown = run(folder_, {"profile-machine", "--show", out_});
    EXPECT_EQ(shown.exit_code, 0) << shown.err;
    for (const char* text : {"measured profile", "catch_up", "eagle2", "full", "note: shared"})
        EXPECT_NE(shown.out.find(text), std::string::npos) << shown.out;
    const json predicted =
        parse_output(run(folder_, {"profile-machine", "--show", out_, "--predict", "eagle2 x full @ chain=2",
                                   "--predict", "none", "--context", "20", "--tau", "1.5", "--json"}));
    ASSERT_EQ(predicted["predictions"].size(), 2u);
    const json& chain = predicted["predictions"][0];
    const double step = chain["step_ms"];
    EXPECT_GT(step, 0);
    EXPECT_NEAR(chain["tokens_per_second"], 1500 / step, 1e-6 / step);

    EXPECT_NE(shown.out.find("control: a target pass of one row"), std::string::npos) << shown.out;

    // A rerun measures nothing again.
    const json again = parse_output(measure({"--out", out_, "--json"}));
    EXPECT_EQ(again["costs"], profile["costs"]);
    EXPECT_EQ(again["note"], "shared");
}

TEST_F(ProfileMachine, RefusesAProfileOfAnotherSetting) {
    ASSERT_EQ(measure({"--out", out_}).exit_code, 0);
    const std::string profile = read_text(out_);
    Arguments other = arguments_;
    *std::find(other.begin(), other.end(), "f32") = "bf16";
    expect_one_line_error(run(folder_, other + Arguments{"--out", out_}), {out_, "precision is f32", "bf16"});
    const std::string vocab = std::to_string(tiny_gguf_vocab());
    edit("\"vocab\": " + vocab, "\"vocab\": 77");
    expect_one_line_error(measure({"--out", out_}), {out_, "vocab is 77", vocab});
    write_text(out_, profile);
    edit("\"backend\": \"cpu\"", "\"backend\": \"cuda\"");
    expect_one_line_error(measure({"--out", out_}), {out_, "backend is cuda", "cpu"});
    write_text(out_, profile);
    edit("\"threads\": 1", "\"threads\": 9");
    expect_one_line_error(measure({"--out", out_}), {out_, "threads is 9"});
    write_text(out_, profile);
    edit("\"measured\"", "\"published\"");
    expect_one_line_error(measure({"--out", out_}), {out_, "no measured profile"});
    write_text(out_, "{}");
    expect_one_line_error(measure({"--out", out_}), {out_, "no machine profile"});
}

TEST_F(ProfileMachine, ShowsThatAFormerProfileHasNoControl) {
    const std::string former = DS_SOURCE_DIR "/assets/profiles/epyc-2-core-smollm2-135m-int8.json";
    const ProcessResult shown = run(folder_, {"profile-machine", "--show", former});
    EXPECT_EQ(shown.exit_code, 0) << shown.err;
    EXPECT_NE(shown.out.find("without a control"), std::string::npos) << shown.out;
}

TEST_F(ProfileMachine, RefusesIncompleteCommands) {
    expect_one_line_error(run(folder_, {"profile-machine"}), {"--out"});
    expect_one_line_error(run(folder_, {"profile-machine", "--out", "x", "--predict", "none"}),
                          {"--predict"});
    expect_one_line_error(run(folder_, {"profile-machine", "--show", "/nonexistent.json"}),
                          {"/nonexistent.json"});
    const std::string published = DS_SOURCE_DIR "/assets/profiles/h100-llama-3.1-8b-vllm.json";
    expect_one_line_error(
        run(folder_, {"profile-machine", "--show", published, "--predict", "medusa @ chain=2"}),
        {published, "medusa", "eagle3, ngram"});
}

}  // namespace
}  // namespace draftscope::testing
