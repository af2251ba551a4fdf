#include "app/jobs/reproduce/paper_tables.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "app/jobs/reproduce/reproduce_job.h"
#include "engine/heads/head.h"
#include "engine/tree/draft_tree.h"
#include "tests/support/results.h"

namespace draftscope {
namespace {

const PaperRow& row_named(const PaperBlock& block, const std::string& name) {
    const auto found = std::ranges::find(block.rows, name, &PaperRow::name);
    EXPECT_NE(found, block.rows.end()) << name;
    return found == block.rows.end() ? block.rows.front() : *found;
}

std::optional<double> published(const PaperRow& row, const std::string& column, const std::string& quantity) {
    for (const PaperValue& value : row.values)
        if (value.column == column && value.quantity == quantity) return value.value;
    return std::nullopt;
}

TEST(PaperTables, HaveThePublishedRows) {
    const auto fr_spec = find_paper_table("fr-spec/table-1", "");
    ASSERT_TRUE(is_ok(fr_spec));
    ASSERT_EQ(fr_spec->blocks.size(), 1u);
    const PaperBlock& block = fr_spec->blocks[0];
    EXPECT_EQ(block.tree, "paper:fr-spec");
    EXPECT_EQ(block.rows.size(), 9u);
    const PaperRow& row = row_named(block, "fr-spec V=32k");
    EXPECT_EQ(published(row, "Math", "tau"), 4.15);
    EXPECT_EQ(published(row, "Average", "tau"), 3.63);
    EXPECT_EQ(published(row, "Average", "rho_tau"), 0.933);
    EXPECT_EQ(row_named(block, "fr-spec V=32k, ShareGPT").needs, "needs a token ranking counted on ShareGPT");
    const auto medusa = find_paper_table("fr-spec/table-5", "");
    ASSERT_TRUE(is_ok(medusa));
    EXPECT_EQ(medusa->blocks[0].drafter, "medusa");
    EXPECT_EQ(published(row_named(medusa->blocks[0], "full V=128k"), "QA", "speedup_vs_ar"), 1.53);
}

TEST(PaperTables, SelectTheTargetAndTheSetups) {
    const auto main = find_paper_table("slimspec/table-2", "GPT-OSS-20B");
    ASSERT_TRUE(is_ok(main));
    ASSERT_EQ(main->blocks.size(), 2u);
    EXPECT_EQ(main->blocks[0].batch, 1);
    EXPECT_EQ(main->blocks[1].batch, 64);
    EXPECT_EQ(main->blocks[0].rows.size(), 4u);
    EXPECT_EQ(main->vocabulary, 201088);
    EXPECT_EQ(published(row_named(main->blocks[1], "slimspec r=d/8"), "MT-Bench", "speedup_vs_ar"), 1.52);
    const auto ablation = find_paper_table("microspec/table-3", "");
    ASSERT_TRUE(is_ok(ablation));
    EXPECT_EQ(
        published(row_named(ablation->blocks[0], "Ext. Only, asynchronous"), "Average", "tokens_per_second"),
        351.4);
    EXPECT_EQ(row_named(ablation->blocks[0], "Ext. Only, asynchronous").head, "microspec:source=ext");
    const auto figure = find_paper_table("specvocab/figure-4", "");
    ASSERT_TRUE(is_ok(figure));
    EXPECT_EQ(published(row_named(figure->blocks[0], "d'=d/8, k=512"), "Average", "tau"), std::nullopt);
}

TEST(PaperTables, SayHowDraftsAreChecked) {
    const auto verify = [](const char* name) {
        const auto table = find_paper_table(name, "");
        EXPECT_TRUE(is_ok(table));
        const PaperBlock& block = table->blocks.back();
        return std::pair(block.temperature.value_or(0) > 0 ? block.verify : "", block.verified);
    };
    EXPECT_EQ(verify("slimspec/table-9"),
              std::pair(std::string("pq"), std::string("by rejection sampling, as section 3.2 says")));
    EXPECT_EQ(verify("slimspec/table-5").first, "");
    EXPECT_EQ(verify("fr-spec/table-3").first, "match");
    EXPECT_NE(verify("fr-spec/table-3").second.find("EAGLE-2"), std::string::npos);
    const auto tables = read_paper_tables();
    ASSERT_TRUE(is_ok(tables));
    for (const PaperTable& table : *tables)
        for (const PaperBlock& block : table.blocks)
            EXPECT_EQ(block.verified.empty(), block.temperature.value_or(0) == 0) << table.name;
}

TEST(PaperTables, EveryRowIsAHeadAndEveryTreeIsKnown) {
    const auto tables = read_paper_tables();
    ASSERT_TRUE(is_ok(tables));
    EXPECT_GE(tables->size(), 40u);
    for (const PaperTable& first : *tables)
        for (const std::string& target : first.targets)
            EXPECT_TRUE(is_ok(find_paper_table(first.name, target))) << first.name;
    for (const PaperTable& table : *tables)
        for (const PaperBlock& block : table.blocks) {
            EXPECT_TRUE(parse_tree_spec(block.tree).ok()) << table.name;
            ASSERT_FALSE(block.rows.empty()) << table.name;
            for (const PaperRow& row : block.rows) {
                EXPECT_EQ(row.values.size(), block.rows.front().values.size()) << table.name;
                if (!row.needs.empty()) continue;
                const auto spec = parse_head_spec(fill_sizes(row.head, table.vocabulary, 49152, 576));
                EXPECT_TRUE(spec.ok()) << table.name << ", " << row.name;
                if (!spec.ok() || spec->id == "none") continue;
                // A missing file is a property of the run; an unknown parameter is a mistake in the table.
                const auto head = make_head(*spec, {});
                if (!head.ok()) {
                    EXPECT_EQ(head.error().message.find("unknown"), std::string::npos)
                        << head.error().message;
                }
            }
        }
}

TEST(PaperTables, SizesKeepTheirShare) {
    EXPECT_EQ(fill_sizes("fr-spec:v={32768}", 128256, 128256, 4096), "fr-spec:v=32768");
    EXPECT_EQ(fill_sizes("fr-spec:v={32768}", 128256, 49152, 576), "fr-spec:v=12558");
    EXPECT_EQ(fill_sizes("specvocab:rank={d/8},k=512", 128256, 49152, 576), "specvocab:rank=72,k=512");
    EXPECT_EQ(fill_sizes("microspec", 1, 1, 1), "microspec");
}

TEST(PaperTables, UnknownNamesNameTheClosest) {
    const auto message = [](const char* name, const char* target) {
        const auto found = find_paper_table(name, target);
        EXPECT_FALSE(found.ok());
        return found.ok() ? std::string() : found.error().message;
    };
    const std::string close = message("fr-spec/table-l", "");
    EXPECT_NE(close.find("did you mean fr-spec/table-1?"), std::string::npos) << close;
    EXPECT_NE(close.find("known: fr-spec/table-1, fr-spec/table-2"), std::string::npos) << close;
    EXPECT_NE(message("eagle", "").find("--list"), std::string::npos);
    const std::string target = message("fr-spec/table-1", "Llama-3-8B");
    EXPECT_NE(target.find("known: Llama-3-8B-Instruct"), std::string::npos) << target;
}

/// Returns samples of two methods over two tasks. The first method is the full head of both.
BenchSamples two_tasks(int conversations) {
    BenchSamples out;
    out.methods.resize(2);
    for (BenchMethodSamples& method : out.methods) {
        method.resize(1, 2 * conversations);
        method.full = 0;
    }
    for (int p = 0; p < 2 * conversations; ++p) {
        const bool code = p < conversations;
        out.prompts.push_back({code ? "HumanEval" : "qa", static_cast<std::size_t>(p), 0});
        const double accepted[] = {code ? 10.0 : 30.0, code ? 0.0 : 25.0};
        for (int m = 0; m < 2; ++m) {
            HeadSample& sample = out.methods[m].units[0][p];
            sample.rounds = 10;
            sample.accepted = accepted[m] + 2.0 * (p % 3) * m;
            sample.committed = sample.timed_committed = sample.rounds + sample.accepted - 1;
            sample.step_ns = 1e9;
            out.methods[m].prefill_ns[0][p] = 1e9;
            out.methods[m].row_tokens[p] = 1000 * (code ? 1 : 3);
            out.methods[m].active_rows[p] = 9000;
        }
    }
    return out;
}

TEST(MeasuredValue, AveragesAreMeansOfTasksAndRatiosThoseOfMeans) {
    const BenchSamples samples = two_tasks(6);
    const BenchTable table = bench_table(samples);
    const BenchRow& row = table.rows[1];
    const auto measured = [&](const char* quantity, const BenchCell* cell, bool with_prefill = false) {
        return measured_value({"", quantity, {}, {}}, row, cell, with_prefill);
    };
    const auto ours = [&](const char* quantity, const BenchCell* cell, bool with_prefill = false) {
        const auto value = measured(quantity, cell, with_prefill);
        return value.ours ? value.ours->value : 0;
    };
    // Of the method: 1, 1.2 and 1.4 in the first task, 3.5, 3.7 and 3.9 in the second; the full head: 2
    // and 4.
    EXPECT_DOUBLE_EQ(ours("tau", nullptr), (1.2 + 3.7) / 2);
    EXPECT_DOUBLE_EQ(ours("tau", &row.tasks[1]), 3.7);
    EXPECT_DOUBLE_EQ(ours("rho_tau", nullptr), (1.2 + 3.7) / (2 + 4));
    EXPECT_DOUBLE_EQ(ours("tokens_per_second", nullptr), (11 + 36) / 2.0);
    EXPECT_DOUBLE_EQ(ours("tokens_per_second", &row.tasks[0], true), 11 / 2.0);
    EXPECT_DOUBLE_EQ(ours("speedup_vs_full", nullptr), (11 + 36) / (19 + 39.0));
    EXPECT_DOUBLE_EQ(ours("active_tokens", nullptr), (100 + 300) / 2.0) << "a row's shortlist, not the union";
    EXPECT_FALSE(measured("speedup_vs_ar", nullptr).ours) << "nothing decoded without a drafter";
    EXPECT_FALSE(measured("rho_tau", &row.tasks[0]).ours);
}

TEST(MeasuredValue, IntervalsResampleConversationsOfBothMethods) {
    const auto interval = [](const BenchSamples& samples, const char* quantity, int task) {
        const BenchTable table = bench_table(samples);
        const BenchRow& row = table.rows[1];
        const auto value =
            measured_value({"", quantity, {}, {}}, row, task < 0 ? nullptr : &row.tasks[task], false);
        return value.ours->interval;
    };
    BenchSamples samples = two_tasks(6);
    const auto rho = interval(samples, "rho_tau", -1), tau = interval(samples, "tau", -1);
    ASSERT_TRUE(rho && tau);
    EXPECT_TRUE(rho->contains(4.9 / 6));
    EXPECT_TRUE(interval(samples, "tau", 0)->contains(1.2));
    // Texts that are easy for both heads widen tau's interval, not rho_tau's.
    for (BenchMethodSamples& method : samples.methods)
        for (const int p : {0, 6}) {
            HeadSample& sample = method.units[0][p];
            sample.accepted = 5 * (sample.rounds + sample.accepted) - sample.rounds;
        }
    const auto easy = interval(samples, "rho_tau", -1), easy_tau = interval(samples, "tau", -1);
    ASSERT_TRUE(easy && easy_tau);
    EXPECT_LT((easy->high - easy->low) / (rho->high - rho->low),
              0.5 * (easy_tau->high - easy_tau->low) / (tau->high - tau->low));
    EXPECT_FALSE(interval(two_tasks(5), "tau", 0)) << "five conversations";
}

TEST(MeasuredValue, DeviationsAreThoseOfTheSpeedsMeant) {
    BenchRow row;
    row.macro.tau_unclipped_sd = 0.25;
    row.macro.tokens_per_second_sd = 3;
    row.macro.end_to_end_tokens_per_second_sd = 2;
    const auto deviation = [&](const char* quantity, bool with_prefill) {
        return measured_value({"", quantity, {}, {}}, row, nullptr, with_prefill).ours_deviation;
    };
    EXPECT_EQ(deviation("tau", false), 0.25);
    EXPECT_EQ(deviation("tokens_per_second", false), 3);
    EXPECT_EQ(deviation("tokens_per_second", true), 2);
}

}  // namespace
}  // namespace draftscope
