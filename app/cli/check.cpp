#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "app/cli/cli.h"
#include "app/cli/tables.h"
#include "storage/capture_file.h"

namespace draftscope::cli {
namespace {

using nlohmann::json;

struct CheckArguments {
    std::string file;
    bool repair = false;
    bool json = false;
};

void print_report(const CheckArguments& options, const CheckReport& report) {
    if (options.json) {
        json findings = json::array();
        for (const CheckFinding& finding : report.findings) findings.push_back(finding.what);
        json rows = json::object();
        for (const auto& [table, count] : report.row_counts) rows[table] = count;
        return print_document({{"file", options.file},
                               {"schema_version", report.schema_version},
                               {"findings", findings},
                               {"remarks", report.remarks},
                               {"rows", rows}});
    }
    for (const CheckFinding& finding : report.findings) print("{}\n", finding.what);
    for (const std::string& remark : report.remarks) print("note: {}\n", remark);
    std::int64_t rows = 0;
    for (const auto& [table, count] : report.row_counts) rows += count;
    print("{}: schema {}, {} rows, {} finding(s)\n", options.file, report.schema_version, rows,
          report.findings.size());
}

Result<int> do_check(const CheckArguments& options) {
    if (options.repair) DS_TRY(repair_capture(options.file));
    DS_ASSIGN(const CheckReport checked, check_capture(options.file));
    print_report(options, checked);
    return checked.findings.empty() ? 0 : 1;
}

}  // namespace

void add_check(CLI::App& program, Action& action) {
    auto options = std::make_shared<CheckArguments>();
    CLI::App* command = program.add_subcommand(
        "check", "Check a capture file's integrity. Exit code 0 clean, 1 findings, 2 no capture");
    command->footer("Example: draftscope check run.dscope --repair");
    command->add_option("file", options->file, "capture file")->required();
    command->add_flag("--repair", options->repair, "complete the file of a killed run, then check");
    command->add_flag("--json", options->json, "print one JSON document on stdout");
    command->callback([options, &action] { action = [options] { return do_check(*options); }; });
}

}  // namespace draftscope::cli
