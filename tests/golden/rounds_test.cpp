#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <sstream>

#include "tests/support/device_rig.h"
#include "tests/support/round_fixture.h"

/// Rounds of every drafter, head, tree and rule equal those of the files in tests/golden/rounds, which an
/// earlier version of the engine wrote. They hold behaviour while the engine changes; they are no proof that
/// it is right, which other tests give. To write them again, set DRAFTSCOPE_WRITE_GOLDEN to a folder.
namespace draftscope::testing {
namespace {

/// Trees and decisions as text, and sums of their probabilities.
struct RoundText {
    std::string words;
    std::vector<double> sums;
};

RoundText text_of(const RoundRecord& record) {
    RoundText text;
    text.words =
        fmt::format("{} {} {}", record.round.accepted, record.round.committed, record.round.tree_depth);
    double draft = 0, target = 0, ranks = 0;
    for (const NodeRow& node : record.nodes) {
        text.words += fmt::format(" {}/{}{}{}{}", node.token_id, node.parent, node.accepted ? "+" : ">",
                                  node.target_token_id, node.target_covered == true ? "" : "!");
        draft += static_cast<double>(node.draft_logprob);
        target += static_cast<double>(node.target_prob.value_or(0));
        ranks += node.target_rank.value_or(0);
    }
    text.words += " :";
    for (const NodeTopRow& top : record.tops) text.words += fmt::format(" {}", top.token_id);
    text.sums = {draft, target, ranks};
    for (const HeadEvalRow& eval : record.head_evals) {
        text.sums.push_back(eval.active_rows);
        text.sums.push_back(eval.covered_mass.value_or(-1));
    }
    return text;
}

using KindAndGroup = std::tuple<std::string, CaseGroup>;

class GoldenRounds : public ::testing::TestWithParam<KindAndGroup> {
  protected:
    /// "cpu": the portable kernels, whose results no machine changes. "device": the reference of every op.
    static std::unique_ptr<kernels::Backend> make_exec(const std::string& kind) {
        if (kind == "device") return std::move(TwinExec().exec);
        return kernels::make_cpu_backend(2, kernels::Isa::portable);
    }
};

TEST_P(GoldenRounds, MatchTheFiles) {
    const auto& [kind, group] = GetParam();
    const auto exec = make_exec(kind);
    RoundFixture fixture(*exec, kind == "cpu" ? kernels::Precision::int8 : kernels::Precision::bf16);
    const std::string name = "/" + kind + "_" + group.name + ".txt";
    const char* folder = std::getenv("DRAFTSCOPE_WRITE_GOLDEN");
    std::ofstream written;
    if (folder != nullptr) written.open(folder + name);
    std::ifstream file(std::string(DS_SOURCE_DIR) + "/tests/golden/rounds" + name);
    ASSERT_TRUE(folder != nullptr || file.good()) << name;
    std::string line;
    int accepted = 0;
    for (const DecodeCase& setting : group.cases) {
        SCOPED_TRACE(to_text(setting));
        if (folder != nullptr) written << "# " << to_text(setting) << "\n";
        ASSERT_TRUE(folder != nullptr || (std::getline(file, line) && line == "# " + to_text(setting)))
            << line;
        for (const StepRecord& step :
             fixture.steps(setting, {{5}, {0, 1, 2, 3, 4, 5, 0, 1, 2}, {3, 9, 4, 0, 7}}))
            for (const RoundRecord& round : step.rounds) {
                accepted += round.round.accepted;
                const RoundText found = text_of(round);
                if (folder != nullptr) {
                    written << found.words << "\n";
                    for (const double sum : found.sums) written << fmt::format("{:.7g} ", sum);
                    written << "\n";
                    continue;
                }
                ASSERT_TRUE(std::getline(file, line));
                ASSERT_EQ(found.words, line);
                ASSERT_TRUE(std::getline(file, line));
                std::istringstream sums(line);
                for (const double sum : found.sums) {
                    double expected = 0;
                    ASSERT_TRUE(sums >> expected);
                    // Sums of up to twenty logarithms of other standard libraries.
                    ASSERT_NEAR(sum, expected, 1e-5 * std::max(1.0, std::abs(expected)));
                }
            }
    }
    EXPECT_GT(accepted, 0);
    EXPECT_TRUE(folder != nullptr || !std::getline(file, line)) << line;
}

INSTANTIATE_TEST_SUITE_P(Rounds, GoldenRounds,
                         ::testing::Combine(::testing::Values("cpu", "device"),
                                            ::testing::ValuesIn(all_groups())),
                         [](const ::testing::TestParamInfo<KindAndGroup>& instance) {
                             return std::get<0>(instance.param) + "_" + std::get<1>(instance.param).name;
                         });

}  // namespace
}  // namespace draftscope::testing
