#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <nlohmann/json.hpp>

#include "app/cli/decoding_options.h"
#include "app/cli/estimates.h"
#include "app/cli/head_tables.h"
#include "app/cli/job.h"
#include "app/cli/options.h"
#include "app/cli/version.h"
#include "app/jobs/bench/bench_job.h"
#include "app/jobs/resolve/resolve.h"

namespace draftscope::cli {
namespace {

using nlohmann::json;

struct Options {
    BenchConfig config;
    std::string heads;
    bool no_plain = false;
    JobOutput output;
};

bool has_text_of_first(const BenchReport& report, std::size_t m) {
    return report.same[m] == report.compared[m];
}

json cell_json(const BenchCell& cell) {
    const auto of_something = [](double value) { return value > 0 ? json(value) : json(nullptr); };
    return {{"prompts", cell.prompts},
            {"tau", of_something(cell.tau)},
            {"tokens_per_second", of_something(cell.tokens_per_second)},
            {"speedup", value_json(cell.speedup)},
            {"speedup_interval", estimate_interval_json(cell.speedup)},
            {"conversations", cell.conversations},
            {"speedup_sd", or_null(cell.spread)},
            {"active_rows", of_something(cell.active_rows)}};
}

json method_json(const BenchReport& report, std::size_t m) {
    const BenchMethod& method = report.methods[m];
    const BenchRow& row = report.table.rows[m];
    json out = cell_json(row.all);
    out["method"] = method.name;
    out["drafter"] = method.drafter;
    out["head"] = method.head;
    out["tree"] = or_null(method.resolved_tree);
    out["same_text"] = has_text_of_first(report, m);
    json categories = json::array();
    for (std::size_t c = 0; c < row.categories.size(); ++c) {
        categories.push_back(cell_json(row.categories[c]));
        categories.back()["category"] = report.table.categories[c];
    }
    out["categories"] = std::move(categories);
    out["reads"] = report.reads[m].head_ns > 0 ? reads_json(report.reads[m]) : json(nullptr);
    out["against_full"] = nullptr;
    if (report.samples.methods[m].full) {
        out["against_full"] = {{"rho_tau", value_json(row.cost.rho_tau)},
                               {"nu", value_json(row.cost.nu)},
                               {"kappa", value_json(row.cost.kappa)},
                               {"predicted_speedup", value_json(row.cost.predicted)},
                               {"measured_speedup", value_json(row.cost.measured)},
                               {"unexplained", value_json(row.cost.unexplained)},
                               {"intervals", intervals_json(row.cost)}};
    }
    return out;
}

std::vector<std::string> machine_warnings(const BenchReport& report) {
    std::vector<std::string> names;
    for (const BenchMethod& method : report.methods) names.push_back(method.name);
    return drift_warnings(report.drift, names);
}

/// Drift of the machine's speed, measured by verifications of equal trees: between methods, and between
/// blocks.
json drift_json(const BenchReport& report) {
    json methods = json::array(), blocks = json::array();
    for (const BenchDrift::Methods& one : report.drift.methods)
        methods.push_back({{"a", report.methods[one.a].name},
                           {"b", report.methods[one.b].name},
                           {"ratio", one.control.ratio.value},
                           {"interval", estimate_interval_json(one.control.ratio)},
                           {"differs", one.control.differs ? json(*one.control.differs) : json(nullptr)}});
    for (const BenchDrift::Blocks& one : report.drift.blocks)
        blocks.push_back({{"method", report.methods[one.method].name}, {"low", one.low}, {"high", one.high}});
    return {{"control", "verification of equal trees"},
            {"blocks_per_repetition", report.drift.block_count},
            {"methods", std::move(methods)},
            {"blocks", std::move(blocks)}};
}

json report_json(const BenchReport& report) {
    json methods = json::array();
    for (std::size_t m = 0; m < report.methods.size(); ++m) methods.push_back(method_json(report, m));
    return {{"version", version},
            {"target", report.target},
            {"synthetic", report.synthetic},
            {"acceptance", report.acceptance},
            {"precision", report.precision},
            {"backend", report.backend},
            {"verify", report.verify},
            {"temperature", report.temperature},
            {"threads", report.threads},
            {"batch", report.batch},
            {"tier", "T0"},
            {"repeat", report.repeat},
            {"complete", !report.cancelled},
            {"cancelled", report.cancelled},
            {"conversations", report.conversations},
            {"finished_conversations", report.finished_conversations},
            {"seconds", report.seconds},
            {"methods", std::move(methods)},
            {"machine", drift_json(report)},
            {"warnings", machine_warnings(report)}};
}

std::string positive(double value, int digits) {
    return number(value > 0 ? std::optional(value) : std::nullopt, digits);
}

std::string method_table(const BenchReport& report) {
    std::vector<std::string> header = {"method", "prompts", "tau", "tok/s", "x none", "SD", "rows", "text"};
    if (!report.samples.plain) header[4] = "-";
    std::vector<std::vector<std::string>> rows;
    for (std::size_t m = 0; m < report.methods.size(); ++m) {
        const BenchCell& cell = report.table.rows[m].all;
        rows.push_back(
            {report.methods[m].name, std::to_string(cell.prompts), positive(cell.tau, 3),
             positive(cell.tokens_per_second, 1), with_interval(cell.speedup), number(cell.spread, 3),
             cell.active_rows > 0 ? fmt::format("{:.0f}", cell.active_rows) : "-",
             has_text_of_first(report, m)
                 ? "same"
                 : fmt::format("{} of {} differ", report.compared[m] - report.same[m], report.compared[m])});
    }
    return format_table(header, rows);
}

std::string model_table(const BenchReport& report) {
    std::vector<std::vector<std::string>> rows;
    for (std::size_t m = 0; m < report.methods.size(); ++m) {
        const auto full = report.samples.methods[m].full;
        if (!full || *full == m) continue;
        const AcceptanceCost& cost = report.table.rows[m].cost;
        rows.push_back({report.methods[m].name, with_interval(cost.rho_tau), with_interval(cost.nu),
                        with_interval(cost.kappa), with_interval(cost.predicted),
                        with_interval(cost.measured), difference(cost.unexplained)});
    }
    if (rows.empty()) return {};
    return "\n" +
           format_table(
               {"against full", "rho_tau", "nu", "kappa", "predicted x", "measured x", "unexplained"}, rows);
}

std::string method_reads(const BenchReport& report) {
    std::vector<NamedReads> reads;
    for (std::size_t m = 0; m < report.methods.size(); ++m) {
        if (report.reads[m].head_ns > 0) reads.push_back({report.methods[m].name, report.reads[m]});
    }
    return reads_table("a round's reads", reads);
}

/// Returns the table method x category: the speed-up, or tokens per second without plain decoding.
std::string matrix(const BenchReport& report) {
    if (report.table.categories.size() < 2) return {};
    std::vector<std::string> header = {report.samples.plain ? "x none by category" : "tok/s by category"};
    for (const std::string& category : report.table.categories)
        header.push_back(category.empty() ? "-" : category);
    std::vector<std::vector<std::string>> rows;
    for (std::size_t m = 0; m < report.methods.size(); ++m) {
        std::vector<std::string> row = {report.methods[m].name};
        for (const BenchCell& cell : report.table.rows[m].categories) {
            if (!report.samples.plain) {
                row.push_back(positive(cell.tokens_per_second, 1));
                continue;
            }
            std::string text = cell.speedup ? number(cell.speedup->value, 2) : "-";
            if (cell.spread) text += fmt::format(" +-{:.2f}", *cell.spread);
            row.push_back(std::move(text));
        }
        rows.push_back(std::move(row));
    }
    return "\n" + format_table(header, rows);
}

/// Returns the number of conversations in the largest comparison.
std::size_t max_conversations(const BenchReport& report) {
    std::size_t out = 0;
    for (const BenchRow& row : report.table.rows)
        out = std::max({out, row.all.conversations, row.cost.conversations});
    return out;
}

void print_report(const BenchReport& report) {
    print("{}{}  {}  {} threads  batch {}  {}  T0\n\n", report.target,
          report.synthetic ? " (SYNTHETIC weights)" : "", report.precision, report.threads, report.batch,
          report.temperature > 0 ? fmt::format("T={:g}", report.temperature).c_str() : "greedy");
    if (report.acceptance != "real")
        print("SIMULATED ACCEPTANCE: drafts were not verified by the target; texts and tau mean nothing\n\n");
    for (const BenchMethod& method : report.methods)
        if (method.tree.empty() && !method.resolved_tree.empty()) {
            print("tree {} if a method names none\n\n", method.resolved_tree);
            break;
        }
    if (report.cancelled && report.finished_conversations == 0) {
        print("cancelled before every method had decoded a conversation (of {}): nothing to compare\n",
              report.conversations);
        return;
    }
    print("{}{}{}{}", method_table(report), model_table(report), method_reads(report), matrix(report));
    print("\nblocks in alternating order; {}; SD and +- over {} repetition{}; {:.0f} s\n",
          interval_text(max_conversations(report)), report.repeat, report.repeat == 1 ? "" : "s",
          report.seconds);
    for (const std::string& warning : machine_warnings(report)) print("note: {}\n", warning);
    if (report.cancelled)
        print("cancelled after {} of {} conversations: the tables cover those that every method decoded\n",
              report.finished_conversations, report.conversations);
}

int do_bench(Options& options) {
    if (!options.heads.empty()) options.config.heads = split_specs(options.heads);
    std::vector<std::string> heads = options.config.heads;
    heads.insert(heads.end(), options.config.methods.begin(), options.config.methods.end());
    if (const Status used = check_sampling_used(options.config.run, heads); !used.ok())
        return report(used.error());
    options.config.plain = !options.no_plain;
    return run_job(
        options.output,
        [&](const JobHooks& hooks, DebugGate& gate) { return run_bench(options.config, gate, hooks); },
        report_json, print_report, [](const BenchReport& done) { return done.cancelled ? 130 : 0; });
}

}  // namespace

void add_bench(CLI::App& program, Action& action) {
    auto options = std::make_shared<Options>();
    BenchConfig& config = options->config;
    CLI::App* command = program.add_subcommand(
        "bench", "Compare heads, drafters and trees on the same prompts: method x category, with intervals");
    command->footer(
        "Example: draftscope bench --prompts assets/prompts/spec_bench_half.jsonl --limit 24 --balanced "
        "--heads full,fr-spec:v=8192,microspec --tree chain=3 --method \"ngram @ chain=3\"");
    auto* prompts =
        command->add_option("--prompts", config.run.prompts_file, "JSONL with prompt or turns per line");
    prompts->required();
    command->add_option("--heads", options->heads,
                        "head specs with --drafter and --tree, comma-separated; key=value continues the "
                        "previous spec; of " +
                            known_heads());
    command->add_option("--method", config.methods,
                        "further method (repeatable): \"DRAFTER[ x HEAD][ @ TREE]\", e.g. \"eagle3 x "
                        "microspec @ chain=2\"");
    add_decoding_options(*command, config.run);
    command->add_option("--limit", config.run.limit, "conversations taken from the file (0 = all)");
    command->add_flag("--balanced,--stratify", config.run.balanced, "take them evenly from the categories");
    add_shown(*command, "--repeat", config.repeat, "repetitions of every block (our default)");
    add_shown(*command, "--block", config.block,
              "conversations that a method decodes before the next method's turn (our default)");
    command->add_flag("--no-plain", options->no_plain, "without --drafter none, and thus no speed-up");
    add_output_options(*command, options->output);
    command->callback([options, &action] { action = [options] { return do_bench(*options); }; });
}

}  // namespace draftscope::cli
