#include <algorithm>
#include <chrono>
#include <functional>
#include <nlohmann/json.hpp>
#include <thread>

#include "tests/support/tiny_checkpoint.h"
#include "tests/unit/app/cli/program.h"
#include "tests/unit/app/cli/sql.h"

/// record, replay, run --shadow and fit as a user calls them: normal use, bad input, interruption.
namespace draftscope::testing {
namespace {

using nlohmann::json;
namespace fs = std::filesystem;

/// A tiny model with a drafter and a recording, shared by the tests.
class RecordReplay : public ::testing::Test {
  protected:
    static void SetUpTestSuite() {
        folder_ = new ScratchFolder;
        model_ = tiny_model(*folder_, 512);
        ASSERT_TRUE(write_tiny_eagle2(folder_->file("eagle2"), 5).ok());
        std::string lines;
        for (int i = 0; i < 8; ++i)
            lines += R"({"id": "q)" + std::to_string(i) + R"(", "category": ")" + (i % 2 ? "a" : "b") +
                     R"(", "prompt": "hello you number )" + std::to_string(i) + "\"}\n";
        write_text(folder_->file("prompts.jsonl"), lines);
        write_ranking();
        recorded_ = new ProcessResult(
            run(*folder_, record_words() + Arguments{"--out", recording_folder(), "--json"}));
        ASSERT_EQ(recorded_->exit_code, 0) << recorded_->err;
    }
    static void TearDownTestSuite() {
        delete recorded_;
        delete folder_;
    }

    /// A ranking of ids in ascending order with descending counts.
    static void write_ranking() {
        std::string counts, ids;
        const int n = tiny_gguf_vocab();
        const auto add = [](std::string& out, std::int32_t value) {
            out.append(reinterpret_cast<const char*>(&value), sizeof value);
        };
        for (int i = 0; i < n; ++i) {
            add(ids, i);
            add(counts, n - i);
        }
        const std::string header =
            json{{"ids", {{"dtype", "I32"}, {"shape", {n}}, {"data_offsets", {0, 4 * n}}}},
                 {"counts", {{"dtype", "I32"}, {"shape", {n}}, {"data_offsets", {4 * n, 8 * n}}}}}
                .dump();
        std::uint64_t size = header.size();
        write_text(folder_->file("ranking.safetensors"),
                   std::string(reinterpret_cast<const char*>(&size), 8) + header + ids + counts);
    }

    static Arguments record_words() {
        return {"record",      "--model", model_,         "--prompts", folder_->file("prompts.jsonl"),
                "--max-new",   "40",      "--ignore-eos", "--threads", "1",
                "--precision", "f32",     "--no-times",   "--quiet"};
    }
    static std::string recording_folder() { return folder_->file("recorded"); }
    static Arguments replay_words() {
        return arguments("replay --recording {} --model {} --drafter eagle2:{} --threads 1 --quiet",
                         recording_folder(), model_, folder_->file("eagle2"));
    }
    static Arguments run_words() {
        return arguments(
            "run --model {} --prompts {} --drafter eagle2:{} --max-new 40 --ignore-eos --threads 1 "
            "--precision f32 --quiet --json",
            model_, folder_->file("prompts.jsonl"), folder_->file("eagle2"));
    }
    static Arguments fit_words(const std::string& head, const std::string& out) {
        return arguments("fit {} --recording {} --model {} --drafter eagle2:{} --out {} --threads 1 --quiet",
                         head, recording_folder(), model_, folder_->file("eagle2"), out);
    }
    static Arguments ranking() {
        return {"--head-weights", "fr-spec=" + folder_->file("ranking.safetensors")};
    }
    static ProcessResult go(const Arguments& words) { return run(*folder_, words); }

    static ScratchFolder* folder_;
    static std::string model_;
    static ProcessResult* recorded_;
};
ScratchFolder* RecordReplay::folder_ = nullptr;
std::string RecordReplay::model_;
ProcessResult* RecordReplay::recorded_ = nullptr;

TEST_F(RecordReplay, RecordReportsItsResult) {
    const json document = json::parse(recorded_->out, nullptr, false);
    EXPECT_EQ(document["prompts"], 8);
    EXPECT_EQ(document["generated"], 8 * 40);
    EXPECT_EQ(document["complete"], true);
    EXPECT_EQ(document["trace"], recording_folder());
    EXPECT_TRUE(fs::exists(recording_folder() + "/trace.json"));
    EXPECT_TRUE(fs::exists(recording_folder() + "/trace.safetensors"));
}

TEST_F(RecordReplay, AHeadAgainstItselfHasNoInterval) {
    const ProcessResult text = go(replay_words() + Arguments{"--heads", "full", "microspec:wmax=64"});
    EXPECT_EQ(text.out.find("1.000 ["), std::string::npos) << text.out;
    const json heads = parse_output(
        go(replay_words() + Arguments{"--heads", "full", "microspec:wmax=64", "--json"}))["heads"];
    EXPECT_EQ(heads[0]["rho_tau"], 1.0);
    EXPECT_TRUE(heads[0]["intervals"]["rho_tau"].is_null());
    EXPECT_TRUE(heads[1]["intervals"]["rho_tau"].is_array());
}

/// A file is valid if one of the methods uses it, and invalid if none does.
TEST_F(RecordReplay, BenchAcceptsAFileOfOneMethod) {
    const Arguments words = arguments(
        "bench --model {} --prompts {} --drafter eagle2:{} --limit 1 --max-new 6 --threads 1 --quiet --json",
        model_, folder_->file("prompts.jsonl"), folder_->file("eagle2"));
    const ProcessResult done = go(words + ranking() + Arguments{"--heads", "full,fr-spec:v=64"});
    ASSERT_EQ(done.exit_code, 0) << done.err;
    EXPECT_EQ(json::parse(done.out, nullptr, false)["methods"].size(), 3u);
    expect_one_line_error(go(words + ranking() + Arguments{"--heads", "full,microspec"}),
                          {"ranking.safetensors", "none of the heads is fr-spec"});
    const Arguments two = ranking() + ranking() + Arguments{"--heads", "full,fr-spec:v=64"};
    expect_one_line_error(go(words + two), {"two files for head fr-spec"});
    expect_one_line_error(go(replay_words() + two), {"two files for head fr-spec"});
}

TEST_F(RecordReplay, RejectsAShortlistLargerThanTheVocabulary) {
    const std::string artefact = folder_->file("specvocab.safetensors");
    const ProcessResult fitted =
        go(fit_words("specvocab", artefact) + Arguments{"--rank", "8", "--epochs", "0"});
    ASSERT_EQ(fitted.exit_code, 0) << fitted.err;
    const Arguments words =
        run_words() + Arguments{"--limit", "1", "--head-weights", "specvocab=" + artefact, "--head"};
    const int tokens = tiny_gguf_vocab();
    expect_one_line_error(go(words + Arguments{"specvocab:k=" + std::to_string(tokens + 1)}),
                          {"head specvocab", "k=1.." + std::to_string(tokens)});
    // The paper's default is reduced to the vocabulary size.
    for (const char* head : {"specvocab", "specvocab:k=4"}) {
        const ProcessResult done = go(words + Arguments{head});
        EXPECT_EQ(done.exit_code, 0) << done.err;
    }
}

/// --simulate-acceptance trace: reads the document of replay --json.
TEST_F(RecordReplay, RunSimulatesTheAcceptanceOfReplay) {
    const ProcessResult replayed =
        go(replay_words() + ranking() + Arguments{"--heads", "full,fr-spec:v=64", "--json"});
    ASSERT_EQ(replayed.exit_code, 0) << replayed.err;
    write_text(folder_->file("replayed.json"), replayed.out);
    const Arguments follow = {"--simulate-acceptance", "trace:" + folder_->file("replayed.json"), "--head"};
    const ProcessResult same = go(run_words() + ranking() + follow + Arguments{"fr-spec:v=64"});
    EXPECT_EQ(same.exit_code, 0) << same.err;
    expect_one_line_error(go(run_words() + follow + Arguments{"microspec:wmax=64"}),
                          {"head microspec:wmax=64 runs", "full, fr-spec:v=64"});
}

TEST_F(RecordReplay, ReplayMatchesTheTauOfTheLiveRun) {
    const json document =
        parse_output(go(replay_words() + ranking() + Arguments{"--heads", "full,fr-spec:v=64", "--json"}));
    ASSERT_EQ(document["heads"].size(), 2u);
    EXPECT_EQ(document["prompts"].size(), 8u);
    EXPECT_EQ(document["categories"].size(), 2u);
    for (const json& head : document["heads"]) {
        const Arguments with = head["head"] == "full" ? Arguments{} : ranking();
        const json totals = parse_output(
            go(run_words() + with + Arguments{"--head", head["head"].get<std::string>()}))["totals"];
        EXPECT_EQ(head["rounds"], totals["rounds"]) << head["head"];
        EXPECT_EQ(head["committed"], totals["committed"]) << head["head"];
        EXPECT_EQ(head["exact"], true);
        EXPECT_GT(head["covered_mass"], 0);
    }
    EXPECT_DOUBLE_EQ(document["heads"][0]["rho_tau"], 1.0);
    const json& interval = document["heads"][1]["intervals"]["rho_tau"];
    EXPECT_LE(interval[0], document["heads"][1]["rho_tau"]);
    EXPECT_GE(interval[1], document["heads"][1]["rho_tau"]);
    const ProcessResult table = go(replay_words() + Arguments{"--heads", "full"});
    EXPECT_NE(table.out.find("exact"), std::string::npos) << table.out;
}

TEST_F(RecordReplay, ReplayShowsFlopsAndTheOverlapOfDistributions) {
    const Arguments words =
        replay_words() + ranking() + Arguments{"--heads", "full,fr-spec:v=64", "--tree", "chain=3"};
    const json plain = parse_output(go(words + Arguments{"--json"}))["heads"];
    const json heads =
        parse_output(go(words + Arguments{"--overlap", "--costs", "0.1,1.2", "--json"}))["heads"];
    for (std::size_t h = 0; h < 2; ++h) {
        EXPECT_TRUE(plain[h]["alpha"].is_null() && plain[h]["expected_tokens"].is_null());
        EXPECT_EQ(heads[h]["tau"], plain[h]["tau"]);
        const double alpha = heads[h]["alpha"], tokens = heads[h]["expected_tokens"];
        EXPECT_GT(alpha, 0);
        EXPECT_LT(alpha, 1);
        EXPECT_LE(heads[h]["alpha_per_depth"].size(), 3u);
        EXPECT_NEAR(tokens, 1 + alpha + alpha * alpha + alpha * alpha * alpha, 1e-9);
        EXPECT_NEAR(heads[h]["expected_speedup"], tokens / 1.5, 1e-9);
    }
    EXPECT_NEAR(heads[1]["static_size_by_flops"], 64, 3);  // rounds near the texts' ends have fewer calls
    const ProcessResult table = go(words + Arguments{"--overlap"});
    for (const char* text :
         {"MFLOP", "static", "alpha 3", "alpha at T=1 (the recording is greedy)", "DynaSpec, eq. 1"})
        EXPECT_NE(table.out.find(text), std::string::npos) << text << table.out;
    expect_one_line_error(go(words + Arguments{"--overlap", "--no-mass"}), {"--overlap", "--no-mass"});
    expect_one_line_error(go(words + Arguments{"--overlap", "--costs", "0.1"}), {"--costs 0.1"});
}

/// Returns the query under a heading of docs/FORMATS.md.
std::string documented_query(const std::string& heading) {
    std::ifstream file(DS_SOURCE_DIR "/docs/FORMATS.md");
    const std::string text((std::istreambuf_iterator<char>(file)), {});
    const std::size_t start = text.find("\n-- " + heading);
    EXPECT_NE(start, std::string::npos) << heading;
    const std::size_t query = text.find('\n', start + 1);
    return text.substr(query, text.find(';', query) - query);
}

TEST_F(RecordReplay, AcceptanceByDepthMatchesTheCapture) {
    const std::string path = folder_->file("depth.dscope");
    const ProcessResult live =
        go(run_words() + ranking() + Arguments{"--head", "fr-spec:v=64", "--save", path});
    ASSERT_EQ(live.exit_code, 0) << live.err;
    const ProcessResult replayed =
        go(replay_words() + ranking() + Arguments{"--heads", "fr-spec:v=64", "--json"});
    const json expected = json::parse(replayed.out, nullptr, false)["heads"][0]["per_depth"];
    const Sql sql(path);
    // Includes warm-up rounds.
    EXPECT_GT(sql.number("SELECT count(*) FROM step WHERE excluded = 'warmup'"), 0);
    const auto rows = sql.rows(documented_query("Acceptance by depth"));
    ASSERT_EQ(rows.size(), expected.size());
    for (std::size_t d = 0; d < rows.size(); ++d) {
        EXPECT_EQ(rows[d][0], std::to_string(d + 1));
        EXPECT_NEAR(std::stod(rows[d][2]), expected[d], 1e-12) << d;
    }
}

TEST_F(RecordReplay, AnotherPrecisionIsAnEstimate) {
    const json head =
        parse_output(go(replay_words() + Arguments{"--precision", "int8", "--json"}))["heads"][0];
    EXPECT_EQ(head["exact"], false);
    EXPECT_NE(head["estimate"][0].get<std::string>().find("int8"), std::string::npos);
    EXPECT_NE(go(replay_words() + Arguments{"--precision", "int8"}).out.find("estimate"), std::string::npos);
}

TEST_F(RecordReplay, ShadowHeadsMatchTheTauOfSeparateRuns) {
    const std::string path = folder_->file("shadow.dscope");
    const json document = parse_output(
        go(run_words() + ranking() +
           Arguments{"--shadow", "fr-spec:v=64,full,aligned:microspec:wmax=32", "--save", path}));
    const ProcessResult replayed =
        go(replay_words() + ranking() + Arguments{"--heads", "fr-spec:v=64", "--json"});
    const json exact = json::parse(replayed.out, nullptr, false)["heads"][0];
    int seen = 0;
    for (const json& head : document["heads"]) {
        if (head["head"] == "fr-spec:v=64") {
            EXPECT_EQ(head["mode"], "selfpaced");
            EXPECT_EQ(head["rounds"], exact["rounds"]);
            EXPECT_DOUBLE_EQ(head["tau"], exact["tau"]);
            EXPECT_NEAR(head["covered_mass"], exact["covered_mass"].get<double>(), 0.01);
            EXPECT_EQ(head["estimate"], false);
            EXPECT_EQ(head["intervals"]["rho_tau"].size(), 2u);
            ++seen;
        }
        if (head["mode"] == "aligned") {
            EXPECT_EQ(head["head"], "microspec:wmax=32");
            EXPECT_EQ(head["estimate"], true);
            ++seen;
        }
    }
    EXPECT_EQ(seen, 2);
    const Sql sql(path);
    EXPECT_EQ(sql.number("SELECT count(*) FROM head_eval WHERE round_id IS NULL"), 0);
    EXPECT_EQ(sql.number("SELECT count(*) FROM step WHERE excluded = 'shadow'"), 0);
    EXPECT_EQ(
        sql.number("SELECT count(*) FROM head_eval WHERE mode = 'aligned'"),
        sql.number("SELECT count(*) FROM round r JOIN run n ON n.id = r.run_id WHERE n.drafter <> 'none'"));
    EXPECT_EQ(go({"check", path}).exit_code, 0);
}

/// In a run of few conversations the full head follows each text when it has ended, unless calibration is
/// off.
TEST_F(RecordReplay, TheFullHeadFollowsAFewConversations) {
    const auto full = [&](const Arguments& more) {
        const json document =
            parse_output(go(run_words() + ranking() + Arguments{"--head", "fr-spec:v=64"} + more));
        for (const json& head : document["heads"])
            if (head["head"] == "full" && head["mode"] == "selfpaced") return head;
        return json();
    };
    const json followed = full({"--limit", "5"});
    const json alone = parse_output(go(run_words() + Arguments{"--head", "full", "--limit", "5"}));
    EXPECT_EQ(followed["rounds"], alone["totals"]["rounds"]);
    EXPECT_EQ(followed["tau"], alone["totals"]["tau"]);
    EXPECT_EQ(followed["covered_mass"], 1.0);
    EXPECT_EQ(full({"--limit", "5", "--shadow", "full"})["rounds"], followed["rounds"]);
    for (const Arguments& more : {Arguments{"--limit", "6"}, Arguments{"--limit", "5", "--calibrate", "0"},
                                  Arguments{"--limit", "5", "--batch", "2"}})
        EXPECT_TRUE(full(more).is_null()) << more.back();
}

/// MicroSpec takes candidates from every node; a recording and a shadow know the accepted path only.
TEST_F(RecordReplay, MicroSpecOfTheWholeTreeIsAnEstimate) {
    const json replayed = parse_output(go(
        replay_words() + Arguments{"--heads", "microspec:wmax=32,microspec:wmax=32,branch=path", "--json"}));
    EXPECT_EQ(replayed["heads"][0]["exact"], false);
    EXPECT_NE(replayed["heads"][0]["estimate"][0].get<std::string>().find("every node"), std::string::npos);
    EXPECT_EQ(replayed["heads"][1]["exact"], true);
    EXPECT_EQ(replayed["heads"][0]["tau"], replayed["heads"][1]["tau"]);
    const json shadowed = parse_output(
        go(run_words() + Arguments{"--shadow", "microspec:wmax=32,microspec:wmax=32,branch=path"}));
    int seen = 0;
    for (const json& head : shadowed["heads"]) {
        if (head["mode"] != "selfpaced") continue;
        EXPECT_EQ(head["path_candidates"], head["head"] == "microspec:wmax=32") << head["head"];
        ++seen;
    }
    EXPECT_EQ(seen, 2);
}

TEST_F(RecordReplay, SeveralFilesOfOneHead) {
    // Two rankings, side by side in one command.
    const std::string other = folder_->file("other.safetensors");
    std::filesystem::copy_file(ranking()[1].substr(ranking()[1].find('=') + 1), other);
    const json replayed =
        parse_output(go(replay_words() + ranking() +
                        Arguments{"--heads", "fr-spec:v=64,fr-spec:v=64,file=" + other, "--json"}));
    ASSERT_EQ(replayed["heads"].size(), 2u);
    EXPECT_EQ(replayed["heads"][1]["head"], "fr-spec:file=" + other + ",v=64");
    EXPECT_EQ(replayed["heads"][0]["tau"], replayed["heads"][1]["tau"]);
    EXPECT_EQ(replayed["heads"][1]["file"]["path"], other);
    EXPECT_EQ(replayed["heads"][1]["file"]["trained"], nullptr);
}

TEST_F(RecordReplay, ReplayUsesFittedWeights) {
    const std::string artefact = folder_->file("slimspec.safetensors");
    const ProcessResult fitted = go(fit_words("slimspec", artefact) +
                                    Arguments{"--rank", "16", "--rounds", "60", "--epochs", "0", "--json"});
    ASSERT_EQ(fitted.exit_code, 0) << fitted.err;
    const json document = json::parse(fitted.out, nullptr, false);
    EXPECT_EQ(document["parameters"]["rank"], "16");
    EXPECT_EQ(document["trained"], "post-hoc");
    const Arguments with = {"--head-weights", "slimspec=" + artefact, "--heads"};
    const json found = parse_output(go(replay_words() + with + Arguments{"slimspec", "--json"}));
    const json& file = found["heads"][0]["file"];
    EXPECT_EQ(file["parameters"]["rank"], "16");
    EXPECT_EQ(file["trained"], "post-hoc");
    EXPECT_EQ(file["held_out"]["kl"], document["held_out"]["kl"]);
    EXPECT_EQ(file["lambda"], nullptr);
    EXPECT_NE(go(replay_words() + with + Arguments{"slimspec"}).out.find("rank=16"), std::string::npos);
    ASSERT_EQ(found["warnings"].size(), 1u);  // it was fitted on these prompts
    EXPECT_NE(found["warnings"][0].get<std::string>().find("fitted on"), std::string::npos);
    const ProcessResult live =
        go(run_words() + Arguments{"--head-weights", "slimspec=" + artefact, "--shadow", "slimspec"});
    ASSERT_EQ(live.exit_code, 0) << live.err;
    EXPECT_NE(live.err.find("were fitted on 8 of the run's 8 prompts"), std::string::npos) << live.err;
    expect_one_line_error(go(replay_words() + with + Arguments{"slimspec:rank=8"}), {"rank=16", "rank=8"});
    expect_one_line_error(go(fit_words("slimspec", artefact)), {artefact, "--overwrite"});
}

TEST_F(RecordReplay, BclFitsRowsIfRequested) {
    const std::string out = folder_->file("bcl.safetensors");
    const json ranked = parse_output(go(fit_words("bcl", out) + Arguments{"--json"}));
    const ProcessResult again = go(fit_words("bcl", out) + Arguments{"--overwrite"});
    EXPECT_NE(again.out.find("coverage_at_size (at most 1, higher is better)"), std::string::npos)
        << again.out;
    const double size = ranked["fit"]["size"];
    // The last of eight texts is held out; its tokens that the others lack are not covered.
    EXPECT_GT(ranked["fit"]["tokens_held_out"], 0);
    EXPECT_LT(ranked["held_out"]["coverage_at_size"], ranked["fit"]["coverage_at_size"]);
    const ProcessResult trained =
        go(fit_words("bcl", out) + Arguments{"--epochs", "0", "--rounds", "60", "--overwrite", "--json"});
    ASSERT_EQ(trained.exit_code, 0) << trained.err;
    const json document = json::parse(trained.out, nullptr, false);
    EXPECT_EQ(document["trained"], "post-hoc");
    EXPECT_EQ(document["parameters"]["alpha"], "0.5");
    EXPECT_EQ(document["parameters"]["v"], std::to_string(static_cast<int>(size)));
    const ProcessResult replayed =
        go(replay_words() + Arguments{"--head-weights", "bcl=" + out, "--heads", "bcl", "--json"});
    EXPECT_EQ(replayed.exit_code, 0) << replayed.err;
}

/// Without PyTorch, training is an error with a way out; only a low-rank head has a form that needs none.
TEST_F(RecordReplay, FitsWithoutPyTorch) {
    const std::string out = folder_->file("untrained.safetensors"), no_torch = folder_->file("no_torch");
    write_text(no_torch, "#!/bin/sh\necho 'error this Python has no torch'\nexit 2\n");
    fs::permissions(no_torch, fs::perms::owner_all);
    const auto with = [&](const std::string& head, const std::string& python, const Arguments& more = {}) {
        return go(fit_words(head, out) + Arguments{"--rounds", "60", "--python", python} + more);
    };
    expect_one_line_error(with("dynaspec", no_torch), {"fit dynaspec", "has no torch", "with_torch.sh"});
    expect_one_line_error(with("slimspec", no_torch, {"--epochs", "1"}), {"fit slimspec", "has no torch"});
    expect_one_line_error(with("slimspec", no_torch, {"--joint"}), {"fit slimspec", "has no torch"});
    expect_one_line_error(with("coral", folder_->file("nothing")), {"cannot be started", "--python"});
    EXPECT_FALSE(fs::exists(out));
    const ProcessResult closed = with("slimspec", no_torch, {"--json"});
    ASSERT_EQ(closed.exit_code, 0) << closed.err;
    const json document = json::parse(closed.out, nullptr, false);
    EXPECT_NE(document["remark"].get<std::string>().find("closed form"), std::string::npos);
    EXPECT_FALSE(document["fit"].contains("steps"));
    EXPECT_FALSE(fs::exists(out + ".training"));
}

TEST_F(RecordReplay, FitsOnSeveralRecordings) {
    const std::string again = folder_->file("again"), out = folder_->file("both.safetensors");
    fs::copy(recording_folder(), again);
    const Arguments both =
        fit_words("slimspec", out) + Arguments{"--recording", again, "--rank", "16", "--epochs", "0"};
    const ProcessResult done = go(both + Arguments{"--json"});
    ASSERT_EQ(done.exit_code, 0) << done.err;
    EXPECT_EQ(json::parse(done.out, nullptr, false)["fit"]["texts"], 16);
    json info = json::parse(read_text(again + "/trace.json"));
    info["target"]["name"] = "another";
    write_text(again + "/trace.json", info.dump());
    expect_one_line_error(go(both + Arguments{"--overwrite"}), {again, "another"});
    fs::remove_all(again);
}

/// EAGLE-3 reads three layers even of targets too small for the published 2, L/2, L-3.
TEST_F(RecordReplay, SmallTargetsAreRecordedWithThreeAuxLayers) {
    const json info = json::parse(read_text(recording_folder() + "/trace.json"));
    const int last = info["target"]["layers"].get<int>() - 1;
    ASSERT_LT(last, 5);
    const std::vector<int> expected = {std::min(1, last), (last + 1) / 2, last};
    EXPECT_EQ(info["aux_layers"].get<std::vector<int>>(), expected);
}

TEST_F(RecordReplay, BadRecordings) {
    expect_one_line_error(go({"replay", "--recording", folder_->file("nothing")}),
                          {folder_->file("nothing")});
    const std::string copy = folder_->file("spoilt");
    const auto spoil = [&](const std::string& name, const std::function<std::string(std::string)>& change) {
        fs::remove_all(copy);
        fs::copy(recording_folder(), copy);
        write_text(copy + "/" + name, change(read_text(copy + "/" + name)));
        Arguments words = replay_words();
        words[2] = copy;
        return go(words);
    };
    expect_one_line_error(
        spoil("trace.json", [](std::string text) { return text.substr(0, text.size() / 2); }),
        {copy + "/trace.json"});
    expect_one_line_error(
        spoil("trace.safetensors", [](std::string text) { return text.substr(0, text.size() - 100); }),
        {copy + "/trace.safetensors"});
    expect_one_line_error(spoil("trace.json",
                                [](std::string text) {
                                    json document = json::parse(text);
                                    document["prompts"][0]["generated_tokens"] = -3;
                                    return document.dump();
                                }),
                          {copy + "/trace.json", "generated_tokens", "-3"});
}

TEST_F(RecordReplay, BadOptions) {
    const Arguments prompt = {"record", "--model", model_, "--prompt", "hello", "--quiet"};
    expect_one_line_error(go(record_words() + Arguments{"--out", recording_folder()}),
                          {recording_folder(), "--overwrite"});
    expect_one_line_error(go(prompt + Arguments{"--out", folder_->file("x"), "--aux", "9"}), {"--aux 9"});
    expect_one_line_error(go(replay_words() + Arguments{"--heads", "slimspec"}),
                          {"slimspec", "draftscope fit"});
    expect_one_line_error(go(replay_words() + Arguments{"--heads", "full,full"}), {"full", "twice"});
    expect_one_line_error(go(replay_words() + Arguments{"--heads", "full:file=" + model_}),
                          {"full", "needs no file"});
    expect_one_line_error(go(replay_words() + Arguments{"--heads", "fr-spec:file=/nowhere"}),
                          {"fr-spec:file=/nowhere", "no such file"});
    expect_one_line_error(go(replay_words() + Arguments{"--batch", "0"}), {"--batch 0"});
    expect_one_line_error(go(run_words() + Arguments{"--shadow", "fullest"}), {"--shadow", "fullest"});
    expect_one_line_error(go(run_words() + Arguments{"--shadow", "aligned:fr-spec:w=3"}),
                          {"--shadow", "w", "v"});
    expect_one_line_error(go(run_words() + Arguments{"--shadow", "full,full"}), {"--shadow", "twice"});
    expect_one_line_error(
        go(run_words() + Arguments{"--shadow", "full", "--verify", "pq", "--temperature", "1"}),
        {"--shadow full", "--verify match"});
    EXPECT_FALSE(fs::exists(folder_->file("x")));
}

/// Options without effect are errors, so that users do not rely on them.
TEST_F(RecordReplay, RejectsOptionsWithoutEffect) {
    const std::string out = folder_->file("never.safetensors");
    const auto unused = [&](const std::string& head, const Arguments& more, const std::string& what) {
        expect_one_line_error(go(fit_words(head, out) + more), {"fit " + head, what});
    };
    unused("slimspec", {"--clusters", "8"}, "--clusters");
    unused("dynaspec", {"--rank", "8"}, "--rank");
    unused("dynaspec", {"--epochs", "3"}, "--epochs");
    unused("coral", {"--router-width", "8"}, "--router-width");
    unused("rdk", {"--rounds", "8"}, "--rounds");
    unused("slimspec", {"--ranking", folder_->file("ranking.safetensors")}, "--ranking");
    EXPECT_EQ(go(fit_words("slimspec", out) + Arguments{"--lambda", "0.2"}).exit_code, 2);  // without --joint
    const Arguments ngram = {"run",       "--model", model_,    "--prompt", "hello",
                             "--max-new", "4",       "--quiet", "--drafter"};
    expect_one_line_error(go(ngram + Arguments{"ngram", "--head", "microspec"}), {"--head", "ngram"});
    EXPECT_EQ(go(ngram + Arguments{"none", "--limit", "3"}).exit_code, 2);  // of one prompt
    expect_one_line_error(go(run_words() + ranking()), {"--head-weights", "fr-spec"});
    expect_one_line_error(go(run_words() + Arguments{"--head-weights", "microspec=" + model_}),
                          {"needs no file"});
    expect_one_line_error(go(run_words() + Arguments{"--head", "microspec:source=ext,kpre=2"}),
                          {"kpre=2", "source=ext"});
    expect_one_line_error(go(run_words() + Arguments{"--head", "microspec:source=ctx,kver=2"}),
                          {"kver=2", "source=ctx"});
    EXPECT_FALSE(fs::exists(out));
}

/// Ctrl-C during recording keeps the finished turns and marks the recording as incomplete.
TEST_F(RecordReplay, InterruptedRecordingIsValidAndIncomplete) {
    const std::string out = folder_->file("cut"), prompts = folder_->file("many.jsonl");
    std::string lines;
    for (int i = 0; i < 4000; ++i) lines += "{\"prompt\": \"hello number " + std::to_string(i) + "\"}\n";
    write_text(prompts, lines);
    const Child child = start(
        *folder_, {"record", "--model", model_, "--prompts", prompts, "--max-new", "300", "--ignore-eos",
                   "--threads", "1", "--batch", "1", "--no-times", "--quiet", "--out", out, "--json"});
    // Waits until rows of a turn are on disk or the program ends.
    const auto recording = [&] {
        std::error_code error;
        for (const auto& entry : fs::directory_iterator(out, error))
            if (entry.is_regular_file(error) && entry.file_size(error) > 4096) return true;
        return false;
    };
    for (int i = 0; i < 3000 && !recording() && !child.ended(); ++i)
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
    EXPECT_FALSE(fs::exists(out + "/trace.json"));  // written when the recording is finished
    kill(child.pid, SIGINT);
    const ProcessResult done = child.wait();
    EXPECT_EQ(done.exit_code, 130) << done.err;
    const json document = json::parse(done.out, nullptr, false);
    EXPECT_EQ(document["complete"], false);
    EXPECT_GE(document["prompts"], 1);
    Arguments words = replay_words();
    words[2] = out;
    const json found = parse_output(go(words + Arguments{"--json"}));
    EXPECT_EQ(found["prompts"].size(), document["prompts"].get<std::size_t>());
    EXPECT_NE(found["warnings"][0].get<std::string>().find("cancelled"), std::string::npos);
}

TEST_F(RecordReplay, KilledRecordingIsInvalid) {
    const std::string out = folder_->file("killed");
    const Child child =
        start(*folder_,
              {"record", "--model", model_, "--prompts", folder_->file("prompts.jsonl"), "--max-new", "400",
               "--ignore-eos", "--threads", "1", "--batch", "1", "--no-times", "--quiet", "--out", out});
    for (int i = 0; i < 3000 && !fs::exists(out) && !child.ended(); ++i)
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
    kill(child.pid, SIGKILL);
    child.wait();
    if (fs::exists(out + "/trace.json")) GTEST_FAIL() << "it had ended before the signal";
    Arguments words = replay_words();
    words[2] = out;
    expect_one_line_error(go(words), {out});
}

}  // namespace
}  // namespace draftscope::testing
