#include "tests/support/gguf_writer.h"
#include "tests/support/tiny_checkpoint.h"
#include "tests/unit/app/cli/program.h"

// Every kind of bad input gives one clear line and exit code 2.
namespace draftscope::testing {
namespace {

class BadInput : public ::testing::Test {
  protected:
    ProcessResult decode(std::vector<std::string> more) {
        return run(folder_, Arguments{"run", "--model", model_, "--drafter", "ngram", "--prompt", "hello you",
                                      "--max-new", "8"} +
                                more);
    }
    /// With a drafter that has LM heads.
    ProcessResult draft(const Arguments& more) {
        EXPECT_TRUE(write_tiny_eagle2(folder_.file("eagle2"), 5).ok());
        return run(folder_,
                   Arguments{"run", "--model", model_, "--drafter", "eagle2:" + folder_.file("eagle2"),
                             "--prompt", "hello you", "--max-new", "8"} +
                       more);
    }
    ProcessResult decode_model(const std::string& path) {
        return run(folder_, {"run", "--model", path, "--drafter", "ngram", "--prompt", "hello"});
    }
    // Replaces the first occurrence of `from` by bytes of the same length.
    std::string patched(const std::string& from, const std::string& to) {
        std::string bytes = read_text(model_);
        const std::size_t at = bytes.find(from);
        EXPECT_NE(at, std::string::npos);
        bytes.replace(at, to.size(), to);
        write_text(folder_.file("patched.gguf"), bytes);
        return folder_.file("patched.gguf");
    }

    ScratchFolder folder_;
    std::string model_ = tiny_model(folder_);
};

TEST_F(BadInput, ValidInputSucceeds) {
    const ProcessResult done = decode({});
    EXPECT_EQ(done.exit_code, 0) << done.err;
}

TEST_F(BadInput, MissingModel) {
    expect_one_line_error(decode_model("/nonexistent/m.gguf"), {"/nonexistent/m.gguf", "no such file"});
}

TEST_F(BadInput, ModelThatIsAFolder) {
    expect_one_line_error(decode_model(folder_.path()), {folder_.path()});
}

TEST_F(BadInput, TruncatedModel) {
    const std::string bytes = read_text(model_);
    const std::string path = folder_.file("cut.gguf");
    for (const std::size_t size : {std::size_t{0}, std::size_t{3}, std::size_t{20}, std::size_t{900},
                                   bytes.size() / 2, bytes.size() - 1}) {
        write_text(path, bytes.substr(0, size));
        expect_one_line_error(decode_model(path), {path});
    }
}

TEST_F(BadInput, WrongMagic) {
    write_text(folder_.file("text.gguf"), "This is no model at all, only some text of sufficient length.");
    expect_one_line_error(decode_model(folder_.file("text.gguf")), {"GGUF"});
}

TEST_F(BadInput, UnsupportedArchitectureIsNamed) {
    const std::string length = raw_bytes(std::uint64_t{5});
    expect_one_line_error(decode_model(patched(length + "llama", length + "mamba")), {"mamba", "llama"});
}

TEST_F(BadInput, UnsupportedQuantisationIsNamed) {
    const std::string name = "blk.0.attn_q.weight";
    const std::string dims =
        raw_bytes(std::uint32_t{2}) + raw_bytes(std::uint64_t{64}) + raw_bytes(std::uint64_t{64});
    expect_one_line_error(decode_model(patched(name + dims + raw_bytes(std::uint32_t{0}),
                                               name + dims + raw_bytes(std::uint32_t{16}))),
                          {name, "IQ2_XXS"});
}

TEST_F(BadInput, TreeLargerThanTheContext) {
    const std::string model = tiny_model(folder_, 32);  // prompt lookup always drafts a chain
    expect_one_line_error(run(folder_, {"run", "--model", model, "--drafter", "ngram", "--prompt", "hello",
                                        "--tree", "depth=39,topk=10,nodes=300"}),
                          {"--tree", "chain=40", "41 nodes", "32"});
}

TEST_F(BadInput, ImpossibleTree) {
    expect_one_line_error(decode({"--tree", "depth=3,topk=4,leaves=2"}), {"leaves"});
    expect_one_line_error(decode({"--tree", "chain=0"}), {"chain"});
    expect_one_line_error(decode({"--tree", "depth=x"}), {"depth"});
    expect_one_line_error(decode({"--tree", "auto", "--batch", "4"}), {"--tree auto", "--batch 4"});
}

TEST_F(BadInput, PromptLongerThanTheContext) {
    std::string prompt;
    for (int i = 0; i < 400; ++i) prompt += "xyz ";
    expect_one_line_error(
        run(folder_, {"run", "--model", model_, "--drafter", "none", "--quiet", "--prompt", prompt}),
        {"256"});
}

TEST_F(BadInput, UnknownNamesListTheKnownOnes) {
    expect_one_line_error(draft({"--head", "fullest"}), {"fullest", "full", "fr-spec"});
    expect_one_line_error(draft({"--head", "fr-spec:w=3"}), {"w", "v"});
    expect_one_line_error(run(folder_, {"run", "--model", model_, "--drafter", "eagle9", "--prompt", "x"}),
                          {"eagle9", "none", "ngram", "eagle2"});
    expect_one_line_error(decode({"--verify", "mostly"}), {"mostly", "match"});
    expect_one_line_error(decode({"--precision", "f8"}), {"f8", "int8"});
    expect_one_line_error(draft({"--head-weights", "fr-spec"}), {"HEAD=PATH"});
    expect_one_line_error(draft({"--head-weights", "fr-spec=/nonexistent"}), {"/nonexistent"});
}

TEST_F(BadInput, DrafterWithoutACheckpoint) {
    for (const std::string spec : {"pair", "pair:suffix", "pair:eagle3+ngram"})
        expect_one_line_error(run(folder_, {"run", "--model", model_, "--drafter", spec, "--prompt", "x"}),
                              {"'" + spec + "'", "pair:suffix+eagle3"});
    expect_one_line_error(run(folder_, {"run", "--model", model_, "--drafter", "pair:suffix+ngram", "--tree",
                                        "auto", "--prompt", "x"}),
                          {"--tree auto", "pair:suffix+ngram"});
    expect_one_line_error(run(folder_, {"run", "--model", model_, "--drafter",
                                        "pair:suffix+eagle2:/nonexistent", "--prompt", "x"}),
                          {"/nonexistent"});
    expect_one_line_error(run(folder_, {"run", "--model", model_, "--drafter", "eagle2", "--prompt", "x"}),
                          {"eagle2", "checkpoint"});
    expect_one_line_error(
        run(folder_, {"run", "--model", model_, "--drafter", "eagle2:/nonexistent", "--prompt", "x"}),
        {"/nonexistent"});
    // A checkpoint of another target has other shapes.
    expect_one_line_error(
        run(folder_, {"run", "--model", model_, "--drafter",
                      std::string("eagle2:") + DS_SOURCE_DIR + "/assets/drafters/eagle2", "--prompt", "x"}),
        {"eagle2"});
}

TEST_F(BadInput, RankingOfAnotherTokenizer) {
    const std::string ranking = std::string(DS_SOURCE_DIR) + "/assets/heads/demo_ranking.safetensors";
    expect_one_line_error(draft({"--head", "fr-spec:v=16", "--head-weights", "fr-spec=" + ranking}),
                          {"tokenizer"});
}

TEST_F(BadInput, NumbersOutOfRange) {
    expect_one_line_error(decode({"--max-new", "0"}), {"--max-new"});
    expect_one_line_error(decode({"--threads", "-1"}), {"--threads"});
    expect_one_line_error(decode({"--batch", "0"}), {"--batch", "1 to 1024"});
    expect_one_line_error(decode({"--verify", "typical:epsilon=2"}), {"epsilon=2"});
    expect_one_line_error(decode({"--verify", "typical:alpha=1"}), {"alpha", "epsilon and delta"});
    expect_one_line_error(decode({"--verify", "typical", "--top-p", "0.9"}), {"--verify typical", "--top-p"});
    expect_one_line_error(decode({"--temperature", "-0.5"}), {"--temperature"});
    expect_one_line_error(decode({"--top-p", "0"}), {"--top-p"});
}

TEST_F(BadInput, PromptFiles) {
    const auto decode_file = [&](const std::string& path) {
        return run(folder_, {"run", "--model", model_, "--drafter", "ngram", "--prompts", path});
    };
    expect_one_line_error(decode_file("/nonexistent.jsonl"), {"/nonexistent.jsonl"});
    write_text(folder_.file("bad.jsonl"), "\n{\"promt\": \"b\"}\n");
    expect_one_line_error(decode_file(folder_.file("bad.jsonl")), {"bad.jsonl, line 2"});
    expect_one_line_error(run(folder_, {"run", "--model", model_, "--drafter", "ngram"}), {"--prompt"});
}

TEST_F(BadInput, UnwritableCapturePath) {
    expect_one_line_error(decode({"--save", "/nonexistent/run.dscope"}), {"/nonexistent"});
    expect_one_line_error(decode({"--save", folder_.path()}), {folder_.path()});
    expect_one_line_error(decode({"--save", "/proc/run.dscope"}), {"/proc"});
    if (geteuid() != 0) {  // the superuser can write to every folder
        std::filesystem::create_directory(folder_.file("locked"));
        chmod(folder_.file("locked").c_str(), 0555);
        expect_one_line_error(decode({"--save", folder_.file("locked/run.dscope")}), {"not writable"});
    }
    write_text(folder_.file("there.dscope"), "do not touch");
    expect_one_line_error(decode({"--save", folder_.file("there.dscope")}), {"exists"});
    EXPECT_EQ(read_text(folder_.file("there.dscope")), "do not touch");
}

TEST_F(BadInput, FailedLoadLeavesNoCapture) {
    write_text(folder_.file("text.gguf"), "no model");
    const std::string capture = folder_.file("run.dscope");
    expect_one_line_error(run(folder_, {"run", "--model", folder_.file("text.gguf"), "--drafter", "ngram",
                                        "--prompt", "x", "--save", capture}),
                          {"text.gguf"});
    EXPECT_FALSE(std::filesystem::exists(capture));
}

TEST_F(BadInput, BackendNumericsAndAcceptance) {
    expect_one_line_error(decode({"--backend", "gpu"}), {"--backend gpu", "cpu, cuda, auto"});
    expect_one_line_error(decode({"--numerics", "fast"}), {"--numerics fast", "exact"});
    expect_one_line_error(decode({"--numerics", "fast:0"}), {"--numerics fast:0", "1 to"});
    expect_one_line_error(decode({"--numerics", "quick"}), {"--numerics quick", "exact, fast"});
    for (const char* of_a_gpu : {"--no-gpu-graphs", "--l2-window"})
        expect_one_line_error(decode({of_a_gpu}), {of_a_gpu, "--backend cuda"});
    expect_one_line_error(decode({"--simulate-acceptance", "rate:2"}),
                          {"--simulate-acceptance rate:2", "from 0 to 1"});
    expect_one_line_error(decode({"--simulate-acceptance", "trace:/nonexistent.json"}),
                          {"/nonexistent.json"});
    expect_one_line_error(draft({"--simulate-acceptance", "rate:0.5", "--shadow", "full"}),
                          {"--shadow", "--simulate-acceptance"});
    expect_one_line_error(run(folder_, {"kernels", "--backend", "tpu"}), {"--backend tpu"});
    expect_one_line_error(run(folder_, {"kernels", "--backend", "cuda", "--vocab", "262145"}),
                          {"--vocab 262145", "262144"});
    // Without a GPU, or in a build without a GPU back end.
    const ProcessResult on_gpu = decode({"--backend", "cuda"});
    if (on_gpu.exit_code != 0) expect_one_line_error(on_gpu, {"--backend cuda"});
}

TEST_F(BadInput, EveryOutputNamesSimulatedAcceptance) {
    const std::vector<std::string> settings = {"--simulate-acceptance", "rate:1", "--tree", "chain=3"};
    ProcessResult text = decode(settings);
    EXPECT_EQ(text.exit_code, 0) << text.err;
    EXPECT_NE(text.out.find("SIMULATED ACCEPTANCE"), std::string::npos) << text.out;
    std::vector<std::string> as_json = settings;
    as_json.insert(as_json.end(), {"--json", "--quiet", "--save", folder_.file("r.dscope")});
    const ProcessResult json = decode(as_json);
    EXPECT_NE(json.out.find("\"acceptance\": \"replayed\""), std::string::npos) << json.out;
    EXPECT_NE(json.out.find("\"lossless\": \"lossy\""), std::string::npos) << json.out;
    const ProcessResult stats = run(folder_, {"stats", folder_.file("r.dscope")});
    EXPECT_NE(stats.out.find("simulated acceptance"), std::string::npos) << stats.out;
}

}  // namespace
}  // namespace draftscope::testing
