#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/support/ranking_file.h"
#include "tests/support/tiny_checkpoint.h"
#include "tests/support/tiny_drafter.h"
#include "tests/unit/app/cli/program.h"
#include "tests/unit/app/cli/sql.h"
#include "tests/unit/app/cli/tiny_profile.h"

namespace draftscope::testing {
namespace {

using nlohmann::json;

class SweepCommand : public ::testing::Test {
  protected:
    static void SetUpTestSuite() {
        folder_ = new ScratchFolder;
        model_ = tiny_model(*folder_, 512);
        ASSERT_TRUE(write_tiny_eagle2(folder_->file("eagle2"), 5).ok());
        std::string lines;
        for (int i = 0; i < 7; ++i)
            lines += json{{"id", i}, {"prompt", "hello you number " + std::to_string(i)}}.dump() + "\n";
        write_text(folder_->file("prompts.jsonl"), lines);
        const ProcessResult recorded =
            run(*folder_,
                arguments("record --model {} --prompts {} --max-new 30 --ignore-eos --threads 1 --precision "
                          "f32 --no-times --quiet --out {}",
                          model_, folder_->file("prompts.jsonl"), folder_->file("recorded")));
        ASSERT_EQ(recorded.exit_code, 0) << recorded.err;
        write_profile("profile.json", tiny_gguf_vocab());
    }
    static void TearDownTestSuite() { delete folder_; }

    static void write_profile(const std::string& name, int vocab, const std::string& precision = "f32",
                              double draft = 1, const std::string& backend = "cpu") {
        write_text(folder_->file(name), tiny_profile(vocab, precision, draft, backend));
    }
    static ProcessResult sweep(const Arguments& more, const std::string& profile = "profile.json") {
        return run(*folder_, arguments("sweep --recording {} --model {} --threads 1 --quiet --profile {}",
                                       folder_->file("recorded"), model_, folder_->file(profile)) +
                                 more);
    }
    static Arguments eagle2() { return {"--drafters", "eagle2:" + folder_->file("eagle2")}; }

    static ScratchFolder* folder_;
    static std::string model_;
};
ScratchFolder* SweepCommand::folder_ = nullptr;
std::string SweepCommand::model_;

TEST_F(SweepCommand, EverySettingHasTheTauOfItsReplay) {
    const std::string csv = folder_->file("sweep.csv");
    const json found = parse_output(sweep(
        eagle2() + Arguments{"--heads", "full,microspec:wmax=32|64", "--chain", "3", "--topk", "2", "--depth",
                             "2", "--nodes", "4,6,8", "--batch", "1,4", "--csv", csv, "--json"}));
    // 3 chains; depth 0 has 3 candidates, depth 1 takes 4 and 6 nodes, depth 2 all three.
    const std::size_t trees = 3 + 2 + 3;
    EXPECT_EQ(found["settings"].size(), 3 * trees * 2);
    EXPECT_EQ(found["passes"], 2 + 2 * trees);  // microspec's rounds depend on earlier ones
    double fastest = 0;
    for (const json& one : found["settings"]) {
        EXPECT_EQ(one["exact"], one["head"] == "full");
        const double speed = one["tokens_per_second"]["value"];
        EXPECT_NEAR(
            speed,
            1e3 * one["batch"].get<int>() * one["tau"]["value"].get<double>() / one["round_ms"].get<double>(),
            1e-6 * speed);
        EXPECT_EQ(one["tau"]["interval"].size(), 2u);
        if (one["batch"] == 1) fastest = std::max(fastest, speed);
    }
    EXPECT_EQ(found["settings"][0]["tokens_per_second"]["value"], fastest);
    for (const std::string tree : {"chain=2", "depth=2,topk=2,nodes=6"}) {
        const json replayed = parse_output(run(
            *folder_, arguments("replay --recording {} --model {} --threads 1 --quiet --drafter eagle2:{} "
                                "--json --heads full,microspec:wmax=32 --tree {}",
                                folder_->file("recorded"), model_, folder_->file("eagle2"), tree)));
        int compared = 0;
        for (const json& one : found["settings"])
            for (const json& head : replayed["heads"])
                if (one["tree"] == tree && one["head"] == head["head"]) {
                    EXPECT_DOUBLE_EQ(one["tau"]["value"], head["tau"]) << one.dump();
                    ++compared;
                }
        EXPECT_EQ(compared, 4) << tree;
    }
    std::ifstream file(csv);
    std::string line;
    std::size_t lines = 0;
    while (std::getline(file, line)) ++lines;
    EXPECT_EQ(lines, 1 + 3 * trees * 2);
}

TEST_F(SweepCommand, AdvisesWhatToRun) {
    write_profile("fast.json", tiny_gguf_vocab(), "f32", 1e-4);
    const ProcessResult done = sweep(
        eagle2() + Arguments{"--chain", "2", "--topk", "2", "--nodes", "4", "--show", "3"}, "fast.json");
    ASSERT_EQ(done.exit_code, 0) << done.err;
    for (const char* part :
         {"x plain", "front", "Runner-up", "draftscope run", "SGLang", "settings per minute"})
        EXPECT_NE(done.out.find(part), std::string::npos) << part << "\n" << done.out;
    const json ngram = parse_output(sweep({"--drafters", "ngram", "--chain", "4", "--json"}));
    ASSERT_EQ(ngram["settings"].size(), 4u);
    EXPECT_TRUE(ngram["settings"][0]["head"].is_null());
    EXPECT_NE(ngram["advice"]["run"].get<std::string>().find("draftscope run"), std::string::npos);
}

/// A trimmed head without a size keeps a quarter of the vocabulary, as in a run.
TEST_F(SweepCommand, HeadsWithoutASizeHaveTheirDefault) {
    const RankingFile ranking = RankingFile::shuffled(tiny_gguf_vocab());
    const std::string head = "fr-spec:v=" + std::to_string((tiny_gguf_vocab() / 4 + 63) / 64 * 64);
    for (const char* command : {"sweep", "advise"}) {
        const std::string save = folder_->file(std::string(command) + "-default.dscope");
        const json found = parse_output(
            run(*folder_, arguments("{} --recording {} --model {} --threads 1 --quiet --json --profile {} "
                                    "--heads full,fr-spec --head-weights fr-spec={} --save {}",
                                    command, folder_->file("recorded"), model_, folder_->file("profile.json"),
                                    ranking.path(), save) +
                              eagle2()));
        EXPECT_EQ(found["skipped"], json::array()) << command;
        if (command == std::string("sweep")) {
            EXPECT_GT(Sql(save).number("SELECT count(*) FROM sweep WHERE head = '" + head + "'"), 0)
                << command;
        }
    }
}

/// The search finds what a sweep of every tree finds, and judges it on texts that did not choose it.
TEST_F(SweepCommand, AdviseFindsWhatTheWholeGridHolds) {
    write_profile("search.json", tiny_gguf_vocab(), "f32", 0.05);
    const Arguments common = arguments("--recording {} --model {} --threads 1 --quiet --json --profile {}",
                                       folder_->file("recorded"), model_, folder_->file("search.json")) +
                             eagle2();
    const std::string file = folder_->file("advice.dscope");
    const json advised =
        parse_output(run(*folder_, Arguments{"advise"} + common + Arguments{"--save", file}));
    EXPECT_GT(Sql(file).number("SELECT count(*) FROM sweep"), 0);
    EXPECT_EQ(Sql(file).number("SELECT count(*) FROM meta WHERE key LIKE 'sweep %' AND value LIKE "
                               "'%draftscope run %'"),
              1);
    const json swept =
        parse_output(run(*folder_, Arguments{"sweep"} + common +
                                       Arguments{"--heads", "full", "--chain", "6", "--topk", "2,3,4",
                                                 "--depth", "3", "--nodes", "3,4,5,6,7,8,9,10,12,16,20,24"}));
    // Without --heads it tries every head that it can.
    EXPECT_GT(Sql(file).number("SELECT count(*) FROM sweep WHERE head LIKE 'microspec%'"), 0);
    const json& chosen = advised["chosen"];
    const double speed = chosen["tokens_per_second"]["value"];
    EXPECT_GE(speed, 0.99 * advised["fastest"]["tokens_per_second"]["value"].get<double>());
    EXPECT_GE(speed, 0.97 * swept["settings"][0]["tokens_per_second"]["value"].get<double>());
    EXPECT_GT(advised["settings"], 3 * 100);  // three batches
    EXPECT_EQ(advised["advice"]["speedup"]["interval"].size(), 2u);
    EXPECT_LE(advised["advice"]["same_choice"], 7);
    const std::string line = advised["advice"]["run"];
    EXPECT_NE(line.find("--tree " + chosen["tree"].get<std::string>()), std::string::npos) << line;
    const ProcessResult printed =
        run(*folder_, arguments("advise --recording {} --model {} --threads 1 --quiet --profile {} "
                                "--drafters ngram --batch 2",
                                folder_->file("recorded"), model_, folder_->file("search.json")));
    ASSERT_EQ(printed.exit_code, 0) << printed.err;
    EXPECT_NE(printed.out.find("draftscope run --model"), std::string::npos) << printed.out;
}

TEST_F(SweepCommand, SavesSettingsAndSkipsThoseThatItHas) {
    const std::string file = folder_->file("sweep.dscope");
    const Arguments common = eagle2() + Arguments{"--topk", "2", "--nodes", "4", "--json", "--save", file};
    const json first = parse_output(sweep(common + Arguments{"--chain", "2"}));
    const json again = parse_output(sweep(common + Arguments{"--chain", "2"}));
    EXPECT_EQ(first["passes"], 2);
    EXPECT_EQ(again["passes"], 0);
    EXPECT_EQ(again["settings"], first["settings"]);
    const json more = parse_output(sweep(common + Arguments{"--chain", "3", "--batch", "1,4"}));
    EXPECT_EQ(more["passes"], 1);  // the chains' alone
    EXPECT_EQ(more["settings"].size(), 2 * (first["settings"].size() + 1));
    EXPECT_EQ(Sql(file).number("SELECT count(*) FROM sweep"), more["settings"].size());
    const ProcessResult checked = run(*folder_, {"check", file});
    EXPECT_EQ(checked.exit_code, 0) << checked.out << checked.err;
    write_text(folder_->file("no.dscope"), "no capture");
    expect_one_line_error(sweep(eagle2() + Arguments{"--chain", "1", "--save", folder_->file("no.dscope")}),
                          {"no.dscope"});
}

TEST_F(SweepCommand, ConfirmsTheFrontByLiveRuns) {
    const Arguments common = eagle2() + Arguments{"--chain", "2", "--topk", "2", "--nodes", "4", "--json"};
    const json found = parse_output(
        sweep(common + Arguments{"--confirm", "2", "--prompts", folder_->file("prompts.jsonl")}));
    ASSERT_FALSE(found["confirmed"].empty());
    EXPECT_LE(found["confirmed"].size(), 2u);
    for (const json& one : found["confirmed"]) {
        EXPECT_EQ(one["on_front"], true);
        EXPECT_GT(one["measured"]["tokens_per_second"], 0);
        EXPECT_EQ(one["measured"]["speedup"]["interval"].size(), 2u);
        EXPECT_TRUE(one["measured"]["agrees"].is_boolean());
        // Replay is exact, but the recording goes past the end of a text, which a live run does not.
        EXPECT_NEAR(one["measured"]["tau"].get<double>(), one["tau"]["value"].get<double>(), 0.3);
    }
    expect_one_line_error(sweep(common + Arguments{"--confirm", "2"}), {"--confirm 2", "--prompts"});
    // A profile of another back end predicts, but cannot be confirmed here. The sweep does not begin.
    write_profile("tpu.json", tiny_gguf_vocab(), "f32", 1, "tpu");
    expect_one_line_error(
        sweep(common + Arguments{"--confirm", "1", "--prompts", folder_->file("prompts.jsonl")}, "tpu.json"),
        {"--confirm 1", "tpu.json is of back end tpu"});
}

TEST_F(SweepCommand, AdviseReportsBadInput) {
    write_profile("int8.json", tiny_gguf_vocab(), "int8");
    const Arguments recording = {"advise", "--recording", folder_->file("recorded"), "--model", model_};
    const Arguments profile = {"--profile", folder_->file("profile.json")};
    expect_one_line_error(
        run(*folder_, recording + eagle2() + Arguments{"--profile", folder_->file("int8.json")}),
        {"int8.json", "precision"});
    expect_one_line_error(run(*folder_, recording + profile + eagle2() + Arguments{"--heads", "nope"}),
                          {"nope"});
    expect_one_line_error(run(*folder_, recording + profile + eagle2() + Arguments{"--batch", "0"}),
                          {"--batch"});
}

/// From a model alone: records, measures, searches, and runs the advised setting. A second time the costs are
/// kept.
TEST_F(SweepCommand, AdviseMakesWhatItLacks) {
    const Arguments words =
        arguments(
            "advise --model {} --prompts {} --limit 6 --max-new 16 --precision f32 --threads 1 "
            "--heads full --json --quiet",
            model_, folder_->file("prompts.jsonl")) +
        eagle2();
    const std::string cache = folder_->file("cache");
    const StartOptions options{.cache = cache.c_str()};
    const json found = parse_output(run(*folder_, words, options));
    EXPECT_EQ(found["conversations"], 6);
    EXPECT_EQ(found["max_new"], 16);
    EXPECT_GT(found["settings"], 20);
    ASSERT_GE(found["live"].size(), 1u);
    EXPECT_GT(found["live"][0]["tokens_per_second"], 0);
    EXPECT_EQ(found["live"][0]["speedup"]["interval"].size(), 2u);
    EXPECT_NE(found["live_verdict"].get<std::string>().find("Run here"), std::string::npos);
    EXPECT_EQ(found["profile"]["kind"], "measured");
    EXPECT_EQ(found["recording"].get<std::string>().find(cache), 0u);
    const json again = parse_output(run(*folder_, words, options));
    EXPECT_EQ(again["profile"]["file"], found["profile"]["file"]);
    EXPECT_EQ(again["recording"], found["recording"]);
    // A recording that is given is not made again.
    const json given = parse_output(
        run(*folder_,
            arguments("advise --recording {} --model {} --precision f32 --threads 1 --heads full "
                      "--json --quiet",
                      folder_->file("recorded"), model_) +
                eagle2(),
            options));
    EXPECT_EQ(given["recording"], folder_->file("recorded"));
    EXPECT_EQ(given["conversations"], 7);
    EXPECT_EQ(given["profile"]["file"], found["profile"]["file"]);
    expect_one_line_error(
        run(*folder_, arguments("advise --model {} --prompts none.jsonl --quiet", model_) + eagle2()),
        {"none.jsonl"});
}

/// Files of other versions, and grids that are too large, are refused before anything is swept.
TEST_F(SweepCommand, RefusesOtherVersionsAndHugeGrids) {
    const std::string file = folder_->file("versions.dscope");
    const Arguments saved =
        eagle2() + Arguments{"--chain", "1", "--topk", "2", "--nodes", "4", "--save", file};
    ASSERT_EQ(sweep(saved).exit_code, 0);
    { Sql(file, true).exec("PRAGMA user_version = 4; DROP TABLE sweep"); }
    expect_one_line_error(sweep(saved), {"versions.dscope", "schema version 4", "check --repair"});
    { Sql(file, true).exec("PRAGMA user_version = 999"); }
    expect_one_line_error(sweep(saved), {"versions.dscope", "999"});
    expect_one_line_error(run(*folder_, {"merge", "--pool", folder_->file("pool.dscope"), file}),
                          {"versions.dscope", "999"});
    std::string newer = read_text(folder_->file("profile.json"));
    const std::string version = "\"version\":1";
    ASSERT_NE(newer.find(version), std::string::npos) << newer;
    newer.replace(newer.find(version), version.size(), "\"version\":99");
    write_text(folder_->file("newer.json"), newer);
    expect_one_line_error(sweep(eagle2(), "newer.json"), {"newer.json", "version"});
    // 16.1 million settings.
    std::string heads = "microspec:wmax=1", batches = "1";
    for (int i = 2; i <= 1000; ++i) heads += "|" + std::to_string(i);
    for (int i = 2; i <= 100; ++i) batches += "," + std::to_string(i);
    std::string nodes = "5";
    for (int i = 6; i <= 104; ++i) nodes += "," + std::to_string(i);
    expect_one_line_error(sweep(eagle2() + Arguments{"--heads", heads, "--chain", "0", "--topk", "64",
                                                     "--depth", "1", "--nodes", nodes, "--batch", batches}),
                          {"16100000 settings, at most 100000",
                           "1000 pairs of drafter and head x 161 trees x 100 batch sizes"});
}

TEST_F(SweepCommand, ReportsBadInput) {
    write_profile("other.json", tiny_gguf_vocab() + 1);
    write_profile("int8.json", tiny_gguf_vocab(), "int8");
    ModelConfig target;
    target.hidden = TinyModelOptions().hidden;
    target.vocab = tiny_gguf_vocab();
    target.layers = TinyModelOptions().layers;
    target.heads = target.kv_heads = 2;
    target.head_dim = 16;
    target.ffn = 64;
    target.context = 512;
    const TinyEagle3 eagle3(target, 5);  // it reads other layers than the recording has
    expect_one_line_error(sweep({"--drafters", "eagle3:" + eagle3.folder()}), {"aux_layers is", "--aux 0"});
    const ProcessResult recorded = run(
        *folder_, arguments("record --model {} --prompts {} --max-new 4 --ignore-eos --threads 1 --precision "
                            "f32 --no-times --aux none --quiet --out {}",
                            model_, folder_->file("prompts.jsonl"), folder_->file("no-aux")));
    ASSERT_EQ(recorded.exit_code, 0) << recorded.err;
    expect_one_line_error(
        run(*folder_,
            arguments("sweep --recording {} --model {} --threads 1 --quiet --profile {} --drafters "
                      "eagle3:{}",
                      folder_->file("no-aux"), model_, folder_->file("profile.json"), eagle3.folder())),
        {"aux"});
    expect_one_line_error(sweep(eagle2(), "other.json"), {"other.json", "vocab"});
    expect_one_line_error(sweep(eagle2(), "int8.json"), {"int8.json", "precision"});
    expect_one_line_error(sweep(eagle2(), "missing.json"), {"missing.json"});
    expect_one_line_error(sweep(eagle2() + Arguments{"--chain", "0", "--topk", "2", "--nodes", "40"}),
                          {"grid", "empty"});
    expect_one_line_error(sweep(eagle2() + Arguments{"--heads", "microspec:wmax=" +
                                                                    [] {
                                                                        std::string many = "1";
                                                                        for (int i = 2; i < 20000; ++i)
                                                                            many += "|" + std::to_string(i);
                                                                        return many;
                                                                    }()}),
                          {"settings", "at most 100000", "19999 pairs of drafter and head x"});
    expect_one_line_error(sweep(eagle2() + Arguments{"--heads", "nope"}), {"nope"});
    expect_one_line_error(sweep(eagle2() + Arguments{"--topk", "1"}), {"--topk 1"});
    expect_one_line_error(run(*folder_, {"sweep"}), {"--recording"});
}

}  // namespace
}  // namespace draftscope::testing
