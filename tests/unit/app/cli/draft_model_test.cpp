#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "tests/support/tiny_model.h"
#include "tests/unit/app/cli/program.h"

/// A draft model as a user calls it: heads of its own LM head, by recording or by its own answers.
namespace draftscope::testing {
namespace {

using nlohmann::json;
namespace fs = std::filesystem;

/// A tiny target and a draft model of another width, with a recording, shared by the tests.
class DraftModelCommands : public ::testing::Test {
  protected:
    static void SetUpTestSuite() {
        folder_ = new ScratchFolder;
        target_ = tiny_model(*folder_, 512);
        ASSERT_TRUE(is_ok(write_tiny_gguf(
            draft(), 5, {.hidden = 32, .layers = 1, .heads = 2, .kv_heads = 1, .context = 256})));
        std::string lines;
        for (int i = 0; i < 6; ++i)
            lines += R"({"id": "q)" + std::to_string(i) + R"(", "prompt": "hello you number )" +
                     std::to_string(i) + "\"}\n";
        write_text(prompts(), lines);
        const ProcessResult recorded =
            go(arguments("record --model {} --prompts {} --max-new 40 --ignore-eos --threads 1 --precision "
                         "f32 --no-times --quiet --out {}",
                         target_, prompts(), recording()));
        ASSERT_EQ(recorded.exit_code, 0) << recorded.err;
    }
    static void TearDownTestSuite() { delete folder_; }

    static ProcessResult go(const Arguments& words) { return run(*folder_, words); }
    static std::string draft() { return folder_->file("draft.gguf"); }
    static std::string prompts() { return folder_->file("prompts.jsonl"); }
    static std::string recording() { return folder_->file("recorded"); }
    static Arguments fit_words(const std::string& head, const std::string& out) {
        return arguments("fit {} --model {} --drafter draft-model:{} --out {} --threads 1 --quiet --json",
                         head, target_, draft(), out);
    }
    static Arguments run_words(const std::string& command = "run") {
        return arguments(command + " --model {} --drafter draft-model:{} --threads 1 --quiet --json", target_,
                         draft());
    }
    static json replayed(const Arguments& more) {
        return parse_output(go(run_words("replay") + Arguments{"--recording", recording()} + more));
    }
    /// Expects that the head's file runs with the draft model, live.
    static void expect_runs(const std::string& head, const std::string& file) {
        const json live = parse_output(
            go(run_words() +
               arguments("--prompt hello --max-new 8 --ignore-eos --precision f32 --head {}",
                         head + (head.find(':') == std::string::npos ? ":" : ",") + "file=" + file)));
        EXPECT_EQ(live["drafter"], "draft-model");
    }

    static ScratchFolder* folder_;
    static std::string target_;
};
ScratchFolder* DraftModelCommands::folder_ = nullptr;
std::string DraftModelCommands::target_;

/// At full rank, the closed form is the draft model's LM head.
TEST_F(DraftModelCommands, ClosedFormOfItsLmHead) {
    for (const std::string head : {"slimspec", "specvocab"}) {
        const std::string whole = folder_->file(head + "32"), small = folder_->file(head + "8");
        const Arguments recorded = {"--recording", recording(), "--rank"};
        const json exact = parse_output(go(fit_words(head, whole) + recorded + Arguments{"32"}));
        EXPECT_NE(exact["remark"].get<std::string>().find("closed form"), std::string::npos);
        EXPECT_EQ(exact["drafter"], "draft-model");
        EXPECT_LT(exact["held_out"]["kl_drafter"], 1e-3);
        EXPECT_GT(exact["held_out"]["top1"], 0.99);
        EXPECT_NEAR(exact["held_out"]["kl"].get<double>(), exact["held_out"]["kl_full"].get<double>(), 0.01);
        // One row of text and one of the full head's candidates at each position of the answers.
        EXPECT_EQ(exact["fit"]["text_rows"], exact["fit"]["rounds"]);
        EXPECT_EQ(exact["fit"]["drafted_rows"], exact["fit"]["rounds"]);
        const json part = parse_output(go(fit_words(head, small) + recorded + Arguments{"8"}));
        EXPECT_GT(part["held_out"]["kl_drafter"], exact["held_out"]["kl_drafter"]);
        EXPECT_LE(part["fit"]["kl_drafter_closed_form"], part["fit"]["kl_drafter_plain_svd"]);
        expect_runs(head, small);
    }
    const json heads = replayed({"--heads", "full,slimspec:file=" + folder_->file("slimspec32")})["heads"];
    EXPECT_NEAR(heads[0]["tau"].get<double>(), heads[1]["tau"].get<double>(), 0.02);
}

/// Two layers of two key-value heads of 16 in f32 and 512 positions, against one of one and 256.
TEST_F(DraftModelCommands, ReportsMemory) {
    const json memory = parse_output(
        go(run_words() + arguments("--prompt hello --max-new 8 --ignore-eos --precision f32")))["memory"];
    EXPECT_EQ(memory["positions"], 512);
    EXPECT_EQ(memory["target_cache"], 512 * 2 * 2 * 2 * 16 * 4);
    EXPECT_EQ(memory["drafter_cache"], 256 * 2 * 1 * 1 * 16 * 2);
    EXPECT_GT(memory["target_weights"], memory["drafter_weights"]);
    // f32 in the file, so bf16 at auto: the LM head and the layer.
    const int layer = 32 * (2 + 2) * 16 + 32 * 32 + 3 * 32 * 96;
    EXPECT_NEAR(memory["drafter_weights"].get<double>(), 2.0 * (32 * tiny_gguf_vocab() + layer), 4e3);
}

/// Two precisions of one file have curves of their own, and a sweep compares them.
TEST_F(DraftModelCommands, ProfileSweepAndAdvise) {
    const std::string profile = folder_->file("machine.json"), small = "draft-model:" + draft();
    const std::string both = small + ",precision=f32," + small;
    const json measured =
        parse_output(go(arguments("profile-machine --model {} --drafters {} --heads full,microspec "
                                  "--contexts 16,64 --batches 1 --rounds 2 "
                                  "--threads 1 --precision f32 --quiet --json --out {}",
                                  target_, both, profile)));
    EXPECT_EQ(measured["complete"], true);
    for (const std::string name : {"draft-model:draft.gguf,precision=f32", "draft-model:draft.gguf"})
        for (const std::string part : {"catch_up", "level", "head"}) {
            const auto is_part = [&](const json& cost) {
                return cost["part"] == part && cost["drafter"] == name;
            };
            const auto found = std::ranges::find_if(measured["costs"], is_part);
            ASSERT_NE(found, measured["costs"].end()) << name << " " << part;
            EXPECT_GT((*found)["points"].size(), 2u);
        }
    const Arguments inputs =
        arguments("--recording {} --model {} --profile {} --threads 1 --quiet --json --drafters {}",
                  recording(), target_, profile, both);
    const json swept = parse_output(
        go(Arguments{"sweep", "--heads", "full", "--chain", "2", "--topk", "2", "--nodes", "4"} + inputs));
    std::map<std::string, double> tau;
    for (const json& one : swept["settings"]) {
        tau[one["drafter"].get<std::string>() + " " + one["tree"].get<std::string>()] = one["tau"]["value"];
        EXPECT_GT(one["round_ms"], 0);
    }
    EXPECT_EQ(swept["skipped"].size(), 0u) << swept["skipped"];
    EXPECT_EQ(tau.size(), 2u * 4);
    EXPECT_EQ(tau.at(small + " chain=2"), replayed({"--tree", "chain=2"})["heads"][0]["tau"].get<double>());
    const json advised = parse_output(go(Arguments{"advise"} + inputs));
    EXPECT_FALSE(advised["advice"]["run"].get<std::string>().empty());
    EXPECT_GT(advised["settings"], 20);
    // Its cache keeps accepted drafts: the catch-up is of one row, or of two.
    const auto step = [&](const std::string& tau_text) {
        return parse_output(
            go(arguments("profile-machine --show {} --tau " + tau_text + " --context 30 --json --predict",
                         profile) +
               Arguments{"draft-model:" + draft() + " x full @ chain=2"}))["predictions"][0];
    };
    EXPECT_EQ(step("3")["extrapolated"], false);
    EXPECT_GE(step("3")["drafter_ms"], step("1")["drafter_ms"]);
    expect_one_line_error(
        go(arguments("sweep --recording {} --model {} --profile {} --threads 1 --quiet --drafters {}",
                     recording(), target_, profile, small + ",precision=int8")),
        {"has no cost of drafter draft-model:draft.gguf,precision=int8", "draft-model:draft.gguf"});
}

/// Without a recording of the target, the draft model answers the prompts itself.
TEST_F(DraftModelCommands, FitsOnItsOwnAnswers) {
    const std::string out = folder_->file("own"), ranking = folder_->file("own_ranking");
    const Arguments own = {"--prompts", prompts(), "--max-new", "40"};
    const json fitted = parse_output(go(fit_words("slimspec", out) + own + Arguments{"--rank", "32"}));
    EXPECT_EQ(fitted["drafter"], "draft-model");
    EXPECT_EQ(fitted["fit"]["texts"], 6);
    // The text is its own, so that nothing is lost against it.
    EXPECT_LT(fitted["held_out"]["kl_full"], 1e-3);
    EXPECT_LT(fitted["held_out"]["kl"], 1e-2);
    EXPECT_FALSE(fs::exists(out + ".recording.part"));
    expect_runs("slimspec", out);
    const json few = parse_output(
        go(fit_words("slimspec", folder_->file("few")) + arguments("--prompts {} --max-new 4", prompts())));
    EXPECT_NE(few["notes"].dump().find("rows of text span less than the head's width of 32"),
              std::string::npos)
        << few["notes"];
    const json ranked = parse_output(go(fit_words("vocabtrim", ranking) + own));
    EXPECT_GT(ranked["fit"]["tokens"], 0);
    expect_runs("vocabtrim:v=64", ranking);
}

TEST_F(DraftModelCommands, HeadsThatTrainAreRefused) {
    const std::string out = folder_->file("refused");
    const auto refused = [&](const std::string& head, const Arguments& more) {
        expect_one_line_error(go(fit_words(head, out) + Arguments{"--recording", recording()} + more),
                              {"fit " + head, "trains", "--drafter draft-model", "slimspec"});
    };
    for (const char* head : {"vocabtrim-t", "coral", "dynaspec"}) refused(head, {});
    refused("bcl", {"--epochs", "1"});
    refused("slimspec", {"--epochs", "2"});
    refused("slimspec", {"--joint"});
    EXPECT_EQ(go(fit_words("bcl", out) + Arguments{"--recording", recording()}).exit_code, 0);
    expect_one_line_error(
        go(arguments("fit slimspec --model {} --drafter eagle3 --prompts {} --out {} --quiet", target_,
                     prompts(), folder_->file("x"))),
        {"--prompts", "eagle3", "--recording"});
    expect_one_line_error(
        go(fit_words("slimspec", folder_->file("x")) + Arguments{"--prompts", folder_->file("none")}),
        {folder_->file("none")});
    const std::string other = folder_->file("other.gguf");
    write_text(other, "GGUF");
    expect_one_line_error(
        go(arguments("fit slimspec --model {} --drafter draft-model:{} --prompts {} --out {} --quiet",
                     target_, other, prompts(), folder_->file("x"))),
        {other});
}

}  // namespace
}  // namespace draftscope::testing
