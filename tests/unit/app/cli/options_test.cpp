#include <fmt/format.h>
#include <pwd.h>

#include <map>
#include <nlohmann/json.hpp>

#include "tests/support/tiny_checkpoint.h"
#include "tests/unit/app/cli/program.h"
#include "tests/unit/app/cli/sql.h"

// Options without effect, former and misspelt names, lost output, and files of heads.
namespace draftscope::testing {
namespace {

using nlohmann::json;

class CommandOptions : public ::testing::Test {
  protected:
    void SetUp() override { ASSERT_TRUE(write_tiny_eagle2(folder_.file("eagle2"), 5).ok()); }
    Arguments decode_words(const Arguments& more) const {
        return Arguments{"run",     "--model",   model_, "--prompt",    "hello you", "--max-new",   "8",
                         "--quiet", "--threads", "1",    "--calibrate", "0",         "--precision", "f32"} +
               more;
    }
    /// Runs with prompt lookup as the drafter.
    ProcessResult decode(const Arguments& more) const {
        return run(folder_, decode_words({"--drafter", "ngram"}) + more);
    }
    /// Runs with a drafter that uses LM heads.
    ProcessResult draft(const Arguments& more) const {
        return run(folder_, decode_words({"--drafter", "eagle2:" + folder_.file("eagle2")}) + more);
    }
    /// Expects an error with these parts for a prompt file.
    void expect_refused(const std::string& text, const Arguments& parts) const {
        write_text(folder_.file("prompts.jsonl"), text);
        expect_one_line_error(run(folder_, {"run", "--model", model_, "--drafter", "ngram", "--prompts",
                                            folder_.file("prompts.jsonl")}),
                              parts);
    }

    ScratchFolder folder_;
    std::string model_ = tiny_model(folder_, 512);
};

/// The commands are valid except for the former spelling.
TEST_F(CommandOptions, FormerNamesStillWork) {
    const std::string prompts = folder_.file("prompts.jsonl"), recorded = folder_.file("recorded");
    write_text(prompts, "{\"prompt\": \"hello\"}\n");
    EXPECT_EQ(decode({"--acceptance", "rate:0.5", "--seed", "3"}).exit_code, 0);
    EXPECT_EQ(decode({"--save", folder_.file("run.dscope"), "--never-wait"}).exit_code, 0);
    const Arguments common = {"--model", model_,        "--prompts", prompts,     "--stratify", "--max-new",
                              "8",       "--precision", "f32",       "--threads", "1",          "--quiet"};
    for (const Arguments& first :
         {Arguments{"run", "--drafter", "ngram"}, Arguments{"bench", "--method", "ngram"},
          Arguments{"trace", "--no-times", "--out", recorded}}) {
        const ProcessResult done = run(folder_, first + common);
        EXPECT_EQ(done.exit_code, 0) << first[0] << ": " << done.err;
    }
    expect_one_line_error(draft({"--artefact", "slimspc=" + model_}), {"--head-weights slimspc="});
    expect_one_line_error(
        run(folder_, {"replay", "--trace", recorded, "--model", model_, "--drafter",
                      "eagle2:" + folder_.file("eagle2"), "--artefact", "slimspc=" + model_}),
        {"--head-weights slimspc="});
#ifdef DS_WITH_GUI
    expect_one_line_error(run(folder_, {"gui", "--beside", folder_.file("missing")}),
                          {"missing", "Nsight Systems"});
#endif
}

TEST_F(CommandOptions, HelpShowsOnlyCurrentNames) {
    const std::string commands = run(folder_, {"--help"}).out;
    EXPECT_NE(commands.find("\n  record "), std::string::npos) << commands;
    EXPECT_EQ(commands.find("\n  trace"), std::string::npos) << commands;
    const std::string help = run(folder_, {"run", "--help"}).out;
    for (const char* current : {"--balanced", "--drop-when-full", "--head-weights", "--simulate-acceptance"})
        EXPECT_NE(help.find(current), std::string::npos) << current;
    for (const char* former : {"--stratify", "--never-wait", "--artefact", "--acceptance"})
        EXPECT_EQ(help.find(former), std::string::npos) << former;
    for (const char* command : {"fit", "replay"}) {
        const std::string options = run(folder_, {command, "--help"}).out;
        EXPECT_NE(options.find("--recording"), std::string::npos) << command;
        EXPECT_EQ(options.find("--trace"), std::string::npos) << command;
    }
    expect_one_line_error(run(folder_, {"trace", "--uot", "x"}), {"draftscope record --help"});
}

TEST_F(CommandOptions, VerificationRulesHaveAliases) {
    for (const auto& [alias, rule] :
         {std::pair("greedy", "match"), {"exact", "match"}, {"rejection", "pq"}}) {
        const ProcessResult done = decode({"--verify", alias, "--temperature", "0.7", "--json"});
        ASSERT_EQ(done.exit_code, 0) << alias << ": " << done.err;
        EXPECT_EQ(json::parse(done.out)["verify"].get<std::string>(), rule) << alias;
    }
}

TEST_F(CommandOptions, ReportsUnknownArgumentsWithSuggestion) {
    expect_one_line_error(
        run(folder_, {"run", "--promt", "hi"}),
        {"unknown arguments: --promt hi", "did you mean --prompt?", "draftscope run --help"});
    expect_one_line_error(run(folder_, {"run", "--prompt=x", "--max-nwe=3"}),
                          {"--max-nwe=3", "did you mean --max-new?"});
    expect_one_line_error(run(folder_, {"bnech", "--heads", "full"}),
                          {"bnech --heads full", "did you mean bench?", "draftscope --help"});
    expect_one_line_error(run(folder_, {"fit", "slimspec", "--uot", "x"}),
                          {"--out", "--uot x", "fit --help"});
    expect_one_line_error(run(folder_, {"run", "--max-new", "many"}), {"draftscope run --help"});
    const ProcessResult far = run(folder_, {"run", "--zzzzzz"});
    EXPECT_EQ(far.err.find("did you mean"), std::string::npos) << far.err;
}

/// No model makes a head useful to a drafter without one, and its files are not read.
TEST_F(CommandOptions, RejectsHeadsOfDraftersWithoutThem) {
    write_text(folder_.file("ranking.safetensors"), "x");
    write_text(folder_.file("prompts.jsonl"), "{\"prompt\": \"hello\"}\n");
    const std::string weights = "fr-spec=" + folder_.file("ranking.safetensors");
    for (const Arguments& more :
         {Arguments{"--head", "fr-spec"}, Arguments{"--shadow", "fr-spec"},
          Arguments{"--head", "fr-spec", "--head-weights", weights}, Arguments{"--head-weights", weights}})
        expect_one_line_error(decode(more), {more[0] + ": drafter ngram has no LM head"});
    const Arguments bench = {"bench", "--model", model_, "--prompts", folder_.file("prompts.jsonl")};
    expect_one_line_error(run(folder_, bench + Arguments{"--drafter", "ngram", "--heads", "fr-spec"}),
                          {"--heads: drafter ngram has no LM head"});
    expect_one_line_error(run(folder_, bench + Arguments{"--method", "ngram x fr-spec"}),
                          {"ngram x fr-spec", "has no LM head"});
    expect_one_line_error(run(folder_, bench + Arguments{"--method", "none @ chain=3"}),
                          {"none @ chain=3", "drafts nothing"});
    const std::string missing = folder_.file("missing");
    for (const Arguments& first : {Arguments{"replay", "--recording", missing},
                                   Arguments{"sweep", "--recording", missing, "--profile", missing},
                                   Arguments{"advise", "--recording", missing, "--profile", missing},
                                   Arguments{"profile-machine", "--out", missing}})
        expect_one_line_error(run(folder_, first + Arguments{"--drafter", "ngram", "--heads", "fr-spec"}),
                              {"--heads: drafter ngram has no LM head"});
}

/// Every command takes both spellings, and lists with commas or blanks.
TEST_F(CommandOptions, ListsHaveOneSyntax) {
    write_text(folder_.file("prompts.jsonl"), "{\"prompt\": \"hello\"}\n");
    const std::string drafter = "eagle2:" + folder_.file("eagle2");
    EXPECT_EQ(run(folder_, decode_words({"--drafters", drafter, "--heads", "full"})).exit_code, 0);
    const Arguments bench =
        arguments("bench --model {} --prompts {} --max-new 6 --threads 1 --quiet --json --no-control", model_,
                  folder_.file("prompts.jsonl"));
    for (const Arguments& heads :
         {Arguments{"--heads", "full", "microspec:wmax=64"}, Arguments{"--head", "full,microspec:wmax=64"}})
        EXPECT_EQ(
            parse_output(run(folder_, bench + Arguments{"--drafters", drafter} + heads))["methods"].size(),
            3u);
    const json shadows =
        parse_output(draft({"--shadow", "microspec:wmax=64", "microspec:wmax=32", "--json"}));
    EXPECT_EQ(shadows["heads"].size(), 3u);
    const std::string missing = folder_.file("missing");
    for (const Arguments& first : {Arguments{"replay", "--recording", missing},
                                   Arguments{"sweep", "--recording", missing, "--profile", missing},
                                   Arguments{"advise", "--recording", missing, "--profile", missing},
                                   Arguments{"profile-machine", "--model", missing, "--out", missing}})
        for (const Arguments& spelling : {Arguments{"--drafter", drafter, "--head", "full", "microspec"},
                                          Arguments{"--drafters", drafter, "--heads", "full,microspec"}})
            expect_one_line_error(run(folder_, first + spelling), {missing});
}

/// Other models keep the tree that is the same everywhere, and are told so.
TEST_F(CommandOptions, NamesTreeAutoForTheDefaultTree) {
    const auto said = [&](const Arguments& more) {
        return run(folder_, Arguments{"run", "--model", model_, "--drafter", "ngram", "--prompt", "hello",
                                      "--max-new", "8"} +
                                more)
            .err;
    };
    EXPECT_NE(said({}).find("--tree auto measures which is fastest here"), std::string::npos);
    for (const Arguments& silent :
         {Arguments{"--tree", "chain=2"}, Arguments{"--quiet"}, Arguments{"--batch", "2"}})
        EXPECT_EQ(said(silent).find("--tree auto"), std::string::npos) << silent[0];
}

TEST_F(CommandOptions, SeparatesTheTextsOfAFile) {
    write_text(folder_.file("prompts.jsonl"),
               "{\"id\": \"q7\", \"turns\": [\"hello\", \"you\"]}\n{\"prompt\": \"hello\"}\n");
    for (const char* batch : {"1", "2"}) {
        const std::string out =
            run(folder_, {"run", "--model", model_, "--drafter", "ngram", "--prompts",
                          folder_.file("prompts.jsonl"), "--max-new", "8", "--batch", batch})
                .out;
        for (const char* title :
             {"--- prompt 1, id q7\n", "--- prompt 2, id q7, turn 2\n", "--- prompt 3, id 1\n"})
            EXPECT_NE(out.find(title), std::string::npos) << title << out;
    }
    const ProcessResult one =
        run(folder_, {"run", "--model", model_, "--drafter", "ngram", "--prompt", "hello", "--max-new", "8"});
    EXPECT_EQ(one.out.find("--- prompt"), std::string::npos) << one.out;
}

TEST_F(CommandOptions, DoctorHasAVerdictAndOneLineForAMissingGpu) {
    const std::string out = run(folder_, {"doctor", "--no-probe"}).out;
    EXPECT_NE(out.find("load       other programs use "), std::string::npos) << out;
    if (out.find("NVIDIA driver: not found") != std::string::npos) {
        EXPECT_NE(out.find("so no CUDA and CUPTI"), std::string::npos) << out;
        EXPECT_EQ(out.find("CUPTI:"), std::string::npos) << out;
    }
    EXPECT_TRUE(
        parse_output(run(folder_, {"doctor", "--no-probe", "--json"}))["other_load_cpus"].is_number());
}

/// The window shows the same message.
TEST_F(CommandOptions, AMissingDemoModelNamesNoOption) {
    StartOptions options;
    const std::string home = folder_.file("empty");
    options.home = home.c_str();
    const ProcessResult done = run(folder_, {"run", "--prompt", "hello"}, options);
    expect_one_line_error(done, {"the demo model is missing", "tools/fetch_deps.sh model", "another target"});
    EXPECT_EQ(done.err.find("--model"), std::string::npos) << done.err;
}

TEST_F(CommandOptions, SuggestsSimilarNames) {
    expect_one_line_error(draft({"--head", "frspec"}), {"did you mean fr-spec?"});
    expect_one_line_error(draft({"--head", "microspec:wmx=64"}), {"did you mean wmax?"});
    expect_one_line_error(run(folder_, decode_words({"--drafter", "eagel2"})), {"did you mean eagle2?"});
    expect_one_line_error(draft({"--head-weights", "slimspc=" + model_}), {"did you mean slimspec?"});
    expect_one_line_error(run(folder_, {"export", model_, "--to", "chrom", "--out", "x"}),
                          {"did you mean chrome?"});
}

TEST_F(CommandOptions, RejectsOptionsWithoutEffectAtTemperatureZero) {
    for (const Arguments& more :
         {Arguments{"--top-p", "0.9"}, Arguments{"--top-k", "4"}, Arguments{"--seed", "3"},
          Arguments{"--verify", "pq"}, Arguments{"--verify", "typical"}}) {
        expect_one_line_error(decode(more), {more[0], "temperature 0"});
        Arguments sampled = more;
        sampled.insert(sampled.end(), {"--temperature", "0.7"});
        EXPECT_EQ(decode(sampled).exit_code, 0) << more[0];
    }
    EXPECT_EQ(decode({"--verify", "match", "--top-p", "1", "--top-k", "0"}).exit_code, 0);
    EXPECT_EQ(decode({"--seed", "3", "--simulate-acceptance", "rate:0.5"}).exit_code, 0);
    write_text(folder_.file("prompts.jsonl"), "{\"prompt\": \"hello\"}\n");
    expect_one_line_error(
        run(folder_, {"record", "--model", model_, "--prompts", folder_.file("prompts.jsonl"), "--out",
                      folder_.file("t"), "--seed", "3"}),
        {"--seed", "temperature 0"});
    expect_one_line_error(
        run(folder_, {"bench", "--model", model_, "--prompts", folder_.file("prompts.jsonl"), "--method",
                      "ngram", "--top-p", "0.5"}),
        {"--top-p", "temperature 0"});
}

TEST_F(CommandOptions, PromptLookupReportsItsChain) {
    expect_one_line_error(run(folder_, decode_words({"--drafter", "none", "--tree", "chain=3"})),
                          {"--tree", "drafter none"});
    const ProcessResult done = decode({"--tree", "depth=2,topk=4,nodes=12", "--json"});
    ASSERT_EQ(done.exit_code, 0) << done.err;
    EXPECT_EQ(json::parse(done.out)["tree"], "chain=3");
}

TEST_F(CommandOptions, TheRecordedCommandRuns) {
    const std::string path = folder_.file("run.dscope");
    ASSERT_EQ(decode({"--save", path}).exit_code, 0);
    const std::string command = Sql(path).text("SELECT json_extract(config_json, '$.command') FROM run");
    EXPECT_EQ(command.find("--head"), std::string::npos) << command;
    EXPECT_NE(command.find("--drafter ngram"), std::string::npos) << command;
}

TEST_F(CommandOptions, LimitsThreadsToTheCores) {
    const ProcessResult done = run(folder_, {"run", "--model", model_, "--drafter", "ngram", "--prompt",
                                             "hello", "--max-new", "4", "--threads", "1000", "--json"});
    ASSERT_EQ(done.exit_code, 0) << done.err;
    EXPECT_NE(done.err.find("--threads 1000: this process may use "), std::string::npos) << done.err;
    EXPECT_LT(json::parse(done.out)["threads"], 1000);
}

TEST_F(CommandOptions, RejectsMalformedPromptFiles) {
    const std::string looks = R"({"prompt": "Name three rivers."})";
    expect_refused("\n{\"prompt\": \"caf\xe9\"}\n", {"line 2", "0xe9", "LATIN1"});
    expect_refused(std::string("\xff\xfe{\0\"\0", 6), {"line 1", "UTF-16", "iconv"});
    expect_refused(std::string("{\0\"\0p\0", 6), {"line 1", "UTF-16"});
    expect_refused("Name three rivers.\n", {"line 1", "plain text", looks});
    expect_refused("\n{\"prompt\": \"b\n", {"line 2", "not valid JSON", looks});
    expect_refused("[\n{\"prompt\": \"a\"}\n", {"the list: not valid JSON at line 3, column 1", looks});
    expect_refused("{\"prompt\": \"\"}\n{\"prompt\": 3}\n", {"line 1", "prompt is empty"});
    expect_refused("{\"turns\": [\"a\", \"\"]}\n", {"line 1", "turns is empty"});
    // Lines of other programs.
    expect_refused(R"({"id": 3, "url": "a"})", {"line 1", "has id, url", "prompt", "turns", looks});
    expect_refused(R"({"conversations": []})", {"conversations is empty", looks});
    expect_refused("{}", {"has no field", looks});
    expect_one_line_error(
        run(folder_, {"run", "--model", model_, "--drafter", "ngram", "--prompts", folder_.path()}),
        {folder_.path(), "is a folder"});
}

TEST_F(CommandOptions, ReportsTwoFilesForOneHead) {
    const std::string a = folder_.file("a.safetensors"), b = folder_.file("b.safetensors");
    write_text(a, "x");
    write_text(b, "y");
    const Arguments both = {"--head-weights", "fr-spec=" + a, "--head-weights", "fr-spec=" + b};
    write_text(folder_.file("prompts.jsonl"), "{\"prompt\": \"hello\"}\n");
    Arguments bench = arguments("bench --model {} --drafter eagle2:{} --prompts {} --heads full,fr-spec",
                                model_, folder_.file("eagle2"), folder_.file("prompts.jsonl"));
    bench.insert(bench.end(), both.begin(), both.end());
    Arguments head = {"--head", "fr-spec"};
    head.insert(head.end(), both.begin(), both.end());
    expect_one_line_error(draft(head), {"two files for head fr-spec", a, b});
    expect_one_line_error(run(folder_, bench), {"two files for head fr-spec", a, b});
}

/// A replay document of two heads: `full` accepts every draft, `microspec:wmax=64` none.
TEST_F(CommandOptions, SimulatedAcceptanceUsesTheDrivingHead) {
    write_text(folder_.file("replay.json"),
               R"({"heads": [{"head": "full", "histogram": [0, 0, 0, 9]},
                             {"head": "microspec:wmax=64", "histogram": [9]}]})");
    const std::string trace = "trace:" + folder_.file("replay.json");
    const auto tau = [&](const Arguments& more) {
        const ProcessResult done =
            draft(Arguments{"--tree", "chain=3", "--json", "--simulate-acceptance"} + more);
        EXPECT_EQ(done.exit_code, 0) << done.err;
        return done.exit_code == 0 ? json::parse(done.out)["totals"]["tau"].get<double>() : 0.0;
    };
    EXPECT_GT(tau({trace}), 2.0);
    EXPECT_DOUBLE_EQ(tau({trace, "--head", "microspec:wmax=64"}), 1.0);
    EXPECT_GT(tau({trace + "#full", "--head", "microspec:wmax=64"}), 2.0);
    expect_one_line_error(draft({"--simulate-acceptance", trace, "--head", "microspec"}),
                          {"head microspec runs", "full, microspec:wmax=64", "#HEAD"});
    expect_one_line_error(draft({"--simulate-acceptance", trace + "#coral"}),
                          {"coral", "full, microspec:wmax=64"});
    expect_one_line_error(decode({"--simulate-acceptance", trace}),
                          {"without heads", "full, microspec:wmax=64"});
}

/// Plain decoding drafts nothing and needs no head of the file.
TEST_F(CommandOptions, BenchSimulatesAcceptanceByMethod) {
    write_text(folder_.file("replay.json"),
               R"({"heads": [{"head": "full", "histogram": [0, 0, 0, 9]},
                             {"head": "microspec:wmax=64", "histogram": [9]}]})");
    write_text(folder_.file("prompts.jsonl"), "{\"prompt\": \"hello you\"}\n");
    const json methods = parse_output(
        run(folder_, {"bench", "--model", model_, "--drafter", "eagle2:" + folder_.file("eagle2"),
                      "--prompts", folder_.file("prompts.jsonl"), "--heads", "full,microspec:wmax=64",
                      "--max-new", "8", "--tree", "chain=3", "--threads", "1", "--quiet", "--json",
                      "--simulate-acceptance", "trace:" + folder_.file("replay.json")}))["methods"];
    EXPECT_DOUBLE_EQ(methods[0]["tau"], 1.0);
    EXPECT_GT(methods[1]["tau"], 2.0);
    EXPECT_DOUBLE_EQ(methods[2]["tau"], 1.0);
}

/// The unknown part name prevents any download.
TEST_F(CommandOptions, ScriptsStartWithoutHome) {
    const std::string script = std::string(DS_SOURCE_DIR) + "/tools/fetch_deps.sh";
    for (const char* home : {"-u HOME", "HOME="}) {
        const std::string log = folder_.file("log");
        const int status =
            std::system(fmt::format("env -u XDG_CACHE_HOME {} {} nothing 2>{}", home, script, log).c_str());
        EXPECT_EQ(WEXITSTATUS(status), 2) << read_text(log);
        EXPECT_NE(read_text(log).find("unknown part 'nothing'"), std::string::npos) << read_text(log);
    }
}

TEST_F(CommandOptions, LostOutputIsAnError) {
    const auto into_full_device = [&](const Arguments& words) {
        StartOptions options;
        options.out = "/dev/full";
        return run(folder_, words, options);
    };
    for (const Arguments& words :
         {Arguments{"--help"}, Arguments{"doctor", "--no-probe"}, Arguments{"run", "--help"},
          decode_words({"--drafter", "ngram"}), decode_words({"--drafter", "ngram", "--json"})}) {
        const ProcessResult done = into_full_device(words);
        EXPECT_EQ(done.exit_code, 1) << words[0];
        EXPECT_NE(done.err.find("draftscope: writing to stdout failed"), std::string::npos) << done.err;
    }
}

/// Includes callers that ignore SIGPIPE, as some launchers do.
TEST_F(CommandOptions, AClosedPipeEndsQuietly) {
    const std::string program = std::string(DS_BINARY_DIR) + "/draftscope", log = folder_.file("log");
    // The reader exits before the text is written, piece by piece.
    const int status =
        std::system(fmt::format("trap '' PIPE; {{ sleep 0.2; {} run --model {} --drafter "
                                "ngram --tree chain=3 --prompt hello --max-new 8; }} 2>{} | true",
                                program, model_, log)
                        .c_str());
    EXPECT_EQ(status, 0);
    EXPECT_EQ(read_text(log), "");
}

TEST_F(CommandOptions, DoctorAndCaptureReportTheSameCapabilities) {
    const json doctor = parse_output(run(folder_, {"doctor", "--no-probe", "--json"}))["capabilities"];
    const std::string path = folder_.file("run.dscope");
    ASSERT_EQ(decode({"--save", path}).exit_code, 0);
    const json stored = json::parse(Sql(path).text("SELECT machine_json FROM run"))["capabilities"];
    const auto of = [](const json& list) {
        std::map<std::string, bool> found;
        for (const json& one : list) found[one["name"]] = one["available"];
        return found;
    };
    EXPECT_EQ(of(stored), of(doctor));
    // CUDA is available if and only if --backend cuda succeeds.
    const ProcessResult on_gpu = decode({"--backend", "cuda"});
    EXPECT_EQ(of(stored)["CUDA"], on_gpu.exit_code == 0) << on_gpu.err;
}

TEST_F(CommandOptions, UsesTheUserDatabaseWithoutHome) {
    const auto demo_model = [&](const char* home) {
        StartOptions options;
        options.home = home;
        const ProcessResult done = run(folder_, {"doctor", "--no-probe", "--json"}, options);
        EXPECT_EQ(done.exit_code, 0) << done.err;
        return json::parse(done.out, nullptr, false)["demo_model"].dump();
    };
    const std::string database = getpwuid(getuid())->pw_dir;
    const std::string expected = demo_model(database.c_str());
    EXPECT_EQ(demo_model(""), expected);
    EXPECT_EQ(demo_model(nullptr), expected);
}

}  // namespace
}  // namespace draftscope::testing
