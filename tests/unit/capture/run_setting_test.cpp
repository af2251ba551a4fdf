#include "capture/run_setting.h"

#include <gtest/gtest.h>

namespace draftscope {
namespace {

RunRow usual() {
    RunRow run;
    run.target = "tiny";
    run.drafter = "eagle3";
    run.head = "full";
    run.tree = "chain=3";
    run.precision = "int8";
    run.config_json =
        R"({"max_new": 64, "ignore_eos": false, "raw": false, "top_p": 1.0, "top_k": 0, "seed": 1, "pin": false,
            "tokenizer_fingerprint": "ab", "model_hash": "cd", "drafter_hash": "ef", "command": "draftscope run"})";
    run.machine_json = R"({"cpu": "X", "cores": 2, "isa": "avx2", "pid": 7})";
    return run;
}

RunRow changed(const std::string& from, const std::string& to) {
    RunRow run = usual();
    const std::size_t at = run.config_json.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    run.config_json.replace(at, from.size(), to);
    return run;
}

TEST(RunSetting, TextAndMachineChangesGiveAnotherSetting) {
    for (const RunRow& other :
         {changed("64", "8"), changed(R"("ignore_eos": false)", R"("ignore_eos": true)"),
          changed(R"("raw": false)", R"("raw": true)"),
          changed(R"("raw": false)", R"("raw": false, "system_hash": "12")"), changed(R"("cd")", R"("c0")"),
          changed(R"("pin": false)", R"("pin": true)")}) {
        EXPECT_NE(plain_setting(other), plain_setting(usual())) << other.config_json;
        EXPECT_NE(head_setting(other), head_setting(usual())) << other.config_json;
    }
    RunRow other = usual();
    other.machine_json = R"({"cpu": "Y", "cores": 2, "isa": "avx2"})";
    EXPECT_NE(plain_setting(other), plain_setting(usual()));
    other = usual();
    other.precision = "bf16";
    EXPECT_NE(plain_setting(other), plain_setting(usual()));
}

TEST(RunSetting, ExcludesSeedHeadProcessAndCommand) {
    RunRow other = changed("draftscope run", "draftscope run --save x");
    other.seed = 9;
    other.temperature = 0;
    other.head = "microspec";
    other.machine_json = R"({"cpu": "X", "cores": 2, "isa": "avx2", "pid": 8})";
    EXPECT_EQ(head_setting(other), head_setting(usual()));
    EXPECT_NE(repeat_setting(other), repeat_setting(usual()));
}

TEST(RunSetting, PlainSettingExcludesDrafting) {
    RunRow other = changed("ef", "e0");
    other.tree = "chain=2";
    EXPECT_EQ(plain_setting(other), plain_setting(usual()));
    EXPECT_NE(head_setting(other), head_setting(usual()));
    EXPECT_NE(head_setting(changed("ef", "e0")), head_setting(usual())) << "another checkpoint";
}

TEST(RunSetting, GreedyDecodingIgnoresSamplingFields) {
    RunRow a = usual(), b = changed(R"("top_p": 1.0)", R"("top_p": 0.9)");
    b.verify = "pq";
    EXPECT_EQ(head_setting(a), head_setting(b));
    a.temperature = b.temperature = 1;
    EXPECT_NE(plain_setting(a), plain_setting(b));
    b.config_json = a.config_json;
    EXPECT_EQ(plain_setting(a), plain_setting(b));
    EXPECT_NE(head_setting(a), head_setting(b)) << "pq";
}

TEST(RunSetting, ALimitedContextIsAnotherSetting) {
    const RunRow limited = changed(R"("top_p": 1.0)", R"("top_p": 1.0, "context": 512)");
    EXPECT_NE(plain_setting(limited), plain_setting(usual()));
}

TEST(RunSetting, IncludesTheGpuName) {
    RunRow a = usual();
    a.backend = "cuda";
    a.machine_json = R"({"cpu": "X", "capabilities": [{"name": "GPU", "state": "H200, sm_90"}]})";
    RunRow b = a;
    b.machine_json = R"({"cpu": "X", "capabilities": [{"name": "GPU", "state": "A100, sm_80"}]})";
    EXPECT_NE(plain_setting(a), plain_setting(b));
}

TEST(RunSetting, IdentifiesBaselines) {
    RunRow run = usual();
    run.drafter = plain_drafter;
    EXPECT_FALSE(is_baseline(run));
    run.config_json = R"({"role": "baseline"})";
    EXPECT_TRUE(is_baseline(run));
    run.config_json = "no JSON";
    run.machine_json = "[1]";
    EXPECT_FALSE(is_baseline(run));
    EXPECT_FALSE(plain_setting(run).empty());
}

TEST(MachineRates, AreFieldsAndNotTextThatLooksLikeThem) {
    RunRow run;
    run.machine_json = R"({"cpu": "x \"read_gb_per_s\":7", "read_gb_per_s" : 18.5})";
    EXPECT_EQ(probed_gb_per_s(run), 18.5);
    EXPECT_EQ(probed_scattered_gb_per_s(run), std::nullopt);
    for (const char* none :
         {"", "[]", R"({"read_gb_per_s":null})", R"({"read_gb_per_s":0})", R"({"x":{"read_gb_per_s":3}})"}) {
        run.machine_json = none;
        EXPECT_EQ(probed_gb_per_s(run), std::nullopt) << none;
    }
}

}  // namespace
}  // namespace draftscope
