#include <nlohmann/json.hpp>
#include <set>

#include "tests/unit/app/cli/program.h"

namespace draftscope::testing {
namespace {

using nlohmann::json;

std::vector<std::string> small(std::vector<std::string> more) {
    return Arguments{"kernels", "--vocab",   "640",    "--hidden",    "96",       "--gather",  "32", "--rows",
                     "1,3",     "--seconds", "0.0005", "--precision", "int8,f32", "--threads", "2"} +
           more;
}

TEST(Kernels, JsonHasEveryOpAtEveryRowCountAndPrecision) {
    const ScratchFolder folder;
    const json document = parse_output(run(folder, small({"--json"})));
    EXPECT_EQ(document["vocab"], 640);
    EXPECT_EQ(document["hidden"], 96);
    EXPECT_EQ(document["threads"], 2);
    EXPECT_EQ(document["probe_gb_per_s"].size(), 2u);
    std::set<std::string> seen;
    for (const json& op : document["ops"]) {
        const double us = op["median_us"], bytes = op["bytes"], rate = op["gb_per_s"];
        EXPECT_GT(us, 0);
        EXPECT_GE(us, op["best_us"]);
        EXPECT_NEAR(rate, bytes / us / 1e3, 1e-9 * rate);
        EXPECT_GE(op["calls"], 5);
        seen.insert(op["op"].get<std::string>() + "/" + op["precision"].get<std::string>() + "/" +
                    std::to_string(op["rows"].get<int>()));
        // 640 rows of 96 int8 weights and a bf16 scale.
        if (op["op"] != "head") continue;
        EXPECT_EQ(bytes, op["precision"] == "int8" ? 640 * (96 + 2) : 640 * 96 * 4);
    }
    for (const char* name :
         {"head/int8/1", "head/f32/3", "low-rank r=12/int8/3", "gather 32/int8/0", "gathered head 32/f32/1",
          "indexed head 32/int8/3", "head + best/int8/3", "low-rank r=12 + best/f32/1",
          "router r=12 + top 32/int8/3", "top set k=32/f32/1", "top-k k=10/f32/3", "log-sum-exp/f32/1",
          "norm + 96x96/int8/1", "norm + gate and up 512x96 + silu/f32/3", "96x256 + residual/int8/3",
          "attention of 1 heads over 512/f16/3", "attention of 1 heads over 512/f32/3"})
        EXPECT_EQ(seen.count(name), 1u) << name;
}

TEST(Kernels, CsvHasAHeaderAndOneLinePerOp) {
    const ScratchFolder folder;
    const ProcessResult done = run(folder, small({"--csv"}));
    ASSERT_EQ(done.exit_code, 0) << done.err;
    EXPECT_EQ(done.out.rfind("op,precision,rows,calls,median_us,best_us,bytes,gb_per_s,share_of_probe,"
                             "scattered_probe_gb_per_s\n",
                             0),
              0u);
    // Two row counts of seven heads and three layer products at two precisions, two gathers, attention over
    // two types of keys, three selections.
    EXPECT_EQ(std::count(done.out.begin(), done.out.end(), '\n'), 1 + 2 * 2 * (7 + 3) + 2 + 2 * (2 + 3));
}

/// A sweep over the shortlist's size is one command, and no size is clipped without a line.
TEST(Kernels, SweepsGatherAndRank) {
    const ScratchFolder folder;
    const json document = parse_output(
        run(folder, arguments("kernels --vocab 640 --hidden 64 --rows 1 --seconds 0.0001 --precision int8 "
                              "--threads 2 --gather 16,600,4096 --rank 4,32 --json")));
    std::multiset<std::string> seen;
    for (const json& op : document["ops"]) seen.insert(op["op"]);
    for (const char* name :
         {"indexed head 16", "indexed head 600", "indexed head 640", "gather 600", "gathered head 640",
          "low-rank r=4", "low-rank r=32 + best", "router r=4 + top 600", "router r=32 + top 16", "head"})
        EXPECT_EQ(seen.count(name), 1u) << name;
    ASSERT_EQ(document["notes"].size(), 1u);
    const std::string note = document["notes"][0];
    EXPECT_NE(note.find("gather 4096"), std::string::npos) << note;
    EXPECT_NE(note.find("640 rows"), std::string::npos) << note;
    expect_one_line_error(run(folder, {"kernels", "--gather", "16,0"}), {"--gather 0"});
}

TEST(Kernels, RejectsImpossibleSizes) {
    const ScratchFolder folder;
    expect_one_line_error(run(folder, {"kernels", "--vocab", "0"}), {"--vocab 0"});
    expect_one_line_error(run(folder, {"kernels", "--rows", "1,-2"}), {"--rows -2"});
    expect_one_line_error(run(folder, {"kernels", "--rank", "600"}), {"--rank 600", "576"});
    expect_one_line_error(run(folder, {"kernels", "--precision", "int8,f8"}), {"f8", "int8"});
    expect_one_line_error(run(folder, {"kernels", "--seconds", "0"}), {"--seconds"});
    expect_one_line_error(run(folder, {"kernels", "--vocab", "2000000000"}), {"--vocab"});
}

}  // namespace
}  // namespace draftscope::testing
