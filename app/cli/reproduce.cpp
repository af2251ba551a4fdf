#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <nlohmann/json.hpp>

#include "app/cli/job.h"
#include "app/cli/options.h"
#include "app/cli/version.h"
#include "app/jobs/reproduce/reproduce_job.h"
#include "capture/head_traits.h"
#include "capture/run_setting.h"

namespace draftscope::cli {
namespace {

using nlohmann::json;

struct ReproduceArguments {
    ReproduceConfig config;
    bool list = false;
    JobOutput output;
};

constexpr auto row_fields = join(
    null_if_none(DS_FIELDS(ReproducedRow, method, missing)), DS_FIELDS(ReproducedRow, notes),
    field("row", [](const ReproducedRow& row) { return row.paper.name; }),
    field("kind", [](const ReproducedRow& row) { return row.paper.kind; }),
    as(list_of(join(DS_FIELDS(ReproducedValue, ours), field("ours_sd", &ReproducedValue::deviation),
                    field("column", [](const ReproducedValue& one) { return one.paper.column; }),
                    field("quantity", [](const ReproducedValue& one) { return one.paper.quantity; }),
                    field("published", [](const ReproducedValue& one) { return one.paper.value; }),
                    field("published_sd", [](const ReproducedValue& one) { return one.paper.deviation; }))),
       DS_FIELDS(ReproducedRow, values)));

json block_json(const ReproducedBlock& block) {
    json out =
        write_fields(DS_FIELDS(BenchReport, first_seed, conversations, finished_conversations), block.bench);
    out.update(write_fields(
        join(field("setup", &PaperBlock::label), field("speeds_with_prefill", &PaperBlock::with_prefill)),
        block.paper));
    out.update(write_fields(
        join(DS_FIELDS(ReproducedBlock, drafter, tree, temperature, batch, repeat, max_new, threads),
             as(list_of(row_fields), DS_FIELDS(ReproducedBlock, rows))),
        block));
    return out;
}

json reproduce_json(const ReproduceReport& report) {
    json out = write_fields(DS_FIELDS(ReproduceReport, target, synthetic, precision, backend, vocabulary,
                                      conversations, differences, cancelled, seconds),
                            report);
    out.update(
        write_fields(join(field("table", &PaperTable::name), DS_FIELDS(PaperTable, paper, arxiv, title),
                          field("against", &PaperTable::target)),
                     report.table));
    out["version"] = version;
    out["blocks"] = json::array();
    for (const ReproducedBlock& block : report.blocks) out["blocks"].push_back(block_json(block));
    return out;
}

int digits_of(const std::string& quantity) {
    if (quantity == "active_tokens") return 0;
    if (quantity == "tokens_per_second") return 1;
    return quantity == "rho_tau" || quantity == "nu" ? 3 : 2;
}

std::string cell_text(const std::optional<double>& value, const std::optional<double>& deviation,
                      const std::string& quantity) {
    const int digits = digits_of(quantity);
    return number(value, digits) + (value && deviation ? fmt::format(" +-{:.{}f}", *deviation, digits) : "");
}

/// Returns the values of one printed table, as places in the list of a row. Quantities with an average alone
/// are columns of the first table.
std::vector<std::vector<std::size_t>> group_by_quantity(const std::vector<ReproducedValue>& values) {
    std::vector<std::string> quantities, alone;
    const auto has_task = [&](const std::string& quantity) {
        return std::ranges::any_of(values, [&](const ReproducedValue& value) {
            return value.paper.quantity == quantity && value.paper.column != "Average";
        });
    };
    for (const ReproducedValue& value : values) {
        std::vector<std::string>& list = has_task(value.paper.quantity) ? quantities : alone;
        if (std::ranges::find(list, value.paper.quantity) == list.end()) list.push_back(value.paper.quantity);
    }
    std::vector<std::vector<std::size_t>> groups(std::max<std::size_t>(quantities.size(), 1));
    for (std::size_t v = 0; v < values.size(); ++v) {
        const auto place = std::ranges::find(quantities, values[v].paper.quantity);
        groups[place == quantities.end() ? 0 : place - quantities.begin()].push_back(v);
    }
    return groups;
}

/// Returns a table: of each row a line with our values and a line with the paper's.
std::string table_text(const ReproducedBlock& block, const std::vector<std::size_t>& places) {
    const std::vector<ReproducedValue>& first = block.rows.front().values;
    std::vector<std::string> header = {first[places.front()].paper.quantity, ""};
    for (const std::size_t place : places) {
        const PaperValue& value = first[place].paper;
        const bool own = value.quantity == first[places.front()].paper.quantity;
        header.push_back(own ? value.column : value.quantity);
    }
    if (first[places.front()].paper.column == "Average") header[2] = std::exchange(header[0], "average");
    std::vector<std::vector<std::string>> lines;
    for (const ReproducedRow& row : block.rows) {
        std::vector<std::string> ours = {row.paper.name, row.missing.empty() ? "ours" : "not run"};
        std::vector<std::string> paper = {"", "paper"};
        for (const std::size_t place : places) {
            const ReproducedValue& value = row.values[place];
            ours.push_back(cell_text(value.ours, value.deviation, value.paper.quantity));
            paper.push_back(cell_text(value.paper.value, value.paper.deviation, value.paper.quantity));
        }
        lines.push_back(std::move(ours));
        if (std::ranges::any_of(places,
                                [&](std::size_t place) { return row.values[place].paper.value.has_value(); }))
            lines.push_back(std::move(paper));
    }
    return format_table(header, lines);
}

/// Returns a line with rho_tau of each row, ours and the paper's. It compares across targets, tau does not.
/// "" without a full head.
std::string shape_text(const ReproducedBlock& block) {
    std::string ours, paper;
    const ReproducedValue* full = nullptr;
    for (const ReproducedRow& row : block.rows)
        for (const ReproducedValue& value : row.values) {
            const bool tau = value.paper.quantity == "tau" && value.paper.column == "Average";
            if (!tau || !value.ours || !value.paper.value || row.paper.head == plain_drafter) continue;
            if (is_full_head(row.paper.head)) full = &value;
            if (full == nullptr || full == &value) continue;
            ours += fmt::format(" {:.3f}", *value.ours / *full->ours);
            paper += fmt::format(" {:.3f}", *value.paper.value / *full->paper.value);
        }
    if (ours.empty()) return {};
    return fmt::format(
        "compare the shape, not the level: rho_tau by row{}, paper{}; tau of full {:.2f}, paper {:.2f}\n\n",
        ours, paper, *full->ours, *full->paper.value);
}

void print_reproduce(const ReproduceReport& report) {
    const PaperTable& table = report.table;
    print("{} (arXiv {}), {}: {}\n", table.paper, table.arxiv, table.table, table.title);
    for (const ReproducedBlock& block : report.blocks) {
        print("\n{}{}{} @ {}, T={:g}, batch {}, {} repetition{}, {} tokens, speeds {} prefill\n\n",
              block.paper.label, block.paper.label.empty() ? "" : ": ", block.drafter, block.tree,
              block.temperature, block.batch, block.repeat, block.repeat == 1 ? "" : "s", block.max_new,
              block.paper.with_prefill ? "with" : "without");
        if (report.cancelled && block.bench.finished_conversations == 0) {
            print("cancelled before every method had decoded a conversation\n");
            continue;
        }
        print("{}", shape_text(block));
        std::string separator;
        for (const auto& places : group_by_quantity(block.rows.front().values)) {
            print("{}{}", separator, table_text(block, places));
            separator = "\n";
        }
        std::vector<std::pair<std::string, std::vector<std::string>>> missing;
        for (const ReproducedRow& row : block.rows) {
            if (row.missing.empty()) continue;
            if (missing.empty() || missing.back().first != row.missing)
                missing.emplace_back(row.missing, std::vector<std::string>());
            missing.back().second.push_back(row.paper.name);
        }
        for (const auto& [reason, rows] : missing) {
            const std::string names = fmt::format("{}", fmt::join(rows, "; "));
            print("not run: {}: {}\n", names, reason);
        }
    }
    print("\nwhat differs:\n");
    for (const std::string& line : report.differences) print("- {}\n", line);
    if (report.cancelled) print("cancelled: the values cover what every method decoded\n");
}

Result<int> print_list(bool as_json) {
    const auto tables = read_paper_tables();
    if (!tables.ok()) return tables.error();
    json list = json::array();
    std::vector<std::vector<std::string>> rows;
    for (const PaperTable& table : *tables) {
        std::vector<std::string> quantities;
        for (const PaperValue& value : table.blocks.front().rows.front().values)
            if (std::ranges::find(quantities, value.quantity) == quantities.end())
                quantities.push_back(value.quantity);
        list.push_back({{"table", table.name},
                        {"title", table.title},
                        {"targets", table.targets},
                        {"quantities", quantities}});
        rows.push_back({table.name, fmt::format("{}", fmt::join(quantities, ", ")),
                        fmt::format("{}", fmt::join(table.targets, ", "))});
    }
    if (as_json)
        print_document({{"version", version}, {"tables", std::move(list)}});
    else
        print("{}", format_table({"table", "quantities", "targets in the paper"}, rows));
    return 0;
}

Result<int> do_reproduce(const ReproduceArguments& options) {
    if (options.list) return print_list(options.output.json);
    return run_job(
        options.output,
        [&](const JobHooks& hooks, DebugGate& gate) { return run_reproduce(options.config, gate, hooks); },
        reproduce_json, print_reproduce,
        [](const ReproduceReport& done) { return done.cancelled ? 130 : 0; });
}

}  // namespace

void add_reproduce(CLI::App& program, Action& action) {
    auto options = std::make_shared<ReproduceArguments>();
    ReproduceConfig& config = options->config;
    CLI::App* command = program.add_subcommand(
        "reproduce", "Measure a table of a paper again, here, and print the published values next to ours");
    command->footer(
        "Example: draftscope reproduce dynaspec/table-2 --limit 1 --max-new 2\n"
        "         draftscope reproduce --list");
    CLI::Option* table = command->add_option("TABLE", config.table, "a name of --list, as fr-spec/table-1");
    CLI::Option* list =
        command->add_flag("--list", options->list, "list the tables that can be measured again");
    table->excludes(list);
    command->add_option("--against", config.against,
                        "target whose published values are shown (default: the table's first)");
    command->add_option("--model", config.model,
                        "target: a GGUF file, a model folder or synthetic:NAME (default: the demo model)");
    command->add_option("--drafter,--drafters", config.drafter,
                        "NAME[:PATH[,KEY=VALUE...]] (default: the paper's kind of drafter)");
    command->add_option("--tree", config.tree, "tree of every method (default: the paper's)");
    command->add_option(
        "--head-weights", config.head_weights,
        "HEAD=PATH, weights file or ranking of a head (repeatable; files of one head are told "
        "apart by their sizes)");
    command->add_option("--prompts", config.prompts,
                        "JSONL files instead of the shipped halves of Spec-Bench and HumanEval (repeatable)");
    command->add_option(
        "--recording", config.recording,
        "folder of draftscope record: acceptance is replayed along it, about ten times faster; "
        "for tables without speeds");
    command->add_option("--limit", config.limit, "conversations of each task (0 = all)");
    command->add_option("--max-new", config.max_new, "tokens to generate per prompt (default: the paper's)");
    command->add_option("--batch", config.batch, "sequences in lockstep (default: the paper's)");
    command->add_option("--repeat", config.repeat, "repetitions (default: the paper's)");
    add_shown(*command, "--backend", config.backend, "cpu, cuda, or auto: cuda if there is a GPU");
    add_shown(*command, "--precision", config.precision, "f32, bf16, int8, int4 or auto");
    add_threads_option(*command, config.threads);
    command->add_flag("--ignore-eos", config.ignore_eos, "continue past the end of text");
    command->add_flag("--raw", config.raw, "no chat template");
    add_output_options(*command, options->output);
    command->callback([options, &action] {
        if (options->config.table.empty() && !options->list)
            throw CLI::ValidationError("TABLE", "is required: a name of draftscope reproduce --list");
        action = [options] { return do_reproduce(*options); };
    });
}

}  // namespace draftscope::cli
