#include "stats/machine_profile.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>

#include "tests/support/results.h"
#include "tests/support/scratch_folder.h"

namespace draftscope {
namespace {

using nlohmann::json;

/// Easy numbers: a verification of 10 ms and 1 ms a row, a drafter of 2 ms and 0.5 ms a level.
json small_profile() {
    return json::parse(R"({
        "format": "draftscope-profile", "version": 1, "kind": "estimate", "source": "a test",
        "machine": "M", "backend": "cpu", "precision": "int8", "model": "tiny", "vocab": 300, "hidden": 64,
        "costs": [
            {"part": "verify", "terms": {"fixed": 10, "row": 1}, "error": 0.1},
            {"part": "overhead", "terms": {"sequence": 2}, "error": 0.5},
            {"part": "catch_up", "drafter": "d", "terms": {"fixed": 2, "row": 0.25}, "error": 0},
            {"part": "level", "drafter": "d", "terms": {"fixed": 0.5}, "error": 0.2, "worst": 0.3,
             "points": [{"rows": 1, "context": 60, "ms": 0.5, "spread": 0.1, "samples": 9},
                        {"rows": 8, "context": 60, "ms": 0.5}]},
            {"part": "head", "drafter": "d", "head": "full", "terms": {"fixed": 3, "row": 0.5}, "error": 0},
            {"part": "head", "drafter": "d", "head": "fr-spec", "size_parameter": "v",
             "terms": {"size": 0.001, "size_row": 0.0001, "size_first_level": 0.002}, "error": 0},
            {"part": "catch_up", "drafter": "ngram", "terms": {"fixed": 0.125}}
        ]})");
}
MachineProfile parsed(const json& document) {
    return require(parse_profile(document.dump(), "p.json"));
}
StepSetting setting(const std::string& head = "full") {
    StepSetting made{.drafter = std::string("d"), .head = head, .level_rows = {}};
    made.level_rows = {1, 4, 4};
    made.nodes = 8;
    made.committed = 2;
    made.context = 60;
    return made;
}
/// Returns the message of an error that must be bad input.
template <typename T>
std::string message(const Result<T>& result) {
    if (result.ok()) return "no error";
    return result.error().kind == ErrorKind::bad_input ? result.error().message : "no bad input";
}
void expect_contains(const std::string& text, std::initializer_list<const char*> parts) {
    for (const char* part : parts) EXPECT_NE(text.find(part), std::string::npos) << part << "\n" << text;
}

TEST(MachineProfile, AddsUpTheLevelsOfAStep) {
    const MachineProfile profile = parsed(small_profile());
    const StepCost full = require(step_cost(profile, setting()));
    EXPECT_DOUBLE_EQ(full.verify_ms, 10 + 8);
    EXPECT_DOUBLE_EQ(full.overhead_ms, 2);
    EXPECT_DOUBLE_EQ(full.drafter_ms, 2 + 2 * 0.25 + 2 * 0.5);
    EXPECT_DOUBLE_EQ(full.head_ms, 3 * 3 + 0.5 * (1 + 4 + 4));
    EXPECT_DOUBLE_EQ(full.total_ms(), 18 + 2 + 3.5 + 13.5);
    EXPECT_DOUBLE_EQ(*full.error_ms, 1.8 + 1 + 0.2);
    EXPECT_FALSE(full.extrapolated);

    StepSetting two = setting("fr-spec");
    two.head_size = 100;
    two.batch = 2;
    const StepCost trimmed = require(step_cost(profile, two));
    EXPECT_DOUBLE_EQ(trimmed.verify_ms, 10 + 16);
    EXPECT_DOUBLE_EQ(trimmed.overhead_ms, 4);
    EXPECT_DOUBLE_EQ(trimmed.drafter_ms, 2 + 4 * 0.25 + 2 * 0.5);
    EXPECT_NEAR(trimmed.head_ms, 3 * 0.1 + 0.01 * (2 + 8 + 8) + 0.2, 1e-12);
    EXPECT_TRUE(trimmed.extrapolated);  // levels were measured at batch 1
}

/// Ten sizes, each measured twice, 3 % above and below, against a control.
json controlled_profile() {
    json made = small_profile();
    made["version"] = 2;
    made["kind"] = "measured";
    made["sessions"] = {"one", "two", "three"};
    made["controls"] = {9.5, 12.5, 10.0};
    for (json& cost : made["costs"]) {
        cost["error"] = 0.03;
        cost["points"] = json::array();
        for (int rows = 1; rows <= 10; ++rows)
            for (const double off : {0.97, 1.03}) {
                double ms = 0;
                for (const auto& [term, value] : cost["terms"].items())
                    ms += value.get<double>() * (term.starts_with("row") ? rows : 1);
                cost["points"].push_back({{"rows", rows}, {"context", 60}, {"ms", off * ms}});
            }
    }
    made["costs"].erase(5);  // its terms are of sizes
    return made;
}

TEST(MachineProfile, ErrorsOfAControlledProfileAreIndependent) {
    const MachineProfile profile = parsed(controlled_profile());
    EXPECT_DOUBLE_EQ(profile.control_ms(), 10);
    EXPECT_FALSE(profile.is_uncontrolled());
    const StepCost round = require(step_cost(profile, setting()));
    const StepCost plain = require(step_cost(profile, {.drafter = "none", .level_rows = {}, .context = 60}));
    double sum = 0;
    for (const CurveTime& one : round.curves) sum += 0.03 * one.ms;
    // Each curve averages 20 points, and the errors of five curves add up in squares.
    EXPECT_LT(*round.error_ms, 0.4 * sum);
    EXPECT_GT(*round.error_ms, 0.1 * sum);
    // A round with one node less errs almost alike, and plain decoding has an error of its own.
    StepSetting smaller = setting();
    smaller.nodes = 7;
    const StepCost next = require(step_cost(profile, smaller));
    const auto ratio = [&](const StepCost& other) {
        return ratio_error(round.curves, round.total_ms(), other.curves, other.total_ms());
    };
    const double alone = *round.error_ms / round.total_ms();
    EXPECT_LT(ratio(round), 1e-12);
    EXPECT_LT(ratio(next), 0.3 * alone);
    EXPECT_GT(ratio(plain), alone);
}

TEST(MachineProfile, AMeasuredProfileWithoutAControlSaysSo) {
    json former = controlled_profile();
    former["version"] = 1;
    former.erase("controls");
    const MachineProfile profile = parsed(former);
    EXPECT_TRUE(profile.is_uncontrolled());
    EXPECT_EQ(profile.control_ms(), 0);
    const StepCost round = require(step_cost(profile, setting()));
    EXPECT_NEAR(*round.error_ms, 0.03 * round.total_ms(), 1e-9);  // as they were: the parts' errors, added up
    EXPECT_FALSE(parsed(small_profile()).is_uncontrolled());      // an estimate measures nothing
}

TEST(MachineProfile, StepsWithoutADrafterOrWithoutAHead) {
    const MachineProfile profile = parsed(small_profile());
    const StepCost plain = require(step_cost(profile, {.drafter = "none", .level_rows = {}}));
    EXPECT_DOUBLE_EQ(plain.total_ms(), 11 + 2);
    StepSetting ngram = setting();
    ngram.drafter = "ngram";
    const StepCost found = require(step_cost(profile, ngram));
    EXPECT_DOUBLE_EQ(found.drafter_ms, 0.125);
    EXPECT_DOUBLE_EQ(found.head_ms, 0);
    EXPECT_FALSE(found.error_ms);  // that of ngram's curve is unknown
}

TEST(MachineProfile, RefusesWhatItDoesNotKnow) {
    const MachineProfile profile = parsed(small_profile());
    const auto refused = [&](auto change) {
        StepSetting wrong = setting();
        change(wrong);
        return message(step_cost(profile, wrong));
    };
    expect_contains(refused([](StepSetting& s) { s.drafter = "eagle9"; }), {"p.json", "eagle9", "d, ngram"});
    expect_contains(refused([](StepSetting& s) { s.head = "nope"; }), {"p.json", "nope", "fr-spec, full"});
    expect_contains(refused([](StepSetting& s) { s.head = "fr-spec"; }), {"fr-spec", "v"});
    expect_contains(refused([](StepSetting& s) { s.batch = 0; }), {"batch 0"});
    expect_contains(refused([](StepSetting& s) { s.nodes = 0; }), {"nodes 0"});
    expect_contains(refused([](StepSetting& s) { s.context = -1; }), {"context -1"});
    expect_contains(refused([](StepSetting& s) { s.committed = 0; }), {"committed tokens 0"});
    expect_contains(refused([](StepSetting& s) { s.level_rows = {1, 0}; }), {"rows of a draft level 0"});
    expect_contains(refused([](StepSetting& s) { s.level_rows.clear(); }), {"0 levels"});
    json without = small_profile();
    without["costs"].erase(0);
    expect_contains(message(step_cost(parsed(without), setting())), {"p.json", "verify"});
}

/// The simulator's step of predictor.py and simulator.py: a forward over the batched and the cached tokens, a
/// draft, and the overhead.
TEST(MachineProfile, ThePublishedCostModelOfVllmPredictsLikeItsSimulator) {
    const MachineProfile profile =
        require(read_profile(DS_SOURCE_DIR "/assets/profiles/h100-llama-3.1-8b-vllm.json"));
    EXPECT_EQ(profile.kind, ProfileKind::published);
    expect_contains(profile.source, {"2601.11580", "SpecDecode-Bench/simulator"});
    StepSetting plain;
    plain.context = 300;
    EXPECT_NEAR(require(step_cost(profile, plain)).total_ms(),
                5.88590713 + 0.0210103129 + 0.0117793704 + 1.20683946, 1e-9);
    StepSetting eagle;  // 8 sequences of 500 tokens, chains of 3 drafts
    eagle.drafter = "eagle3";
    eagle.level_rows = {1, 1, 1};
    eagle.nodes = 4;
    eagle.context = 500;
    eagle.batch = 8;
    const StepCost cost = require(step_cost(profile, eagle));
    EXPECT_NEAR(cost.verify_ms, 6.7152954144, 1e-9);
    EXPECT_NEAR(cost.drafter_ms, 2.1481382081, 1e-9);
    EXPECT_NEAR(cost.overhead_ms, 1.20683946, 1e-12);
    EXPECT_EQ(cost.head_ms, 0);
    EXPECT_FALSE(cost.error_ms);
    eagle.drafter = "ngram";
    EXPECT_NEAR(require(step_cost(profile, eagle)).drafter_ms, 0.005875 * 6.7152954144, 1e-9);
    eagle.drafter = "eagle3";
    eagle.head = "fr-spec";
    expect_contains(message(step_cost(profile, eagle)), {"h100", "fr-spec"});
}

TEST(MachineProfile, ShippedProfilesSayWhatTheyAre) {
    std::map<ProfileKind, int> kinds;
    for (const auto& entry : std::filesystem::directory_iterator(DS_SOURCE_DIR "/assets/profiles")) {
        const MachineProfile profile = require(read_profile(entry.path().string()));
        EXPECT_TRUE(profile.complete) << profile.path;
        ++kinds[profile.kind];
        if (profile.kind == ProfileKind::published) continue;
        StepSetting trimmed{
            .drafter = std::string("eagle3"), .head = std::string("fr-spec"), .level_rows = {1, 4, 4}};
        trimmed.nodes = 8;
        trimmed.head_size = 8192;
        trimmed.context = 100;
        const StepCost small = require(step_cost(profile, trimmed));
        EXPECT_FALSE(small.extrapolated);
        if (profile.kind == ProfileKind::estimate)
            EXPECT_FALSE(small.error_ms);
        else
            EXPECT_LT(*small.error_ms, small.total_ms() / 3);
        trimmed.head = "full";
        EXPECT_GT(require(step_cost(profile, trimmed)).head_ms, small.head_ms);
    }
    for (const ProfileKind kind : {ProfileKind::measured, ProfileKind::estimate, ProfileKind::published})
        EXPECT_GE(kinds[kind], 1) << to_text(kind);
}

TEST(MachineProfile, EveryFieldIsChecked) {
    const auto refused = [](std::initializer_list<const char*> field, const json& value) {
        json wrong = small_profile();
        json::json_pointer pointer;
        for (const char* step : field) pointer /= std::string(step);
        wrong[pointer] = value;
        return message(parse_profile(wrong.dump(), "p.json"));
    };
    expect_contains(refused({"format"}, "other"), {"p.json", "no machine profile"});
    expect_contains(refused({"version"}, 3), {"p.json", "version 3", "newer"});
    for (const json& value : {json(1), json::array({1}), json::array({0}), json::array({"x"})})
        expect_contains(refused({"controls"}, value), {"p.json", "controls", "each session"});
    expect_contains(refused({"version"}, "one"), {"p.json: version is \"one\""});
    for (const char* text : {"kind", "source", "machine", "backend", "precision", "model"}) {
        expect_contains(refused({text}, 7), {"p.json", text, "is 7"});
        expect_contains(refused({text}, nullptr), {"p.json", text, "missing"});
    }
    expect_contains(refused({"kind"}, "guessed"), {"kind is \"guessed\"", "measured, estimate or published"});
    for (const char* text : {"note", "date", "cpu", "isa", "gpu"})
        expect_contains(refused({text}, 7), {"p.json", text, "is 7"});
    for (const char* count : {"vocab", "hidden"})
        for (const json& value : {json(0), json(1.5), json("x"), json(1LL << 40), json()})
            expect_contains(refused({count}, value), {"p.json", count});
    for (const char* count : {"threads", "layers", "clock_mhz", "read_gb_per_s", "other_load"})
        expect_contains(refused({count}, -1), {"p.json", count, "is -1"});
    for (const char* flag : {"synthetic", "complete"})
        expect_contains(refused({flag}, 1), {"p.json", flag, "true or false"});
    for (const char* list : {"sessions", "skipped"}) {
        expect_contains(refused({list}, "x"), {"p.json", list});
        expect_contains(refused({list}, json::array({1})), {"p.json", list});
    }
    expect_contains(refused({"costs"}, 1), {"p.json", "costs is 1"});
    expect_contains(refused({"costs", "0"}, 1), {"p.json", "costs[0]"});
    expect_contains(refused({"costs", "0", "part"}, "verfy"), {"costs[0].part is \"verfy\""});
    expect_contains(refused({"costs", "0", "terms"}, 1), {"costs[0].terms"});
    expect_contains(refused({"costs", "0", "terms"}, {{"rows", 1}}), {"costs[0].terms", "'rows'"});
    expect_contains(refused({"costs", "0", "terms"}, {{"row", -1}}), {"costs[0].terms", "row"});
    expect_contains(refused({"costs", "0", "error"}, -1), {"costs[0].error is -1"});
    expect_contains(refused({"costs", "0", "worst"}, "x"), {"costs[0].worst"});
    expect_contains(refused({"costs", "2", "drafter"}, ""), {"costs[2].drafter"});
    expect_contains(refused({"costs", "4", "head"}, nullptr), {"costs[4].head is missing"});
    expect_contains(refused({"costs", "5", "size_parameter"}, 1), {"costs[5].size_parameter"});
    expect_contains(refused({"costs", "5", "head"}, "full"), {"costs[5] repeats the head"});
    expect_contains(refused({"costs", "3", "points"}, 1), {"costs[3].points"});
    expect_contains(refused({"costs", "3", "points", "1"}, 1), {"costs[3].points[1]"});
    for (const char* field : {"rows", "batch", "context", "size", "ms", "spread", "samples"})
        expect_contains(refused({"costs", "3", "points", "1", field}, -1),
                        {"costs[3].points[1].", field, "is -1"});
    expect_contains(refused({"costs", "3", "points", "1", "first_level"}, 1),
                    {"costs[3].points[1].first_level"});
    expect_contains(message(parse_profile("{", "p.json")), {"p.json", "no machine profile"});
    expect_contains(message(read_profile("/nonexistent/p.json")), {"/nonexistent/p.json"});
}

TEST(MachineProfile, WritesWhatItReads) {
    const testing::ScratchFolder folder;
    MachineProfile profile = parsed(small_profile());
    profile.path = folder.file("p.json");
    profile.note = "shared \"machine\"";
    profile.sessions = {"one", "two"};
    profile.controls = {9.5, 10.5};
    profile.complete = false;
    ASSERT_TRUE(is_ok(write_profile(profile)));
    const MachineProfile read = require(read_profile(profile.path));
    EXPECT_EQ(to_json(read), to_json(profile));
    EXPECT_EQ(read.note, profile.note);
    EXPECT_EQ(read.sessions, profile.sessions);
    EXPECT_EQ(read.controls, profile.controls);
    EXPECT_FALSE(read.complete);
    EXPECT_EQ(read.costs[3].curve.points[0].samples, 9);
    EXPECT_EQ(read.costs[5].size_parameter, "v");
    EXPECT_DOUBLE_EQ(require(step_cost(read, setting())).total_ms(), 37);
    profile.path = folder.file("missing/p.json");
    expect_contains(message(write_profile(profile)), {"missing/p.json"});
}

TEST(MachineProfile, AnotherPrecisionVocabularyOrBackendIsRefused) {
    const MachineProfile profile = parsed(small_profile());
    EXPECT_TRUE(is_ok(check_profile(profile, {"cpu", "int8", 300})));
    EXPECT_TRUE(is_ok(check_profile(profile, {})));
    expect_contains(message(check_profile(profile, {"cuda", "int8", 300})),
                    {"p.json", "backend is cpu", "cuda"});
    expect_contains(message(check_profile(profile, {"cpu", "bf16", 300})),
                    {"p.json", "precision is int8", "bf16"});
    expect_contains(message(check_profile(profile, {"cpu", "int8", 301})), {"p.json", "vocab is 300", "301"});
}

}  // namespace
}  // namespace draftscope
