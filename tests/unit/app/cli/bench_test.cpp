#include <nlohmann/json.hpp>
#include <thread>

#include "tests/support/tiny_checkpoint.h"
#include "tests/unit/app/cli/program.h"

namespace draftscope::testing {
namespace {

using nlohmann::json;

class BenchCommand : public ::testing::Test {
  protected:
    void SetUp() override {
        ASSERT_TRUE(write_tiny_eagle2(folder_.file("eagle2"), 5).ok());
        std::string lines;
        for (int i = 0; i < 7; ++i)
            lines += json{{"id", i}, {"category", i % 2 ? "a" : "b"}, {"prompt", "hello you"}}.dump() + "\n";
        write_text(folder_.file("prompts.jsonl"), lines);
    }
    ProcessResult bench(const Arguments& more) const {
        return run(folder_, arguments("bench --model {} --prompts {} --drafter eagle2:{} --max-new 10 --raw "
                                      "--threads 1 --quiet --ignore-eos",
                                      tiny_model(folder_, 512), folder_.file("prompts.jsonl"),
                                      folder_.file("eagle2")) +
                                more);
    }
    ScratchFolder folder_;
};

/// Returns the CPU name under which doctor stores its probe.
std::string cpu_name() {
    std::ifstream info("/proc/cpuinfo");
    for (std::string line; std::getline(info, line);)
        if (line.rfind("model name", 0) == 0) return line.substr(line.find(": ") + 2);
    return {};
}

TEST_F(BenchCommand, ReportsAProbeSlowerThanHeads) {
    const char* before = std::getenv("XDG_CACHE_HOME");
    const std::string kept = before != nullptr ? before : "";
    setenv("XDG_CACHE_HOME", folder_.path().c_str(), 1);
    std::filesystem::create_directories(folder_.file("draftscope"));
    const auto with_probe = [&](double gb_per_s) {
        const json rates = {{"1", gb_per_s}};
        write_text(
            folder_.file("draftscope/bandwidth.json"),
            json{{"cpu", cpu_name()}, {"read_gb_per_s", rates}, {"scattered_read_gb_per_s", rates}}.dump());
        return bench({"--heads", "full"});
    };
    const ProcessResult old = with_probe(1e-4), fresh = with_probe(1e6);
    write_text(folder_.file("draftscope/bandwidth.json"), "{}");
    const ProcessResult unknown = bench({"--heads", "full"});
    before != nullptr ? setenv("XDG_CACHE_HOME", kept.c_str(), 1) : unsetenv("XDG_CACHE_HOME");
    ASSERT_EQ(old.exit_code, 0) << old.err;
    ASSERT_EQ(fresh.exit_code, 0) << fresh.err;
    const std::string warning = "run draftscope doctor again";
    EXPECT_NE(old.out.find(warning), std::string::npos) << old.out;
    EXPECT_EQ(fresh.out.find(warning), std::string::npos) << fresh.out;
    EXPECT_NE(old.out.find("void"), std::string::npos) << old.out;
    EXPECT_EQ(fresh.out.find("void"), std::string::npos) << fresh.out;
    EXPECT_NE(fresh.out.find("T_head / that"), std::string::npos) << fresh.out;
    EXPECT_NE(fresh.out.find("MFLOP"), std::string::npos) << fresh.out;
    // Without a probe the table has no empty columns, and says what to do.
    EXPECT_NE(unknown.out.find("draftscope doctor --threads N"), std::string::npos) << unknown.out;
    EXPECT_EQ(unknown.out.find("reading us"), std::string::npos) << unknown.out;
}

TEST_F(BenchCommand, WritesOneDocument) {
    const json document = parse_output(bench({"--heads", "full,microspec:wmax=64,source=ctx,gather=indexed",
                                              "--method", "ngram @ chain=2", "--json"}));
    EXPECT_EQ(document["tier"], "T0");
    EXPECT_EQ(document["complete"], true);
    EXPECT_EQ(document["machine"]["blocks_per_repetition"], 2);
    EXPECT_FALSE(document["machine"]["methods"].empty());  // full and microspec verify equal trees
    EXPECT_TRUE(document["warnings"].is_array());
    EXPECT_EQ(document["cancelled"], false);
    EXPECT_EQ(document["finished_conversations"], 7);
    EXPECT_TRUE(document["methods"][0]["tree"].is_null());
    EXPECT_EQ(document["methods"][1]["tree"], "depth=3,topk=4,nodes=12");
    EXPECT_EQ(document["methods"][3]["tree"], "chain=2");
    ASSERT_EQ(document["methods"].size(), 4u);
    EXPECT_EQ(document["methods"][2]["head"], "microspec:wmax=64,source=ctx,gather=indexed");
    for (const json& method : document["methods"]) {
        EXPECT_EQ(method["prompts"], 7);
        EXPECT_EQ(method["same_text"], true);
        EXPECT_GT(method["speedup"].get<double>(), 0);
        EXPECT_TRUE(method["speedup_interval"].is_array());
        EXPECT_TRUE(method["tau_interval"].is_array());
        ASSERT_EQ(method["categories"].size(), 2u);
        EXPECT_EQ(method["categories"][0]["category"], "b");
        EXPECT_EQ(method["categories"][0]["prompts"], 4);
    }
    EXPECT_TRUE(document["methods"][0]["against_full"].is_null());
    EXPECT_TRUE(document["methods"][3]["against_full"].is_null());
    // A head streams a matrix or gathers scattered rows.
    EXPECT_TRUE(document["methods"][0]["reads"].is_null());
    EXPECT_TRUE(document["methods"][3]["reads"].is_null());
    const json &full = document["methods"][1]["reads"], &indexed = document["methods"][2]["reads"];
    EXPECT_GT(full["streamed_bytes_per_round"], 0);
    EXPECT_EQ(full["gathered_bytes_per_round"], 0);
    EXPECT_EQ(indexed["streamed_bytes_per_round"], 0);
    EXPECT_GT(indexed["gathered_bytes_per_round"], 0);
    const json& against = document["methods"][2]["against_full"];
    EXPECT_NEAR(against["unexplained"].get<double>(),
                against["measured_speedup"].get<double>() - against["predicted_speedup"].get<double>(), 1e-9);
}

TEST_F(BenchCommand, PrintsMethodsAgainstPlainDecodingAndByTask) {
    const ProcessResult done = bench({"--heads", "full"});
    ASSERT_EQ(done.exit_code, 0) << done.err;
    for (const char* part : {"tier 0", "x AR", "eagle2 x full", "x AR by task", "mean of tasks",
                             "noise floor", "best", "same", "greedy"})
        EXPECT_NE(done.out.find(part), std::string::npos) << part << "\n" << done.out;
}

/// The control decodes the first method again; pairs cover all methods; means of tasks weigh tasks alike.
TEST_F(BenchCommand, ComparesAllPairsAndTheFirstMethodWithItself) {
    const json document = parse_output(bench({"--heads", "full", "--method", "ngram @ chain=2", "--json"}));
    EXPECT_EQ(document["methods"].size(), 3u);
    EXPECT_EQ(document["pairs"].size(), 3u);
    EXPECT_EQ(document["noise_floor"]["method"], "none");
    EXPECT_GT(document["noise_floor"]["ratio"].get<double>(), 0);
    const std::string best = document["best"];
    for (const json& method : document["methods"]) {
        EXPECT_EQ(method["against_best"].is_null(), method["method"] == best);
        double sum = 0;
        for (const json& task : method["tasks"]) sum += task["tau"].get<double>();
        EXPECT_NEAR(method["mean_of_tasks"]["tau"].get<double>(), sum / 2, 1e-9);
        EXPECT_LT(method["end_to_end_tokens_per_second"], method["tokens_per_second"]);
    }
    EXPECT_TRUE(parse_output(bench({"--heads", "full", "--no-control", "--json"}))["noise_floor"].is_null());
}

TEST_F(BenchCommand, RepetitionsAtATemperatureHaveSeedsOfTheirOwn) {
    const json document =
        parse_output(bench({"--heads", "full", "--temperature", "1", "--seed", "7", "--limit", "2",
                            "--simulate-acceptance", "rate:0.5", "--json"}));
    EXPECT_EQ(document["repeat"], 3);
    EXPECT_EQ(document["first_seed"], 7);
    EXPECT_EQ(document["block"], 1);  // two conversations are two blocks
    EXPECT_EQ(document["machine"]["blocks_per_repetition"], 2);
    EXPECT_GT(document["methods"][1]["tau_sd"].get<double>(), 0);
    EXPECT_GT(document["methods"][1]["tokens_per_second_sd"].get<double>(), 0);
}

/// At any time of cancellation, the output covers conversations that every method decoded, or reports that
/// there are none.
TEST_F(BenchCommand, CancelledRunReportsNullForMissingValues) {
    for (const bool as_json : {true, false}) {
        Arguments words = arguments(
            "bench --model {} --prompts {} --drafter eagle2:{} --heads full --max-new 300 --repeat 4000 "
            "--raw --threads 1 --quiet --ignore-eos",
            tiny_model(folder_, 512), folder_.file("prompts.jsonl"), folder_.file("eagle2"));
        if (as_json) words.push_back("--json");
        const Child child = start(folder_, words);
        std::this_thread::sleep_for(std::chrono::milliseconds(as_json ? 300 : 1500));
        kill(child.pid, SIGINT);
        const ProcessResult done = child.wait();
        EXPECT_EQ(done.exit_code, 130) << done.err;
        if (!as_json) {
            EXPECT_NE(done.out.find("cancelled "), std::string::npos) << done.out;
            continue;
        }
        const json document = json::parse(done.out, nullptr, false);
        ASSERT_FALSE(document.is_discarded()) << done.out;
        EXPECT_EQ(document["cancelled"], true);
        EXPECT_EQ(document["conversations"], 7);
        for (const json& method : document["methods"]) {
            EXPECT_EQ(method["tau"].is_null(), method["prompts"] == 0) << method.dump();
            EXPECT_EQ(method["tokens_per_second"].is_null(), method["prompts"] == 0) << method.dump();
        }
    }
}

TEST_F(BenchCommand, ReportsBadOptions) {
    expect_one_line_error(bench({}), {"--heads", "--method"});
    expect_one_line_error(bench({"--heads", "nope"}), {"nope"});
    expect_one_line_error(bench({"--method", "eagle9"}), {"eagle9"});
    expect_one_line_error(bench({"--heads", "full", "--repeat", "0"}), {"--repeat"});
    expect_one_line_error(run(folder_, {"bench", "--heads", "full"}), {"--prompts"});
}

}  // namespace
}  // namespace draftscope::testing
