#include <cstring>
#include <limits>

#include "engine/formats/model_file.h"
#include "tests/support/tiny_checkpoint.h"
#include "tests/unit/app/cli/program.h"
#include "tests/unit/app/cli/sql.h"

/// Weights that hold NaN stop every command that decodes: exit code 1, one line, and what was recorded stays.
namespace draftscope::testing {
namespace {

using nlohmann::json;

class NotNumbers : public ::testing::Test {
  protected:
    /// Writes the model with NaN in one row of a tensor.
    std::string spoilt(const std::string& tensor, std::int64_t row) {
        std::string bytes = read_text(model_);
        {
            const ModelFile file = require(open_model_file(model_));
            const TensorInfo* info = file.weights->find(tensor);
            const auto* from = reinterpret_cast<const char*>(file.weights->stored_row(*info, row));
            const std::string values(from, static_cast<std::size_t>(info->cols()) * sizeof(float));
            const std::size_t at = bytes.find(values);
            EXPECT_NE(at, std::string::npos);
            const float nan = std::numeric_limits<float>::quiet_NaN();
            std::memcpy(bytes.data() + at, &nan, sizeof nan);
        }
        write_text(folder_.file("nan.gguf"), bytes);
        return folder_.file("nan.gguf");
    }
    ProcessResult decode(const std::string& model, const Arguments& more) {
        return run(folder_,
                   Arguments{"run", "--model", model, "--prompt", "hello you", "--max-new", "12"} + more);
    }

    ScratchFolder folder_;
    std::string model_ = tiny_model(folder_);
};

TEST_F(NotNumbers, OneNanLogitOfThePromptStopsTheRun) {
    const std::string model = spoilt("output.weight", 40);
    const json whole = parse_output(decode(model_, {"--drafter", "none", "--json"}));
    const int last = whole["prompts"][0]["prompt_tokens"].get<int>() - 1;
    const std::string where =
        "the target's logits are not numbers (prompt 0, position " + std::to_string(last) + ")";
    for (const char* drafter : {"none", "ngram"})
        for (const char* temperature : {"0", "0.8"})
            expect_one_line_error(
                decode(model, {"--drafter", drafter, "--temperature", temperature, "--quiet", "--json"}),
                {where, "check the model's files"}, 1);
    write_text(folder_.file("p.jsonl"), "{\"prompt\": \"hello you\"}\n");
    const ProcessResult bench = run(folder_, {"bench", "--model", model, "--prompts", folder_.file("p.jsonl"),
                                              "--method", "ngram @ chain=2", "--quiet"});
    EXPECT_EQ(bench.exit_code, 1);
    EXPECT_NE(bench.err.find(where), std::string::npos) << bench.err;
}

/// The embedding of a token that the target generates is NaN: the rows before it are fine.
TEST_F(NotNumbers, ARowWithinTheTextStopsTheRunAndKeepsTheCapture) {
    const json whole = parse_output(decode(model_, {"--drafter", "none", "--json"}));
    const json& tokens = whole["prompts"][0]["tokens"];
    const int prompt_tokens = whole["prompts"][0]["prompt_tokens"];
    std::size_t at = 3;  // a token that occurs here first
    while (std::find(tokens.begin(), tokens.begin() + static_cast<std::ptrdiff_t>(at), tokens[at]) !=
           tokens.begin() + static_cast<std::ptrdiff_t>(at))
        ++at;
    const std::string model = spoilt("token_embd.weight", tokens[at]);
    const std::string capture = folder_.file("a.dscope");
    for (const char* drafter : {"none", "ngram"}) {
        const ProcessResult done =
            decode(model, {"--drafter", drafter, "--quiet", "--save", capture, "--overwrite", "--json"});
        expect_one_line_error(done,
                              {"prompt 0, position " + std::to_string(prompt_tokens + at) + ")",
                               capture + " has what was recorded"},
                              1);
        const Sql sql(capture);
        EXPECT_EQ(sql.text("SELECT ended FROM run"), "error");
        EXPECT_EQ(sql.number("SELECT generated_tokens FROM prompt"), static_cast<std::int64_t>(at + 1));
        EXPECT_EQ(run(folder_, {"check", capture}).exit_code, 0);
    }
}

TEST_F(NotNumbers, ARecordingKeepsTheTurnsBefore) {
    const std::string model = spoilt("token_embd.weight", 'Z' + 3);
    write_text(folder_.file("p.jsonl"), "{\"prompt\": \"hello you\"}\n{\"prompt\": \"ZZZZ\"}\n");
    const ProcessResult done =
        run(folder_, {"record", "--model", model, "--prompts", folder_.file("p.jsonl"), "--max-new", "4",
                      "--batch", "1", "--out", folder_.file("rec"), "--no-times"});
    ASSERT_EQ(done.err.find("prompt 0"), std::string::npos) << "the first text needs that token";
    EXPECT_EQ(done.exit_code, 1);
    EXPECT_NE(done.err.find("the target's logits are not numbers (prompt "), std::string::npos) << done.err;
    EXPECT_NE(done.err.find(folder_.file("rec") + " has the 1 complete turns before it"), std::string::npos)
        << done.err;
    const json trace = json::parse(read_text(folder_.file("rec/trace.json")), nullptr, false);
    EXPECT_EQ(trace["prompts"].size(), 1u);
    EXPECT_EQ(trace["complete"], false);
}

}  // namespace
}  // namespace draftscope::testing
